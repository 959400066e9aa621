/*
 * The agent and what the runtime asks of it: agent/holder, agent/recovery.
 *
 * No step has to be taken. An agent that stalls or cannot reach the API server
 * is one that does not take the steps that need it, for as long as it pleases:
 * all these runs are explored.
 */

/* ADD, from free: free.go create, prove. */
#define MAY_ADD(m) (ACTS(m) && at[m] == IDLE && (m == 1 || at[1] != IDLE)) /* 1 and 2 are alike */

/* What a GET by name finds: agent/lease/resume.go (R7). */
#define LOST(m) (lease_state == FREE)
#define FOUND_OUR_POD(m) (lease_state == CONFLICT && conflict == m)
#ifdef WITHOUT_R7_FENCED
#ifndef ONE_LOOK
#define ONE_LOOK
#endif
#define MAY_RECREATE(m) (wanted[m] && (LOST(m) || FOUND_OUR_POD(m)))
#else
#define MAY_RECREATE(m) (wanted[m] && !FENCED(m) && (LOST(m) || FOUND_OUR_POD(m)))
#endif
#define MAY_GO_ON(m) (HELD_BY(m) && lease_boot == boot[m] && !FENCED(m))

#if RENEWALS
#define IS_STRAY(t) (t > VERSIONS) /* a token that the store never gives */
#define MAY_RENEW(m) (HELD_BY(m) && lease_boot == boot[m] && FENCED(m) && wanted[m] && slot[m] == ALIVE && \
	(greatest[m] <= version || IS_STRAY(greatest[m])))
#else
#define MAY_RENEW(m) 0
#endif

/* The entry leaves the journal, its device the machine, and the sweep takes the rest. */
inline give_up(m) {
	at[m] = DONE; token[m] = 0; wanted[m] = 0; claimed[m] = 0;
	slot[m] = NONE; installed[m] = 0; greatest[m] = 0; prove(m); forget_end(m)
}

/* release.go freeAddress, end */
inline free_own(m) {
	if
	:: HELD_BY(m) && (previous != NOBODY || lease_boot != boot[m]) -> SEEN(SESSION_ENDED); set_aside(m)
	:: HELD_BY(m) && previous == NOBODY && lease_boot == boot[m] ->
		assert(P3_proven || !VOICE(m) && !spared[m]);
		note_end(m);
		set_free()
	:: else
	fi
}

/* Where the lease was taken again meanwhile, whatever it finds: Confirm will tell. */
#define PROVED_BY(m, what) \
	:: d_step { ACTS(m) && at[m] == PROVES -> \
		if \
		:: HELD_BY(m) -> said = token[m]; luck = what; judge(m) \
		:: else -> verdict = IS_UNKNOWN \
		fi; \
		if \
		:: SAFE -> at[m] = PROVEN \
		:: else -> kill(m); at[m] = RELEASES \
		fi }

proctype Agent(byte m) {
end:	do
	:: d_step { MAY_ADD(m) && lease_state == FREE && MORE_VERSIONS ->
		none_before(); bind(m); slot[m] = ALIVE; wanted[m] = 1; at[m] = CREATED }
	:: d_step { ACTS(m) && at[m] == CREATED && MORE_VERSIONS ->
		said = token[m]; install(m);
		if
#ifndef WITHOUT_R4
		:: ANSWERED(m) ->
			SEEN(ADD_ANSWERED);
			if
			:: HELD_BY(m) ->
				lease_state = CONFLICT; lease_boot = 0; NEXT_VERSION;
				conflict = (ANSWERS(0, m) -> 0 : (ANSWERS(1, m) -> 1 : 2))
			:: else
			fi;
			give_up(m)
#endif
		:: else -> claimed[m] = installed[m]; at[m] = CLAIMED
		fi }
	/* 20 ms later, or when the agent gets to it: agent/segment/claim.go (R10), agent/holder/add.go stillBound. */
	:: d_step { ACTS(m) && at[m] == CLAIMED ->
		if
#ifndef WITHOUT_R10
		:: FENCED(m) -> SEEN(NOT_CONFIRMED); kill(m); at[m] = RELEASES
#endif
#ifndef STALLED_ADD
		:: !HELD_BY(m) -> kill(m); at[m] = RELEASES /* taken from it while it stalled */
#endif
		:: else ->
			assert(P8_answered_unfenced || !FENCED(m));
#ifndef SPARES_INTENT /* which shows what else ends an ADD that does not look */
			assert(P3_proven || HELD_BY(m));
#endif
			SEEN(ADD_FROM_FREE);
			at[m] = HOLDS
		fi }

	/* ADD of a pod that keeps its name: keep.go take. */
	:: d_step { MAY_ADD(m) && lease_state == QUARANTINED && MORE_VERSIONS ->
		bind(m); slot[m] = ALIVE; wanted[m] = 1; at[m] = TAKEN }
	:: d_step { ACTS(m) && at[m] == TAKEN ->
		said = token[m]; install(m); ask(m); at[m] = PROVES }
	PROVED_BY(m, NOTHING_ARRIVES)
	PROVED_BY(m, CLAIMS_ARRIVE)
	PROVED_BY(m, ACKS_ARRIVE)
	:: d_step { ACTS(m) && at[m] == PROVEN ->
		if
		:: HELD_BY(m) && !FENCED(m) && slot[m] == ALIVE ->
			SEEN(ADD_TAKEN_OVER);
			none_before(); claimed[m] = installed[m]; at[m] = HOLDS
		:: else -> kill(m); at[m] = RELEASES
		fi }

	/* DEL: release.go fence, free (R6). */
#ifdef WITHOUT_R6
	:: d_step { ACTS(m) && at[m] == HOLDS && !wanted[m] -> at[m] = UNFENCED }
	:: d_step { ACTS(m) && at[m] == UNFENCED -> free_own(m); kill(m); at[m] = RELEASES }
#else
	:: d_step { ACTS(m) && at[m] == HOLDS && !wanted[m] -> kill(m); at[m] = RELEASES }
#endif
	:: d_step { ACTS(m) && at[m] == RELEASES && MORE_VERSIONS ->
		if
#ifdef KEEPS_LATE
		:: late[m]
#endif
		:: else -> free_own(m)
		fi;
		assert(P11_let_go || !HELD_BY(m));
		give_up(m) }

	/* A GET by name decides: resume.go resumeAddress, rebind.go (R7). */
#ifndef WITHOUT_R7_GET
	:: d_step { ACTS(m) && at[m] == HOLDS && !MAY_GO_ON(m) && !MAY_RECREATE(m) && !MAY_RENEW(m) ->
		SEEN(YIELDED);
		if
		:: late[m] && lease_state == QUARANTINED -> SEEN(MOVED_QUARANTINED)
		:: else
		fi;
		kill(m); at[m] = RELEASES }
#endif
	:: d_step { ACTS(m) && at[m] == HOLDS && MAY_RECREATE(m) -> at[m] = RECREATES }
	:: d_step { ACTS(m) && at[m] == RECREATES && MORE_VERSIONS ->
		if
		:: LOST(m) || FOUND_OUR_POD(m) ->
			SEEN(LEASE_RECREATED);
			none_before(); bind(m); at[m] = RECREATED
		:: else -> at[m] = HOLDS /* outrun */
		fi }
	:: d_step { ACTS(m) && at[m] == RECREATED ->
		if
#ifndef ONE_LOOK
		:: FENCED(m) -> kill(m); at[m] = RELEASES /* a claim came after the decision */
#endif
		:: else -> said = token[m]; install(m); claimed[m] = installed[m]; at[m] = HOLDS
		fi }
	od
}
