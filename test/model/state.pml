/* What there is. Everything else derives from it, so that the space stays small. */

#define MACHINES 3
#define NOBODY 3
#ifndef VERSIONS
#define VERSIONS 7 /* writes that give a version, and so a token */
#endif
/* How often at most what breaks. */
#ifndef LINKS
#define LINKS 0 /* a link is cut, or goes deaf or mute; it heals at any time */
#endif
#ifndef CRASHES
#define CRASHES 0 /* an agent dies; it comes back at any time */
#endif
#ifndef LIVES
#define LIVES 0 /* a machine starts anew, or another one bears its name */
#endif
#ifndef DELETIONS
#define DELETIONS 0 /* somebody deletes the lease of a running pod */
#endif
#ifndef MIGRATIONS
#define MIGRATIONS 0 /* 1: the pod of machine 0 is a virtual machine, which migrates */
#endif
#ifndef RENEWALS
#define RENEWALS 0 /* 1: a fenced holder whose record is its own renews its token */
#endif
#ifndef MOVES
#define MOVES 0 /* a sandbox dies, and the next one gets its address from the agent alone */
#endif
#ifndef STRAYS
#define STRAYS 0 /* a claim that nobody of this cluster sent; needs RENEWALS */
#endif
#ifndef MUTES
#define MUTES 0 /* 1: links go mute too */
#endif
#ifndef RESTORES
#define RESTORES 0 /* the store goes back to a backup, which was made at any time */
#endif

/* The record, as the API server has it. A write carries the version that it was
 * judged by: on an old view it is no write. */
#define FREE 0
#define BOUND 1
#define QUARANTINED 2
#define CONFLICT 3 /* Quarantined{Conflict}: no holder, no predecessor */
byte lease_state;
byte lease_version; /* of the last write, 0: free */
byte version;       /* the store's */
byte lease_by;      /* BOUND: the machine of the holder; otherwise the verifier */
bit lease_boot;     /* BOUND: the holder's session is this life of it */
byte previous;      /* who may still speak */
byte previous_token; /* by which a claim asks for its ack: all machines have pods of one MAC */
bit previous_boot;
bit asserted;       /* previous is said to be gone */
byte conflict;      /* CONFLICT: who answered */

/* The kernel of a machine, which lives on without an agent. */
#define NONE 0
#define ALIVE 1
#define DEAD 2
byte slot[MACHINES];
byte installed[MACHINES]; /* token of the lease, 0: not held here */
byte greatest[MACHINES];  /* greatest claim heard while the slot lived */
bit boot[MACHINES];       /* which life of the machine this is */

/* Its agent, and the pod. */
#define IDLE 0
#define CREATED 1    /* ADD: the lease is written */
#define CLAIMED 2    /* ADD: guarded, probed, claimed */
#define TAKEN 3      /* ADD, take-over: the lease is written */
#define PROVES 4     /* ADD, take-over: claimed, and probing */
#define PROVEN 5     /* ADD, take-over: safe */
#define HOLDS 6      /* ADD was answered, and the journal knows */
#define RECREATES 7  /* has decided to create the lost lease again */
#define RECREATED 8  /* has done so */
#define UNFENCED 9   /* DEL without R6 */
#define RELEASES 10  /* DEL or undo: killed, the lease is still to be freed */
#define DONE 11
#define BEHIND 12      /* ADD of a migration's target was answered, and the source has the address */
#define PROVES_TURN 13 /* the source has handed over: claimed, and probing */
#define PROVEN_TURN 14 /* safe */
#define TURN 15        /* the lease is bound */
#define IS_BEHIND(m) (at[m] == BEHIND || at[m] == TURN || at[m] == PROVES_TURN || at[m] == PROVEN_TURN)
#define RENEWAL_WRITTEN 16 /* fenced without a reason: the token is renewed */
#define RENEWS 17          /* the kernel has it, and it is verified */
#define RENEWAL_PROVEN 18  /* safe */
#define BEREFT 19         /* the sandbox has died */
#define MOVE_KILLED 20    /* ADD of the next one: the old slot is dead */
#define MOVE_INSTALLED 21 /* the new slot has the token */
#define MOVE_CLAIMED 22   /* and has claimed */
#define MOVED 23          /* in the journal and answered, and the old entry is there too */
#define LATE_WRITTEN 24   /* the record names the new sandbox, the kernel has the old token */
byte at[MACHINES];
byte token[MACHINES];     /* of its lease, as the journal has it */
bit runs[MACHINES];       /* the agent lives */
bit wanted[MACHINES];     /* Kubernetes wants the pod; never again once it does not */
byte asks[MACHINES];      /* version that its verifier works on, 0: none */
bit judged[MACHINES];     /* and found safe, but has not written yet */

