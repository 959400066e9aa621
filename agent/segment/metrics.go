package segment

import "sync/atomic"

// stats are counted by all segments together. Safe for concurrent use.
type stats struct {
	claimsSent   atomic.Uint64
	acksReceived atomic.Uint64
}
