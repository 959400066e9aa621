/* Situations that must be reachable, or the properties would say nothing. */
#define FENCE_BY_CLAIM 1
#define DEFENCE 2
#define ACK_HEARD 3
#define SILENT_BET 4
#define ACK_LOST 5
#define FREED_BY_VERIFIER 6
#define SESSION_ENDED 7
#define ADD_ANSWERED 8
#define NOT_CONFIRMED 9
#define ADD_FROM_FREE 10
#define ADD_TAKEN_OVER 11
#define YIELDED 12
#define LEASE_RECREATED 13
#define REASSIGNED 14
#define HEALED_WITH_TWO 15
#define STORE_WENT_BACK 16
#define MIGRATED 17
#define RENEWED 18
#define MOVED_ON 19
#define NOT_MOVED 20
#define WRITTEN_LATE 21
#define MOVED_QUARANTINED 22
#define CRASHED 30 /* + where */
