/*
 * The judge. At any moment the underlay heals, agents come back, and every
 * holder repeats its claim once (R3), which all who hear do hear. What is left
 * then must be right. Deaf links stay deaf. Nobody needs the API server for it;
 * who still speaks without right asks it afterwards.
 */
inline all_hear(s) {
	other = 0;
	do
	:: other < MACHINES ->
		if
		:: other != s && HEARS(other) -> hear_claim(other)
		:: else
		fi;
		other++
	:: else -> break
	od
}

/* One state for all that is over. */
inline wipe() {
	set_free(); forget_backup();
	version = 0; links = 0; crashes = 0; lives = 0; deletions = 0; renamed = 0; restores = 0; deaths = 0; asked = 0; asked_by = 0; m = 0;
#if RENEWALS
	strays = 0; unproven[0] = 0; unproven[1] = 0; unproven[2] = 0; disproved[0] = 0; disproved[1] = 0; disproved[2] = 0;
#endif
#if MIGRATIONS
	paused[0] = 0; paused[1] = 0; paused[2] = 0;
#endif
	do
	:: m < MACHINES ->
		slot[m] = NONE; installed[m] = 0; greatest[m] = 0; boot[m] = 0;
		at[m] = IDLE; token[m] = 0; runs[m] = 0; wanted[m] = 0; asks[m] = 0; judged[m] = 0;
		claimed[m] = 0; up[m] = 0; deaf[m] = 0; forget_end(m);
#if MUTES
		mute[m] = 0;
#endif
		m++
	:: else -> break
	od;
	m = 0
}

/* Who got the address after the backup answers until it asks, too. */
#define LATER_POD restores

proctype Settle() {
	byte m;
end:	do
	:: d_step { !ended ->
		ended = 1; seen = 1;
		up[0] = 1; up[1] = 1; up[2] = 1;
#if MUTES
		mute[0] = 0; mute[1] = 0; mute[2] = 0;
#endif
		best = 0; count = 0; m = 0;
		do
		:: m < MACHINES ->
			if
			:: !runs[m] -> restart(m)
			:: else
			fi;
			if
			:: VOICE(m) -> count++; best = (installed[m] > best -> installed[m] : best)
			:: else
			fi;
			m++
		:: else -> break
		od;
		seen = 0;
		if
		:: count > 1 -> SEEN(HEALED_WITH_TWO)
		:: else
		fi;
		seen = 1;
#ifndef WITHOUT_R3
		m = 0;
		do
		:: m < MACHINES ->
			if
			:: VOICE(m) -> said = installed[m]; all_hear(m)
			:: else
			fi;
			m++
		:: else -> break
		od;
#endif
		count = 0; before = 0; m = 0;
		do
		:: m < MACHINES ->
			count = count + (VOICE(m) && HEARS(m));
			before = before || (VOICE(m) && installed[m] == best);
			m++
		:: else -> break
		od;
		assert(P1_one_speaker || count <= 1);
		assert(P2_greater_token_wins || best == 0 || before);

		/* A verifier that others can be heard by comes to an end. */
		if
		:: lease_state == QUARANTINED && HEARS(lease_by) ->
			m = lease_by; said = lease_version; asked = said; asked_by = m;
			kill(m);
			all_hear(m);
			luck = ACKS_ARRIVE; judge(m);
			assert(P5_not_stuck || SAFE || !MAY_HAVE_HEARD(m) || installed[m] != 0 || verdict == IS_ANSWERED && LATER_POD)
		:: else
		fi;

		/* Who can ask the API server, asks (R7). */
		m = 0;
		do
		:: m < MACHINES ->
#ifndef WITHOUT_R7_GET
			if
			:: HOLDING(m) && !MAY_GO_ON(m) && !MAY_RECREATE(m) && !MAY_RENEW(m) -> kill(m)
			:: else
			fi;
#endif
			assert(P7_record || !HOLDING(m) || !VOICE(m) || HELD_BY(m) || MAY_RECREATE(m));
			m++
		:: else -> break
		od;
		seen = 0;
		wipe() }
	od
}
