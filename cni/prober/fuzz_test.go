// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"reflect"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/fenceline/fenceline/internal/frames"
	"github.com/fenceline/fenceline/test/check"
)

// FuzzSpeech: a frame that is read passed the filter of the socket, has the lengths of its RFC, and
// says the same as the frame that this project sends for the statement.
func FuzzSpeech(f *testing.F) {
	program := check.Value(filter())(f)
	decoded, _ := bpf.Disassemble(program)
	vm, err := bpf.NewVM(decoded[3:]) // see TestTheFilterKeepsWhatIsRead
	check.OK(f, err)
	for _, addr := range []netip.Addr{addr4, addr6} {
		probe, announcements := said(f, addr)
		for _, frame := range append(announcements, probe) {
			f.Add(frame)
			f.Add(append(frame[:12:12], append([]byte{0x81, 0, 0, 1}, frame[12:]...)...))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, ok := parse(data)
		if !ok {
			return
		}
		n, err := vm.Run(data)
		check.That(t, err == nil && n != 0, "the filter drops % x: %v", data, err)
		check.That(t, len(s.mac) == 6 && s.addr.IsValid() && !s.addr.IsUnspecified() && s.addr.Zone() == "", "% x says %+v", data, s)
		check.That(t, hasLengths(data), "% x has not the lengths of its RFC, and says %+v", data, s)
		if padded, ok := parse(append(bytes.Clone(data), make([]byte, 18)...)); !ok || !reflect.DeepEqual(padded, s) {
			t.Errorf("% x says %+v, with padding %+v", data, s, padded)
		}
		again := speak(t, s)
		if got, ok := parse(again); !ok || !reflect.DeepEqual(got, s) {
			t.Errorf("% x says %+v, and % x says %+v", data, s, again, got)
		}
	})
}

// hasLengths reports whether the fields of the frame that give lengths are those of RFC 826 for IPv4
// over Ethernet, or of RFC 4861 sections 4.3 and 4.4.
func hasLengths(data []byte) bool {
	if binary.BigEndian.Uint16(data[etherType:]) == 0x0806 {
		return len(data) >= ethernetHeader+28 && bytes.Equal(data[16:20], []byte{8, 0, 6, 4})
	}
	length := int(binary.BigEndian.Uint16(data[ethernetHeader+4:]))
	return length >= 24 && length%8 == 0 && len(data) >= ethernetHeader+ipv6Header+length && data[ethernetHeader+7] == 255
}

// speak returns a frame that makes the statement.
func speak(t *testing.T, s speech) []byte {
	t.Helper()
	if s.asks {
		return check.Value(frames.Probe(s.mac, nil, s.addr))(t)
	}
	announcements := check.Value(frames.Announce(s.mac, s.addr))(t)
	return announcements[0]
}
