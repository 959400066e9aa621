// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/allocator"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/disk"

	"github.com/fenceline/fenceline/internal/diagnosis"
	"github.com/fenceline/fenceline/test/check"
)

// add has the code of the real host-local give an address, as its ADD does.
func add(data, config, container string) (given string, err error) {
	ipam, _, err := allocator.LoadIPAMConfig([]byte(config), "")
	if err != nil {
		return "", err
	}
	store, err := disk.New("old", data)
	if err != nil {
		return "", err
	}
	for i := range ipam.Ranges {
		ip, getErr := allocator.NewIPAllocator(&ipam.Ranges[i], store, i).Get(container, "net1", nil)
		if err = errors.Join(err, getErr); getErr == nil {
			given = ip.Address.IP.String()
		}
	}
	return given, errors.Join(err, store.Close())
}

// The real host-local gives nothing in each of the two freezes, and on the way back no address of Fenceline.
func TestTheRealHostLocalIsFrozen(t *testing.T) {
	data := t.TempDir()
	p := PlanOf(files())
	c, none := p.Changes[0], "no IP addresses available in range set"
	for i := range 3 {
		check.Equal(t, check.Value(add(data, local, fmt.Sprint("c", i)))(t), fmt.Sprint("10.100.0.1", i), "host-local gives")
	}
	check.Says(t, check.Err(add(data, c.Frozen, "c3")), none)

	move := diagnosis.HostLocal{DataDir: data, Networks: []string{"old"}, Mark: "fenceline-move/shop.vlan100", Write: true, Ends: p.Freeze()}
	check.Equal(t, check.Value(move.Answer(time.Now()))(t).Marked, 7, "files of the move")
	check.Says(t, check.Err(add(data, local, "c3")), none)

	given := netip.MustParseAddr("10.100.0.13")
	move.Ends = []netip.Addr{given, given}
	check.Equal(t, check.Value(move.Answer(time.Now()))(t).Marked, 1, "files of the move")
	returned := check.Value(c.Returned([]netip.Addr{given}))(t)
	check.Equal(t, check.Value(add(data, returned, "c3"))(t), "10.100.0.14", "by the definition on the way back, host-local gives")
	move.Ends = nil
	check.OK(t, check.Err(move.Answer(time.Now())))
	check.Equal(t, check.Value(add(data, returned, "c4"))(t), "10.100.0.15", "without the files, host-local gives")
	for i := 16; i < 20; i++ {
		check.Equal(t, check.Value(add(data, returned, fmt.Sprint("c", i)))(t), fmt.Sprint("10.100.0.", i), "host-local gives")
	}
	check.Says(t, check.Err(add(data, returned, "last")), none)
	check.Equal(t, check.Value(add(data, local, "last"))(t), given.String(), "by the definition before the move, host-local gives")
}
