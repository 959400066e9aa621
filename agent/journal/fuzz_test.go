// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

// FuzzFile: an entry that is read says the same when it is written again. A file in which one bit has
// changed is corrupt, or holds the same entry.
func FuzzFile(f *testing.F) {
	for _, e := range []Entry{
		{},
		{ContainerID: "c1", Interface: "eth0", Phase: Bound, Slot: 7, Created: time.Unix(1700000000, 0).UTC()},
		{ContainerID: "c2", Interface: "net1", Phase: Releasing, Addresses: []Address{{Pool: "a", LeaseName: "192.0.2.7", Token: 3}}},
	} {
		data := check.Value(encode(e))(f)
		f.Add(data, uint(len(data)/2))
		f.Add(append(data, data[:10]...), uint(3))
	}
	f.Add([]byte(`{"crc32c":0,"value":null}`+"\n"), uint(90))
	f.Fuzz(func(t *testing.T, data []byte, bit uint) {
		var e Entry
		if decode(data, &e) != nil {
			return
		}
		written := reencoded(t, e)
		var again Entry
		err := decode(written, &again)
		check.That(t, err == nil && bytes.Equal(reencoded(t, again), written), "%s is read as %+v, %v", written, again, err)
		flipped := bytes.Clone(data)
		flipped[bit/8%uint(len(data))] ^= 1 << (bit % 8)
		var other Entry
		if decode(flipped, &other) == nil && !bytes.Equal(reencoded(t, other), written) {
			t.Errorf("%q is read as %+v, and %q as %+v", data, e, flipped, other)
		}
	})
}

func reencoded(t *testing.T, e Entry) []byte {
	t.Helper()
	return check.Value(encode(e))(t)
}
