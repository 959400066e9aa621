/*
 * Lease, claim, ack and token: the protocol of docs/design.md for one address
 * on three machines. docs/model.md says what is left out, what the properties
 * say, and which code each part stands for.
 *
 * Every action is one d_step: what one call to the API server, one frame or one
 * update of a map does at once. Between two of them anything may come.
 */
#define ACTS(m) (!ended && runs[m])

#include "situations.pml"
#include "state.pml"
#include "lease.pml"
#include "kernel.pml"
#include "verify.pml"
#include "agent.pml"
#if MIGRATIONS
#include "migration.pml"
#else
#define IS_BEHIND(m) 0
#endif
#if RENEWALS
#include "renewal.pml"
#endif
#if MOVES
#include "move.pml"
#endif
#include "world.pml"
#include "backup.pml"
#include "settle.pml"

/* A pod of machine 0 was given the address long ago; 1 and 2 are empty. */
init {
	d_step {
		lease_state = BOUND; lease_by = 0; lease_version = 1; version = 1; previous = NOBODY;
		slot[0] = ALIVE; installed[0] = 1; token[0] = 1; claimed[0] = 1; wanted[0] = 1; at[0] = HOLDS;
		up[0] = 1; up[1] = 1; up[2] = 1;
		runs[0] = 1; runs[1] = 1; runs[2] = 1;
	}
	atomic {
		run Agent(0); run Agent(1); run Agent(2);
		run Verifier(0); run Verifier(1); run Verifier(2);
		run Wire(0); run Wire(1); run Wire(2);
#if MIGRATIONS
		run Migration(); run Target(1); run Target(2);
#endif
#if RENEWALS
		run Renewal(0); run Renewal(1); run Renewal(2); run Strangers();
#endif
#if MOVES
		run Move(0); run Move(1); run Move(2);
#endif
		run Controller(); run Faults(); run Backup(); run Settle();
	}
}
