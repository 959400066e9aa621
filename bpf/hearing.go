// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"time"
)

// Heard returns when a valid claim or ack of another node last came in on the segment, with a
// resolution of one second; ok is false if none has ever come in. R2: without such evidence,
// silence proves nothing.
func (t *tables) Heard(segment uint32) (at time.Duration, ok bool, err error) {
	var ns uint64
	ok, err = lookup(t.maps.Hearing, segment, &ns)
	if err != nil {
		return 0, false, fmt.Errorf("read hearing of segment %d: %w", segment, err)
	}
	return time.Duration(ns), ok && ns != 0, nil
}
