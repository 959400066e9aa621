/*
 * A fence that was not meant: the record is the fenced holder's own. A copy of
 * the cluster sent the claim, or a person with the key, or a pod whose record
 * the store lost. The token is renewed, and the holder speaks again once nobody
 * else is proven to: agent/lease/renewal.go, agent/recovery/renewal.go,
 * agent/holder/renewal.go.
 */
#define OTHER_ON_AIR(m) (ON_AIR(0, m) || ON_AIR(1, m) || ON_AIR(2, m))

#define STRAY_FOR(m) \
	:: d_step { !ended && strays < STRAYS && HOLDING(m) && slot[m] == ALIVE && HEARS(m) -> strays++; greatest[m] = STRAY }

proctype Strangers() {
end:	do
	STRAY_FOR(0)
	STRAY_FOR(1)
	STRAY_FOR(2)
	od
}

#ifdef RENEWS_BLINDLY
#define PROVES_RENEWAL(m) verdict = IS_SILENT
#else
#define PROVES_RENEWAL(m) judge(m)
#endif

#define RENEWED_BY(m, what) \
	:: d_step { ACTS(m) && at[m] == RENEWS && HELD_BY(m) && lease_version == token[m] -> \
		said = token[m]; luck = what; PROVES_RENEWAL(m); \
		if \
		:: SAFE -> \
			if \
			:: greatest[m] == STRAY -> greatest[m] = 0 /* disproved */ \
			:: else \
			fi; \
			unproven[m] = 0; at[m] = HOLDS; \
			if \
			:: !FENCED(m) -> SEEN(RENEWED); claimed[m] = installed[m]; assert(P4_acked_is_fenced || !OTHER_ON_AIR(m)) \
			:: else \
			fi \
		:: else -> at[m] = HOLDS /* and again */ \
		fi }

proctype Renewal(byte m) {
end:	do
	:: d_step { ACTS(m) && at[m] == HOLDS && MAY_RENEW(m) && MORE_VERSIONS ->
		bind(m); said = token[m]; installed[m] = said; unproven[m] = 1; ask(m); at[m] = RENEWS }
	RENEWED_BY(m, NOTHING_ARRIVES)
	RENEWED_BY(m, CLAIMS_ARRIVE)
	:: d_step { ACTS(m) && at[m] == RENEWS && (!HELD_BY(m) || lease_version != token[m]) -> at[m] = HOLDS }
	od
}
