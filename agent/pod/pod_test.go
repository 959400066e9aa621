// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
)

func TestTheWayDownFromAParentEndsAtItsDevice(t *testing.T) {
	attrs := func(name string, lower, netns int) netlink.LinkAttrs {
		a := netlink.NewLinkAttrs()
		a.Name, a.ParentIndex, a.NetNsID = name, lower, netns
		return a
	}
	alb := netlink.NewLinkBond(attrs("bond0", 0, -1))
	alb.Mode = netlink.BOND_MODE_BALANCE_ALB
	missing := errors.New("no such device")
	links := map[int]netlink.Link{
		2: &netlink.Device{LinkAttrs: attrs("eth1", 9, -1)}, // 9 is the index of a peer, such as that of a veth
		3: &netlink.Vlan{LinkAttrs: attrs("eth1.7", 2, -1)},
		4: &netlink.Vlan{LinkAttrs: attrs("eth1.7.5", 3, -1)},
		5: &netlink.Vlan{LinkAttrs: attrs("elsewhere", 2, 0)},
		6: &netlink.Vlan{LinkAttrs: attrs("lost", 10, -1)},
		7: alb,
		8: &netlink.Vlan{LinkAttrs: attrs("bond0.5", 7, -1)},
	}
	for parent, row := range map[int]struct {
		way string
		err error
	}{
		2: {"eth1", nil}, 3: {"eth1.7 eth1", nil}, 4: {"eth1.7.5 eth1.7 eth1", nil}, 5: {"elsewhere", nil},
		6: {"lost", missing}, 8: {"bond0.5 bond0", nil}, 10: {"", missing},
	} {
		way, err := below(parent, func(index int) (netlink.Link, error) {
			if link := links[index]; link != nil {
				return link, nil
			}
			return nil, missing
		})
		var names []string
		for _, link := range way {
			names = append(names, link.Attrs().Name)
		}
		check.Equal(t, strings.Join(names, " "), row.way, "below %d:", parent)
		check.Is(t, err, row.err, "below %d:", parent)
		check.That(t, errors.Is(Rewrites(way), ErrRewrites) == (parent == 8), "below %d: rewrites: %v", parent, Rewrites(way))
	}
}

func TestWhatFencelineCannotServeIsNamed(t *testing.T) {
	bond := func(mode netlink.BondMode) netlink.Link {
		b := netlink.NewLinkBond(netlink.LinkAttrs{Name: "bond0"})
		b.Mode = mode
		return b
	}
	for name, row := range map[string]struct {
		link netlink.Link
		want error
		says string
	}{
		"macvlan":             {&netlink.Macvlan{}, nil, ""},
		"ipvlan l2":           {&netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L2}, nil, ""},
		"ipvlan l3":           {&netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L3}, ErrLayer3, "mode l3"},
		"ipvlan l3s":          {&netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L3S}, ErrLayer3, "mode l3s"},
		"bond active-backup":  {bond(netlink.BOND_MODE_ACTIVE_BACKUP), nil, ""},
		"bond 802.3ad":        {bond(netlink.BOND_MODE_802_3AD), nil, ""},
		"bond balance-alb":    {bond(netlink.BOND_MODE_BALANCE_ALB), ErrRewrites, "bond bond0"},
		"a VLAN subinterface": {&netlink.Vlan{VlanId: 5}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := errors.Join(layer3(row.link), Rewrites([]netlink.Link{row.link}))
			check.Must(t, errors.Is(err, row.want), "got %v, want %v", err, row.want)
			if err != nil && !strings.HasSuffix(err.Error(), row.says) && !strings.Contains(err.Error(), row.says+" ") {
				t.Errorf("%q does not say %q", err, row.says)
			}
		})
	}
}

// A pod whose interface counts as gone loses its own link-local addresses at its guard: a node that is short
// of something must not say so of a pod that lives.
func TestANamespaceThatCannotBeOpenedIsNotGone(t *testing.T) {
	f := check.Value(NewFinder())(t)
	defer f.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "file") // what is left where a namespace was mounted
	check.OK(t, os.WriteFile(file, nil, 0o600))
	for _, row := range []struct {
		name, path string
		files      uint64 // how many the process may open, 0 for as many as before
		gone       bool
	}{
		{"there is no such path", filepath.Join(dir, "none"), 0, true},
		{"the path is no namespace", file, 0, true},
		{"the process may open no more files", "/proc/self/ns/net", 1, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.files != 0 {
				var before unix.Rlimit
				check.OK(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
				check.OK(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: row.files, Max: before.Max}))
				defer func() { check.OK(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before)) }()
			}
			_, err := f.LinkLocal(row.path, "eth0")
			check.That(t, err != nil && IsGone(err) == row.gone, "got %v, gone should be %t", err, row.gone)
		})
	}
}
