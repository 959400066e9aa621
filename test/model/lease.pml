/* Transitions of the record: agent/lease/transition.go, controller/reclaim/quarantine.go. */

#define begin_anew(m) late[m] = 0; proven_dead[m] = 0
#define forget_end(m) late[m] = 0; proven_dead[m] = 0; taken[m] = 0; spared[m] = 0
#define note_end(m) proven_dead[m] = (MOVES > 0)

inline bind(m) {
	NEXT_VERSION;
	lease_state = BOUND; lease_by = m; lease_boot = boot[m]; token[m] = version; begin_anew(m)
}

inline none_before() { previous = NOBODY; previous_token = 0; previous_boot = 0; asserted = 0; conflict = 0 }

inline set_free() {
	lease_state = FREE; lease_by = NOBODY; lease_boot = 0; lease_version = 0;
	none_before()
}

inline set_aside(m) {
	if
	:: previous == NOBODY -> previous = m; previous_token = lease_version; previous_boot = lease_boot
	:: else /* it was never proven safe, and stays */
	fi;
	lease_state = QUARANTINED; lease_boot = 0; NEXT_VERSION
}
