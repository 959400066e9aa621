/*
 * A fence that was not meant: the record is the fenced holder's own. A copy of
 * the cluster sent the claim, or a person with the key, or a pod whose record
 * the store lost. The token is renewed, and the holder speaks again once nobody
 * else is proven to: agent/lease/wentback.go, agent/recovery/renewal.go,
 * agent/recovery/regain.go.
 */
#define OTHER_ON_AIR(m) (ON_AIR(0, m) || ON_AIR(1, m) || ON_AIR(2, m))

/* Each of the tokens VERSIONS + 1 and VERSIONS + 2 is a bit of disproved. */
#define STRAY_FOR(m, bit) \
	:: d_step { !ended && strays < STRAYS && HOLDING(m) && slot[m] == ALIVE && HEARS(m) && \
		!(IGNORED(m) & bit) && greatest[m] < VERSIONS + bit -> \
		strays++; assert(P10_muted_once || !(disproved[m] & bit)); greatest[m] = VERSIONS + bit }

#ifdef ONE_DISPROVED
byte last_disproved[MACHINES];
#define IGNORED(m) last_disproved[m]
#else
#define IGNORED(m) disproved[m]
#endif

proctype Strangers() {
end:	do
	STRAY_FOR(0, 1)
	STRAY_FOR(1, 1)
	STRAY_FOR(2, 1)
#if STRAYS > 1
	STRAY_FOR(0, 2)
	STRAY_FOR(1, 2)
	STRAY_FOR(2, 2)
#endif
	od
}

#ifdef RENEWS_BLINDLY
#define PROVES_RENEWAL(m) verdict = IS_SILENT
#else
#define PROVES_RENEWAL(m) judge(m)
#endif

/* The lease is read again after the proof: it may have been taken meanwhile. */
#ifdef RENEWS_UNREAD
#define IS_AS_RENEWED(m) 1
#else
#define IS_AS_RENEWED(m) (HELD_BY(m) && lease_version == token[m])
#endif

/* A token that the store never gave counts for nothing. The kernel knows it
 * before the proof, since it stores only a greater claim otherwise. */
inline disprove(m) {
	if
	:: IS_STRAY(greatest[m]) ->
		disproved[m] = disproved[m] | (greatest[m] - VERSIONS);
#ifdef ONE_DISPROVED
		last_disproved[m] = greatest[m] - VERSIONS;
#endif
		greatest[m] = 0
	:: else
	fi
}

#define RENEWAL_PROVED_BY(m, what) \
	:: d_step { ACTS(m) && at[m] == RENEWS && HELD_BY(m) && lease_version == token[m] -> \
		said = token[m]; luck = what; PROVES_RENEWAL(m); \
		assert(P4_acked_is_fenced || !SAFE || !OTHER_ON_AIR(m)); \
		at[m] = (SAFE -> RENEWAL_PROVEN : HOLDS) /* and again */ }

proctype Renewal(byte m) {
end:	do
	:: d_step { ACTS(m) && at[m] == HOLDS && MAY_RENEW(m) && MORE_VERSIONS -> bind(m); at[m] = RENEWAL_WRITTEN }
	:: d_step { ACTS(m) && at[m] == RENEWAL_WRITTEN ->
		said = token[m]; installed[m] = said; unproven[m] = 1;
		disprove(m);
		ask(m); at[m] = RENEWS }
	RENEWAL_PROVED_BY(m, NOTHING_ARRIVES)
	RENEWAL_PROVED_BY(m, CLAIMS_ARRIVE)
	:: d_step { ACTS(m) && at[m] == RENEWS && (!HELD_BY(m) || lease_version != token[m]) -> at[m] = HOLDS }
	:: d_step { ACTS(m) && at[m] == RENEWAL_PROVEN ->
		at[m] = HOLDS;
		if
		:: IS_AS_RENEWED(m) && slot[m] == ALIVE ->
			unproven[m] = 0;
			if
			:: !FENCED(m) -> SEEN(RENEWED); claimed[m] = installed[m];
				assert(P7_record || HELD_BY(m))
			:: else
			fi
		:: else
		fi }
	od
}
