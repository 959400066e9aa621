// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// FuzzEvent: a record of the ring buffer is an event that says all that the kernel wrote, or an error.
func FuzzEvent(f *testing.F) {
	size := binary.Size(observerEvent{})
	for _, n := range []int{0, 1, size - 1, size, size + 8} {
		f.Add(bytes.Repeat([]byte{0xa5}, n))
	}
	f.Add(make([]byte, size))
	f.Fuzz(func(t *testing.T, record []byte) {
		e, err := decodeEvent(record)
		check.That(t, (err == nil) == (len(record) == size), "%d bytes, an event has %d: %v", len(record), size, err)
		if err != nil {
			return
		}
		again := observerEvent{
			Ns: uint64(e.At), Token: e.Token, Mine: e.Mine, Key: e.Key.layout(), Type: uint16(e.Type), Where: uint16(e.Where),
		}
		var by [8]byte
		copy(by[:], e.MAC)
		binary.NativeEndian.PutUint16(by[6:], uint16(e.Kind))
		again.By = binary.NativeEndian.Uint64(by[:])
		if got, err := binary.Append(nil, binary.NativeEndian, again); err != nil || !bytes.Equal(got, record) {
			t.Errorf("% x is read as %+v, which is % x, %v", record, e, got, err)
		}
	})
}
