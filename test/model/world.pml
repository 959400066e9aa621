/* The controller, people, and what breaks. */

/*
 * controller/reclaim: what was judged is written with its version, and a pod
 * that is not wanted never is again, so that looking and writing are one step
 * however old the view is (R11, R12).
 */
#define VERIFIED_BY(v) \
	:: d_step { !ended && MORE_VERSIONS && runs[v] && lease_state == BOUND && !wanted[lease_by] -> \
		set_aside(lease_by); lease_by = v } \
	:: d_step { !ended && MORE_VERSIONS && runs[v] && lease_state == QUARANTINED && lease_by != v -> \
		SEEN(REASSIGNED); lease_by = v; NEXT_VERSION }

proctype Controller() {
end:	do
	VERIFIED_BY(0)
	VERIFIED_BY(1)
	VERIFIED_BY(2)
	/* The machine of the last holder is off, and Kubernetes or a person says so. */
	:: d_step { !ended && MORE_VERSIONS && lease_state == QUARANTINED && !asserted && previous_boot != boot[previous] ->
		asserted = 1; NEXT_VERSION }
	od
}

#define HAS_POD(m) (at[m] != IDLE && at[m] != DONE)

/* restore.go: what the journal says after a restart. */
inline restart(m) {
	runs[m] = 1;
	if
#ifdef OLD_ENTRY_WINS /* and is released, since its interface is gone */
	:: at[m] == MOVED -> free_own(m)
#endif
	:: MOVING(m) -> /* the new sandbox is undone, the old entry stays Bound */
		assert(P6_living_pod || !VOICE(m));
		kill(m); at[m] = BEREFT
	:: HOLDING(m) && !MOVING(m) -> said = installed[m]; install(m);
		if
		:: RENEWING(m) -> at[m] = HOLDS
		:: else
		fi
	:: at[m] == PROVES_TURN || at[m] == PROVEN_TURN -> at[m] = BEHIND
	:: !HOLDING(m) && HAS_POD(m) && !IS_BEHIND(m) && !MUTE_SINCE_DEATH(m) -> kill(m); at[m] = RELEASES
	:: else
	fi
}

/* Crash points, one for each step of ADD, DEL and the resume. */
#define CRASH(m) CRASHED + at[m]

#if MUTES
#define GOES_MUTE(m) \
	:: d_step { !ended && links < LINKS && !mute[m] -> links++; mute[m] = 1 } \
	:: d_step { !ended && mute[m] -> mute[m] = 0 }
#else
#define GOES_MUTE(m)
#endif

#define HAPPENS_TO(m) \
	:: d_step { !ended && wanted[m] && at[m] != RELEASES -> wanted[m] = 0 } \
	:: d_step { !ended && links < LINKS && up[m] -> links++; up[m] = 0 } \
	:: d_step { !ended && !up[m] -> up[m] = 1 } \
	:: d_step { !ended && links < LINKS && !deaf[m] -> links++; deaf[m] = 1 } \
	:: d_step { !ended && deaf[m] -> deaf[m] = 0 } \
	GOES_MUTE(m) \
	:: d_step { !ended && crashes < CRASHES && runs[m] && (HAS_POD(m) || asks[m]) -> \
		SEEN(CRASH(m)); crashes++; runs[m] = 0; asks[m] = 0; judged[m] = 0 } \
	:: d_step { !ended && !runs[m] -> restart(m) } \
	:: d_step { !ended && lives < LIVES && HAS_POD(m) && boot[m] == 0 -> \
		lives++; boot[m] = 1; runs[m] = 0; asks[m] = 0; judged[m] = 0; claimed[m] = 0; \
		slot[m] = NONE; installed[m] = 0; greatest[m] = 0; prove(m); at[m] = RELEASES }

proctype Faults() {
end:	do
	HAPPENS_TO(0)
	HAPPENS_TO(1)
	HAPPENS_TO(2)
	/* Somebody deletes the lease of a pod that runs. */
	:: d_step { !ended && deletions < DELETIONS && lease_state == BOUND && (at[lease_by] == HOLDS || at[lease_by] == BEREFT) && wanted[lease_by] ->
		deletions++; set_free() }
	/* A machine registers under the name of the first, which is cut off and lives. */
	:: d_step { !ended && lives < LIVES && !renamed && at[2] == IDLE && HAS_POD(0) -> lives++; renamed = 1 }
	od
}