/* The underlay. A frame that was sent may arrive at any time, again and again, or never. */
byte claimed[MACHINES];   /* newest claim of a holder */
byte asked, asked_by;     /* newest claim of a verifier */
bit up[MACHINES];         /* the link carries */
bit deaf[MACHINES];       /* it sends, but does not hear */
#if MUTES
bit mute[MACHINES];       /* it hears, but does not send */
#define IS_MUTE(m) mute[m]
#else
#define IS_MUTE(m) 0
#endif

byte links, crashes, lives, deletions, restores, deaths; /* that have happened */
bit renamed;              /* machine 2 bears machine 0's name, which lives on somewhere */
bit ended;                /* Settle has judged */

#if RENEWALS
bit unproven[MACHINES];   /* fenced until the renewal is proven */
byte disproved[MACHINES]; /* tokens of strangers by which nobody speaks */
byte strays;
#define UNPROVEN(m) unproven[m]
#else
#define UNPROVEN(m) 0
#endif

/* Rows with MOVES. */
bit late[MACHINES];        /* the record names an older sandbox */
bit proven_dead[MACHINES]; /* the record's last holder here: fenced, or silent after it heard a claim */
bit taken[MACHINES];       /* a verifier of the machine itself killed the slot */
bit spared[MACHINES];      /* the old slot lives on */

#define MOVING(m) (at[m] == MOVE_KILLED || at[m] == MOVE_INSTALLED || at[m] == MOVE_CLAIMED)
#define MUTE_SINCE_DEATH(m) (at[m] == BEREFT || MOVING(m))
#ifdef ANSWERS_UNWRITTEN
#define HAS_MOVED(m) (at[m] >= MOVE_CLAIMED)
#else
#define HAS_MOVED(m) (at[m] >= MOVED)
#endif
/* The kernel keeps the greatest claim also when the slot is dead. Without MOVES no slot follows. */
#ifdef FORGETS_DEAD
#define KEEPS_CLAIMS(m) 0
#else
#define KEEPS_CLAIMS(m) (MOVES && (HOLDING(m) || MUTE_SINCE_DEATH(m)))
#endif
/* Nobody answered for the address when another pod probed, and the store had lost its record. */
#define UNDEFENDED(m) (MUTE_SINCE_DEATH(m) || deaths && (deletions || restores))

#define RENEWING(m) (at[m] == RENEWAL_WRITTEN || at[m] == RENEWS || at[m] == RENEWAL_PROVEN)
#define HOLDING(m) (at[m] == HOLDS || at[m] == RECREATES || at[m] == RECREATED || RENEWING(m) || HAS_MOVED(m))
#define FENCED(m) (greatest[m] > installed[m] || UNPROVEN(m))
#define VOICE(m) ((HOLDING(m) || at[m] == UNFENCED || SPEAKS_BEHIND(m)) && slot[m] == ALIVE && !FENCED(m) && !PAUSED(m))
#if MIGRATIONS
bit paused[MACHINES];     /* the virtual machine does not run here any more */
#define PAUSED(m) paused[m]
#else
#define PAUSED(m) 0
#endif
#ifdef TARGET_SPEAKS
#define SPEAKS_BEHIND(m) (at[m] == BEHIND)
#else
#define SPEAKS_BEHIND(m) 0
#endif
#define HEARS(m) (up[m] && !deaf[m])
#define SENDS(m) (up[m] && !IS_MUTE(m))
#define CONVERSES(m) (HEARS(m) && SENDS(m))
#define ANSWERS(s, m) (s != m && VOICE(s) && CONVERSES(s) && CONVERSES(m))
#define ANSWERED(m) (ANSWERS(0, m) || ANSWERS(1, m) || ANSWERS(2, m))
#define ON_AIR(s, m) (s != NOBODY && s != m && VOICE(s) && CONVERSES(s))
#define OTHER_VOICE(m) ((m != 0 && VOICE(0)) || (m != 1 && VOICE(1)) || (m != 2 && VOICE(2)))
#define HELD_BY(m) (lease_state == BOUND && lease_by == m)
#define MORE_VERSIONS (version < VERSIONS)
#define NEXT_VERSION version++; lease_version = version

/* For use within one step. */
hidden byte verdict, luck, said, count, best, before, other;

/* Names of the properties, for assertions: all are 0. */
hidden byte P1_one_speaker, P2_greater_token_wins, P3_proven, P4_acked_is_fenced, P5_not_stuck, P6_living_pod, P7_record, P8_answered_unfenced, P9_source_is_paused, P10_muted_once, P11_let_go;

/* SEEN(n) marks a situation. With -DSEEK=n the checker has to find it. */
#ifndef SEEK
#define SEEK 0
#endif
hidden byte seen;
#define SEEN(n) assert(seen || SEEK != n)
