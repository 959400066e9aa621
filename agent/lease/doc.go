// Package lease holds the state machine of the IPLease: pure transitions from
// one spec to the next, pure decisions about what a lease means for this
// node, and the Store that carries them to the API server, one guarded write
// each.
package lease
