/*
 * etcd is restored from a backup: record and pods are what they were then, while
 * kernels, journals and the wire go on. With --bump-revision the store's next
 * version is above all that were ever given; WITHOUT_BUMP it gives some again.
 */
#define NOT_YET 2 /* there was no pod */

byte saved_state, saved_version, saved_by, saved_previous, saved_previous_token, saved_conflict;
bit saved_boot, saved_previous_boot, saved_asserted;
byte saved_store;            /* the store's version */
byte saved_wanted[MACHINES];
bit saved;

#define SAVED_POD(m) (at[m] == IDLE -> NOT_YET : wanted[m])

inline back_up() {
	saved = 1; saved_store = version;
	saved_state = lease_state; saved_version = lease_version; saved_by = lease_by; saved_boot = lease_boot;
	saved_previous = previous; saved_previous_token = previous_token; saved_previous_boot = previous_boot; saved_asserted = asserted; saved_conflict = conflict;
	saved_wanted[0] = SAVED_POD(0); saved_wanted[1] = SAVED_POD(1); saved_wanted[2] = SAVED_POD(2)
}

inline forget_backup() {
	saved = 0; saved_store = 0;
	saved_state = 0; saved_version = 0; saved_by = 0; saved_boot = 0;
	saved_previous = 0; saved_previous_token = 0; saved_previous_boot = 0; saved_asserted = 0; saved_conflict = 0;
	saved_wanted[0] = 0; saved_wanted[1] = 0; saved_wanted[2] = 0
}

/* A pod's object is older than its lease: one that had no lease yet may have been there. */
#define RESTORED_POD(m, there) (saved_wanted[m] == NOT_YET -> (there && wanted[m]) : saved_wanted[m])

/* Keys keep the versions that they have in the backup: etcdutl raises the next one. */
#define RESTORED(there) \
	:: d_step { !ended && saved -> \
		SEEN(STORE_WENT_BACK); \
		restores++; \
		lease_state = saved_state; lease_version = saved_version; lease_by = saved_by; lease_boot = saved_boot; \
		previous = saved_previous; previous_token = saved_previous_token; previous_boot = saved_previous_boot; asserted = saved_asserted; conflict = saved_conflict; \
		wanted[0] = RESTORED_POD(0, there); wanted[1] = RESTORED_POD(1, there); wanted[2] = RESTORED_POD(2, there); \
		version = (BUMPED -> version : saved_store); \
		forget_backup() }

#ifdef WITHOUT_BUMP
#define BUMPED 0
#else
#define BUMPED 1
#endif

proctype Backup() {
end:	do
	:: d_step { !ended && !saved && restores < RESTORES -> back_up() }
	RESTORED(0)
	RESTORED(1)
	od
}
