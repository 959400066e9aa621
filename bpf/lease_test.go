// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"net"
	"net/netip"
	"reflect"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestOnlyANewerTokenReplacesALease(t *testing.T) {
	held := Lease{Token: 100, Slot: 1}
	watch := Lease{}
	for name, tc := range map[string]struct {
		present, next Lease
		want          error
	}{
		"newer token":                 {held, Lease{Token: 101, Slot: 2}, nil},
		"same token, after a restart": {held, held, nil},
		"same token, Warm to Bound":   {Lease{Token: 100}, held, nil},
		"older token":                 {held, Lease{Token: 99, Slot: 2}, ErrOlderToken},
		"holder over a watch":         {watch, held, nil},
		"watch over a holder":         {held, watch, ErrHeld},
		"newer watch over a holder":   {held, Lease{Token: 101}, ErrHeld},
		"watch over a watch":          {watch, watch, nil},
	} {
		t.Run(name, func(t *testing.T) {
			check.Is(t, tc.next.succeeds(tc.present), tc.want, "got")
		})
	}
}

func TestALeaseNeedsAnEthernetMAC(t *testing.T) {
	six := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	for name, tc := range map[string]struct {
		lease Lease
		ok    bool
	}{
		"holder":                  {Lease{Slot: 1, MAC: six}, true},
		"watch without MAC":       {Lease{}, true},
		"watch with MAC":          {Lease{MAC: six}, true},
		"holder without MAC":      {Lease{Slot: 1}, false},
		"holder with an IB MAC":   {Lease{Slot: 1, MAC: make(net.HardwareAddr, 20)}, false},
		"slot beyond the map":     {Lease{Slot: MaxSlot + 1, MAC: six}, false},
		"the greatest slot there": {Lease{Slot: MaxSlot, MAC: six}, true},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.lease.check()
			check.That(t, (err == nil) == tc.ok, "got %v", err)
		})
	}
}

func TestLayoutsKeepWhatTheyCarry(t *testing.T) {
	for _, addr := range []string{"10.9.0.1", "fd09::1"} {
		key := Key{Segment: 7, Addr: netip.MustParseAddr(addr)}
		check.Equal(t, key.layout().key(), key, "key: got")
	}
	lease := Lease{Token: 1, Network: 2, Slot: 3, MAC: net.HardwareAddr{1, 2, 3, 4, 5, 6}, Flags: FlagSharedMAC}
	got := lease.layout().lease()
	check.That(t, reflect.DeepEqual(got, lease), "lease: got %+v, want %+v", got, lease)
	check.Same(t, Lease{}.layout().lease(), Lease{}, "watch")
}
