// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"net"
	"net/netip"
	"reflect"
	"testing"
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
			if err := tc.next.succeeds(tc.present); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
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
			if err := tc.lease.check(); (err == nil) != tc.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestLayoutsKeepWhatTheyCarry(t *testing.T) {
	for _, addr := range []string{"10.9.0.1", "fd09::1"} {
		key := Key{Segment: 7, Addr: netip.MustParseAddr(addr)}
		if got := key.layout().key(); got != key {
			t.Errorf("key: got %v, want %v", got, key)
		}
	}
	lease := Lease{Token: 1, Network: 2, Slot: 3, MAC: net.HardwareAddr{1, 2, 3, 4, 5, 6}, Flags: FlagSharedMAC}
	if got := lease.layout().lease(); !reflect.DeepEqual(got, lease) {
		t.Errorf("lease: got %+v, want %+v", got, lease)
	}
	if got := (Lease{}).layout().lease(); !reflect.DeepEqual(got, Lease{}) {
		t.Errorf("watch: got %+v", got)
	}
}
