/*
 * A sandbox dies while its node does not reach the API server. The agent moves
 * the address to the next sandbox of the same pod, with the token that it has,
 * and the record names the old sandbox until the late write. A move reads
 * nothing from the API server, so it may come at any time.
 *
 * What a dead sandbox cannot do, its kernel does: it hears claims, and sends acks
 * while the slot lives.
 */

/* No verifier of this machine has killed the slot: that is a proof, by which the
 * address was perhaps freed, also without a claim. A DEL may have killed it. */
#define MAY_MOVE(m) (at[m] == BEREFT && !FENCED(m) && !taken[m])

#ifdef RAISES_TOKEN
#define MOVED_TOKEN(m) version
#else
#define MOVED_TOKEN(m) token[m]
#endif

#ifdef LATE_OVERWRITES
#define MAY_WRITE_LATE(m) (lease_state == BOUND && !FENCED(m))
#else
#define MAY_WRITE_LATE(m) MAY_GO_ON(m)
#endif

inline kill_old(m) {
	assert(P6_living_pod || !wanted[m] || !VOICE(m));
#ifdef SPARES_OLD
	spared[m] = 1;
#endif
	slot[m] = DEAD; at[m] = MOVE_KILLED
}

proctype Move(byte m) {
end:	do
	:: d_step { !ended && deaths < MOVES && at[m] == HOLDS -> deaths++; at[m] = BEREFT }

	/* ADD of the next sandbox. It has the lock of the lease until its answer. */
	:: d_step { ACTS(m) && MAY_MOVE(m) -> kill_old(m) }
#ifdef MOVES_TO_OTHER_POD
	:: d_step { ACTS(m) && at[m] == HOLDS && !FENCED(m) && !taken[m] -> kill_old(m) }
#endif
#ifdef MOVES_AFTER_BOOT
	:: d_step { ACTS(m) && at[m] == RELEASES && boot[m] -> kill_old(m) }
#endif
#ifdef MOVES_RELEASED /* a write whose answer was lost has freed it */
	:: d_step { ACTS(m) && at[m] == RELEASES && MORE_VERSIONS && HELD_BY(m) -> free_own(m) }
	:: d_step { ACTS(m) && at[m] == RELEASES && installed[m] -> kill_old(m) }
#endif
	:: d_step { ACTS(m) && at[m] == MOVE_KILLED ->
		slot[m] = ALIVE; said = MOVED_TOKEN(m); install(m); at[m] = MOVE_INSTALLED }
	:: d_step { ACTS(m) && at[m] == MOVE_INSTALLED -> claimed[m] = installed[m]; at[m] = MOVE_CLAIMED }
	/* 20 ms later (R10). The journal knows before the answer. */
	:: d_step { ACTS(m) && at[m] == MOVE_CLAIMED ->
		if
#ifndef MOVES_UNCONFIRMED
		:: FENCED(m) -> SEEN(NOT_MOVED); kill(m); at[m] = BEREFT
#endif
		:: else ->
			assert(P8_answered_unfenced || !FENCED(m));
			assert(P4_acked_is_fenced || !proven_dead[m] || slot[m] != ALIVE);
			SEEN(MOVED_ON);
			late[m] = 1; at[m] = MOVED
		fi }
	:: d_step { ACTS(m) && at[m] == MOVED -> at[m] = HOLDS } /* the old entry is gone */

	/* DEL of the old sandbox: it kills, and the next step, of which the journal knows,
	 * may free. After the move it releases nothing. */
	:: d_step { ACTS(m) && at[m] == BEREFT && slot[m] == ALIVE -> slot[m] = DEAD }
	:: d_step { ACTS(m) && at[m] == BEREFT && slot[m] == DEAD -> at[m] = RELEASES }
#ifdef OLD_DEL_FREES
	:: d_step { ACTS(m) && late[m] && HOLDING(m) && MORE_VERSIONS -> free_own(m) }
#endif

	/* The API server answers, and a GET by name decides (R7). What is lost is agent.pml's. */
	:: d_step { ACTS(m) && at[m] == HOLDS && late[m] && MAY_WRITE_LATE(m) && MORE_VERSIONS ->
		assert(P3_proven || lease_by == m || !VOICE(lease_by));
		bind(m); at[m] = LATE_WRITTEN }
	:: d_step { ACTS(m) && at[m] == LATE_WRITTEN ->
		if
#ifndef LATE_ONE_LOOK
		:: FENCED(m) -> kill(m); at[m] = RELEASES /* a claim came after the decision */
#endif
		:: else -> SEEN(WRITTEN_LATE); said = token[m]; install(m); claimed[m] = installed[m]; at[m] = HOLDS
		fi }
	od
}
