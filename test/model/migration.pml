/*
 * A live migration (R15): the virtual machine of machine 0 goes on in a pod of
 * another machine. Its ADD is answered with the address, and stands behind the
 * source: agent/recovery/regain.go, agent/lease/behind.go TurnOf,
 * controller/reclaim/migration.go.
 */
#define IS_BEHIND(m) (at[m] == BEHIND || at[m] == TURN || at[m] == PROVES_TURN || at[m] == PROVEN_TURN)

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

/* Until there is proof, the address is not installed: the target stays mute. */
#define TURN_PROVED_BY(m, what) \
	:: d_step { ACTS(m) && at[m] == PROVES_TURN && HELD_BY(m) -> \
		said = token[m]; luck = what; judge(m); \
		if \
		:: SAFE -> at[m] = PROVEN_TURN \
		:: else -> ask(m) /* and again */ \
		fi }

proctype Target(byte m) {
end:	do
	:: d_step { MAY_ADD(m) && lease_state == BOUND && lease_by == 0 && wanted[0] && at[0] == HOLDS ->
		slot[m] = ALIVE; wanted[m] = 1; at[m] = BEHIND }
	:: d_step { ACTS(m) && at[m] == BEHIND && lease_state == QUARANTINED && lease_by == m && MORE_VERSIONS ->
		bind(m); at[m] = TURN }
	:: d_step { ACTS(m) && at[m] == TURN -> said = token[m]; ask(m); at[m] = PROVES_TURN }
	TURN_PROVED_BY(m, NOTHING_ARRIVES)
	TURN_PROVED_BY(m, CLAIMS_ARRIVE)
	TURN_PROVED_BY(m, ACKS_ARRIVE)
	:: d_step { ACTS(m) && at[m] == PROVEN_TURN && HELD_BY(m) && slot[m] == ALIVE ->
		SEEN(MIGRATED);
		assert(P9_source_is_paused || paused[0] || !wanted[0] || at[0] != HOLDS);
		none_before(); said = token[m]; install(m); claimed[m] = installed[m]; at[m] = HOLDS }
	/* DEL, or the address has gone to somebody else. */
	:: d_step { ACTS(m) && IS_BEHIND(m) && (!wanted[m] || at[m] == BEHIND && lease_state == FREE || at[m] != BEHIND && !HELD_BY(m)) ->
		kill(m); at[m] = RELEASES }
	od
}
