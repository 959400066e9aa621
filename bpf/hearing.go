package bpf

import (
	"fmt"
	"time"
)

// Heard is when the segment last let us hear a valid claim or ack of another node, to the second; ok is false when
// it never did. R2: without it, silence proves nothing.
func (k *Kernel) Heard(segment uint32) (at time.Duration, ok bool, err error) {
	var ns uint64
	ok, err = lookup(k.maps.Hearing, segment, &ns)
	if err != nil {
		return 0, false, fmt.Errorf("read hearing of segment %d: %w", segment, err)
	}
	return time.Duration(ns), ok && ns != 0, nil
}
