/* What the programs in bpf/ do, and what the wire does to frames. */

/* A killed slot, or the next lease, is not unproven. */
#if RENEWALS
#define prove(m) unproven[m] = 0; disproved[m] = 0
#else
#define prove(m) skip
#endif

inline kill(m) {
	if
	:: slot[m] == ALIVE -> slot[m] = DEAD; greatest[m] = (KEEPS_CLAIMS(m) -> greatest[m] : 0); prove(m)
	:: else
	fi
}

/* agent/release/kill.go KillSpeakers */
inline kill_speakers(m) {
	if
#ifdef SPARES_INTENT
	:: installed[m] == 0 /* has not spoken yet */
#endif
	:: else ->
		kill(m);
#ifndef TAKES_UNWRITTEN
		taken[m] = (MOVES && at[m] != IDLE && at[m] != RELEASES && at[m] != DONE)
#endif
	fi
}

/* An ADD that stalls before its probe can be named as predecessor: open. */
#ifdef CLAIMED_UNPROBED
#define BY_VERIFIER 0
#else
#define BY_VERIFIER (said == asked)
#endif

/* bpf/src/fence.h fence_raise: a newer claim fences. */
inline raise(m) {
	if
#ifdef ANY_CLAIM_FENCES
	:: slot[m] == ALIVE && installed[m] && said < installed[m] -> greatest[m] = VERSIONS
#endif
#ifdef DISPROVES_LESSER
	:: disproved[m]
#endif
#ifdef NO_CLAIM_FENCES
	:: slot[m] == ALIVE
#endif
	:: (slot[m] == ALIVE || KEEPS_CLAIMS(m)) && installed[m] && said > installed[m] && said > greatest[m] ->
		SEEN(FENCE_BY_CLAIM);
		assert(P6_living_pod || m != 0 || !wanted[0] || PAUSED(0) || links || FENCED(m) || UNDEFENDED(m) || BY_VERIFIER);
		greatest[m] = said
	:: else
	fi
}

/* bpf/src/ingress.h ingress_claim, and agent/segment/defence.go: somebody's claim arrives. */
inline hear_claim(m) {
	raise(m);
	if
	:: runs[m] && HOLDING(m) && VOICE(m) && said < installed[m] ->
		SEEN(DEFENCE);
		claimed[m] = installed[m]
	:: else
	fi
}

/* bpf/lease.go Leases.Install: only a newer token, and the greatest claim stays (R9). */
inline install(m) {
	before = FENCED(m);
	if
	:: said > installed[m] -> installed[m] = said
	:: else
	fi;
#ifdef WITHOUT_R9
	greatest[m] = 0;
#endif
	/* Who was fenced gets its voice back only where nobody else has one. */
	assert(P4_acked_is_fenced || !before || !VOICE(m) || !OTHER_VOICE(m))
}

/* A frame needs both links when it arrives. */
#define CLAIM_OF(s) \
	:: d_step { !ended && s != m && claimed[s] && SENDS(s) && HEARS(m) -> said = claimed[s]; hear_claim(m) }

proctype Wire(byte m) {
end:	do
	CLAIM_OF(0)
	CLAIM_OF(1)
	CLAIM_OF(2)
	:: d_step { !ended && asked && asked_by != m && SENDS(asked_by) && HEARS(m) -> said = asked; hear_claim(m) }
	od
}
