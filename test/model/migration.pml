/*
 * A live migration (R15): the virtual machine of machine 0 goes on in a pod of
 * another machine. Its ADD is answered with the address, and stands behind the
 * source: agent/recovery/regain.go, agent/lease/behind.go TurnOf,
 * controller/reclaim/migration.go.
 */
#ifdef HANDS_OVER_EARLY
#define HANDS_OVER(s) 1
#else
#define HANDS_OVER(s) paused[s]
#endif

#define HANDED_TO(m) \
	:: d_step { !ended && MORE_VERSIONS && runs[m] && lease_state == BOUND && lease_by == 0 && at[m] == BEHIND && HANDS_OVER(0) -> \
		set_aside(0); lease_by = m }

/* The hypervisor pauses the source for good before the machine runs in the target.
 * KubeVirt says so, and the controller hands the address over. */
proctype Migration() {
end:	do
	:: d_step { !ended && !paused[0] && at[0] == HOLDS && (at[1] == BEHIND || at[2] == BEHIND) -> paused[0] = 1 }
	HANDED_TO(1)
	HANDED_TO(2)
	od
}

#define HANDED_AS_READ(m) (lease_state == QUARANTINED && lease_by == m && lease_version == asks[m])
/* Edits by others do not matter, nor does another verifier that had it meanwhile: agent/lease/store.go sameHands. */
#ifdef TAKES_TURN_UNREAD
#define MAY_WRITE_TURN(m) 1
#else
#define MAY_WRITE_TURN(m) (lease_state == QUARANTINED && lease_by == m)
#endif

/* The claim has the token of the lease as it was handed over, like a verifier's. Until there is proof, and the lease
 * is bound by one write, the address is not installed: the target stays mute. */
#define TURN_PROVED_BY(m, what) \
	:: d_step { ACTS(m) && at[m] == PROVES_TURN && HANDED_AS_READ(m) -> \
		said = asks[m]; luck = what; judge(m); \
		if \
		:: SAFE -> at[m] = PROVEN_TURN \
		:: else -> asks[m] = 0; at[m] = BEHIND /* and again */ \
		fi }

proctype Target(byte m) {
end:	do
	:: d_step { MAY_ADD(m) && lease_state == BOUND && lease_by == 0 && wanted[0] && at[0] == HOLDS ->
		slot[m] = ALIVE; wanted[m] = 1; at[m] = BEHIND }
	:: d_step { ACTS(m) && at[m] == BEHIND && lease_state == QUARANTINED && lease_by == m ->
		asks[m] = lease_version; said = asks[m]; ask(m); at[m] = PROVES_TURN }
	TURN_PROVED_BY(m, NOTHING_ARRIVES)
	TURN_PROVED_BY(m, CLAIMS_ARRIVE)
	TURN_PROVED_BY(m, ACKS_ARRIVE)
	:: d_step { ACTS(m) && at[m] == PROVEN_TURN && MORE_VERSIONS && MAY_WRITE_TURN(m) ->
		bind(m); none_before(); asks[m] = 0; at[m] = TURN }
	:: d_step { ACTS(m) && (at[m] == PROVES_TURN || at[m] == PROVEN_TURN) && !HANDED_AS_READ(m) ->
		asks[m] = 0; at[m] = BEHIND }
	:: d_step { ACTS(m) && at[m] == TURN && HELD_BY(m) && slot[m] == ALIVE ->
		SEEN(MIGRATED);
		assert(P9_source_is_paused || paused[0] || !wanted[0] || at[0] != HOLDS);
		assert(P3_proven || links || !OTHER_VOICE(m));
		said = token[m]; install(m); claimed[m] = installed[m]; at[m] = HOLDS }
	/* DEL, or the address has gone to somebody else. */
	:: d_step { ACTS(m) && IS_BEHIND(m) && (!wanted[m] || at[m] == BEHIND && lease_state == FREE || at[m] == TURN && !HELD_BY(m)) ->
		kill(m); asks[m] = 0; at[m] = RELEASES }
	od
}
