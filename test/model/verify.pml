/* Verification: agent/segment/verify.go, judge.go. */
#define IS_FENCED 1
#define IS_SILENT 2
#define IS_ANSWERED 3
#define IS_UNKNOWN 4
#define SAFE (verdict == IS_FENCED || verdict == IS_SILENT)

/* All have one MAC: after an ack, the unicast probe tells (verify.go findTwin). */
#define STRANGER_ANSWERS(m) \
	((ANSWERS(0, m) && previous != 0) || (ANSWERS(1, m) && previous != 1) || (ANSWERS(2, m) && previous != 2))

/* An ack can come, or not, from a kernel that has heard the claim and whose slot
 * lives. The claim names the token of the last holder, whose kernel alone
 * acknowledges. A MAC would name every holder (ANY_ACK). */
#ifdef ANY_ACK
#define IS_AN_ACK(s) 1
#else
#define IS_AN_ACK(s) (installed[s] == previous_token)
#endif
#define MAY_ACK(s, m) (s != m && IS_AN_ACK(s) && slot[s] == ALIVE && FENCED(s) && greatest[s] >= said && SENDS(s) && HEARS(m))

/* R2: a claim of another machine can have come in, perhaps before the links were
 * as they are now: within two minutes. */
#define SPOKE(s, m) (s != m && (claimed[s] || (asked && asked_by == s)))

/* R2: a canary answers a probe of this verification. At best it is a host that
 * always answers, such as a gateway. It is no host of the machine itself, such as
 * a virtual machine on its bridge: that one answers whatever the link does. */
#ifdef CANARY_AT_HOME
#define AT_HOME 1
#else
#define AT_HOME 0
#endif
#if defined(WITHOUT_CANARY)
#define CANARY_ANSWERS(m) 1
#elif defined(CANARY_SPEAKS)
#define CANARY_ANSWERS(m) HEARS(m)
#else
#define CANARY_ANSWERS(m) (CONVERSES(m) || AT_HOME)
#endif
#define MAY_HAVE_HEARD(m) (SPOKE(0, m) || SPOKE(1, m) || SPOKE(2, m))

/* agent/proof/claim.go EndedHere (R8) */
#ifdef WITHOUT_R8
#define ENDED_HERE(m) (m == previous || (renamed && m == 2 && previous == 0))
#else
#define ENDED_HERE(m) (m == previous && boot[m] == previous_boot)
#endif

/* What of it does arrive: each judgement is made three times. */
#define NOTHING_ARRIVES 0
#define CLAIMS_ARRIVE 1
#define ACKS_ARRIVE 2

/* The operator says which parent leads to the holder (spec.parents). A sighting,
 * which anybody can forge, must not lead to another segment: others are heard
 * there, and a canary answers (agent/parent choose). */
#define SIGHTING_IS_FORGED 3
#ifdef SIGHTING_OVERRULES
#define ELSEWHERE (luck == SIGHTING_IS_FORGED)
#else
#define ELSEWHERE 0
#endif

/*
 * Three probe rounds and the judgement on claim said are one moment: of three
 * probes one gets through where the link carries, and no link changes meanwhile.
 * by is whose ack it was.
 */
inline judge(m) {
	if
	:: ELSEWHERE -> verdict = IS_SILENT
	:: !ELSEWHERE && STRANGER_ANSWERS(m) -> verdict = IS_ANSWERED
	:: else ->
		if
		:: ENDED_HERE(m) || (luck == ACKS_ARRIVE && lease_state != CONFLICT && (MAY_ACK(0, m) || MAY_ACK(1, m) || MAY_ACK(2, m))) ->
			verdict = IS_FENCED
		:: else ->
			if
			:: ANSWERED(m) -> verdict = IS_ANSWERED
			:: !ANSWERED(m) && installed[m] != 0 && installed[m] < said -> verdict = IS_UNKNOWN
#ifdef WITHOUT_R2
			:: else -> verdict = IS_SILENT
#else
			:: else -> verdict = (asserted || (luck != NOTHING_ARRIVES && MAY_HAVE_HEARD(m) && CANARY_ANSWERS(m)) -> IS_SILENT : IS_UNKNOWN)
#endif
			fi
		fi
	fi;
	if
	:: verdict == IS_FENCED && previous != NOBODY -> note_end(previous)
	:: MOVES && verdict == IS_SILENT && luck == CLAIMS_ARRIVE && previous != NOBODY && previous != m && HEARS(previous) && SENDS(m) ->
		note_end(previous); raise(previous)
	:: else
	fi;
	/* What a safe verdict must mean, by the truth that no machine sees. */
	assert(P3_proven || !SAFE || !(lease_state == CONFLICT && ON_AIR(conflict, m) || lease_state != CONFLICT && ON_AIR(previous, m)));
	assert(P4_acked_is_fenced || verdict != IS_FENCED || previous == NOBODY || !VOICE(previous));
	if
	:: verdict == IS_FENCED && !ENDED_HERE(m) -> SEEN(ACK_HEARD)
	:: verdict == IS_SILENT && previous != NOBODY && VOICE(previous) -> SEEN(SILENT_BET)
	:: verdict == IS_SILENT && previous != NOBODY && slot[previous] == ALIVE && FENCED(previous) -> SEEN(ACK_LOST)
	:: else
	fi
}

/* The claim for version said goes out, and fences a local zombie on its way
 * (bpf/src/observer.c egress_claim). Without carrier there is no
 * claim (rows with MOVES). */
inline ask(m) {
	if
	:: SENDS(m) -> asked = said; asked_by = m
	:: else
	fi;
	if
	:: up[m] || !MOVES -> raise(m)
	:: else
	fi
}

/* agent/proof/verifier.go */
#define VERIFIES(m) (lease_by == m && !IS_BEHIND(m) && (lease_state == QUARANTINED || lease_state == CONFLICT))
#define AS_READ(m) (VERIFIES(m) && lease_version == asks[m])

/* agent/attachment/calls.go LockLease */
#ifdef MOVES_UNLOCKED
#define LOCKED(m) 0
#else
#define LOCKED(m) MOVING(m)
#endif

#define JUDGES(m, what) \
	:: d_step { ACTS(m) && AS_READ(m) && !judged[m] -> \
		said = asks[m]; luck = what; \
		judge(m); \
		if \
		:: SAFE -> judged[m] = 1 \
		:: !SAFE && lease_state == QUARANTINED -> ask(m) /* and again */ \
		:: else \
		fi }

proctype Verifier(byte m) {
end:	do
	:: d_step { ACTS(m) && VERIFIES(m) && asks[m] != lease_version && !LOCKED(m) ->
		asks[m] = lease_version; judged[m] = 0;
		if
		:: lease_state == QUARANTINED -> said = asks[m]; kill_speakers(m); ask(m)
		:: else /* nobody to claim against (R4) */
		fi }
	JUDGES(m, NOTHING_ARRIVES)
	JUDGES(m, CLAIMS_ARRIVE)
	JUDGES(m, ACKS_ARRIVE)
	JUDGES(m, SIGHTING_IS_FORGED)
	:: d_step { ACTS(m) && AS_READ(m) && judged[m] ->
		SEEN(FREED_BY_VERIFIER);
		asks[m] = 0; judged[m] = 0; set_free() }
	:: d_step { ACTS(m) && asks[m] && !AS_READ(m) && !IS_BEHIND(m) -> asks[m] = 0; judged[m] = 0 }
	od
}
