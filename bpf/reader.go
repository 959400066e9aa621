// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf/ringbuf"
)

// ReadEvents calls fn with each event, in order, until ctx ends, and returns ctx's error. A second
// reader waits for the first. While there is no reader, the buffer keeps events until it is full.
func (k *Kernel) ReadEvents(ctx context.Context, fn func(Event)) error {
	k.reading.Lock()
	defer k.reading.Unlock()
	r, err := ringbuf.NewReader(k.maps.Events)
	if err != nil {
		return fmt.Errorf("open events: %w", err)
	}
	defer r.Close()
	stop := context.AfterFunc(ctx, func() { r.Close() })
	defer stop()
	var record ringbuf.Record
	for {
		if err := r.ReadInto(&record); err != nil {
			if errors.Is(err, ringbuf.ErrClosed) && ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("read events: %w", err)
		}
		e, err := decodeEvent(record.RawSample)
		if err != nil {
			return err
		}
		fn(e)
	}
}

// decodeEvent decodes a record of the buffer, which is one event (event.h).
func decodeEvent(record []byte) (Event, error) {
	var e observerEvent
	n, err := binary.Decode(record, binary.NativeEndian, &e)
	if err == nil && n != len(record) {
		err = fmt.Errorf("an event has %d bytes", n)
	}
	if err != nil {
		return Event{}, fmt.Errorf("decode event of %d bytes: %w", len(record), err)
	}
	return e.event(), nil
}
