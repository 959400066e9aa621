// Package warm keeps addresses ready on this node before a pod asks for them:
// leased, proven free with the times of RFC 5227, and watched from then on. An
// ADD then needs one write and no waiting.
//
// What to keep is decided by Plan, a pure function. While it is Ready, nobody but
// this node ends its Warm leases, and it gives them up before anybody has to go without: a
// Warm lease is never the cause of an exhausted pool.
package warm
