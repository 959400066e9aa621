// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

func TestWhichInterfaceCarriesAVLAN(t *testing.T) {
	link := func(name string, index int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: name, Index: index, NetNsID: -1}
	}
	vlan := func(name string, index, parent, id int) netlink.Link {
		attrs := link(name, index)
		attrs.ParentIndex = parent
		return &netlink.Vlan{LinkAttrs: attrs, VlanId: id}
	}
	// Its parent's index counts in the namespace that it was moved here from.
	moved := vlan("moved", 9, 3, 7)
	moved.Attrs().NetNsID = 0
	links := []netlink.Link{
		&netlink.Device{LinkAttrs: link("eth0", 2)}, vlan("storage", 5, 3, 5), vlan("eth1.6", 6, 3, 6),
		&netlink.Device{LinkAttrs: link("eth1", 3)}, vlan("eth0.5", 7, 2, 5), vlan("eth1.6.5", 8, 6, 5),
		moved,
	}
	for _, row := range []struct {
		name, parent string
		vlan         int
		want         string
	}{
		{"one that hangs on the parent, whatever its name", "eth1", 5, "storage"},
		{"that of the parent, not of another", "eth0", 5, "eth0.5"},
		{"the parent itself, if it is of that VLAN", "eth1.6", 6, "eth1.6"},
		{"a tag within a tag", "eth1.6", 5, "eth1.6.5"},
		{"not the bare parent", "eth0", 6, ""},
		{"a parent that this node does not have", "eth2", 5, ""},
		{"not one whose parent is in another namespace", "eth1", 7, ""},
		{"unless it is named itself", "moved", 7, "moved"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got, ok := onVLAN(links, row.parent, row.vlan); got != row.want || ok != (row.want != "") {
				t.Errorf("got %q, %v", got, ok)
			}
		})
	}
}

func TestAPoolWithoutVLANIsReachedOnWhatItNames(t *testing.T) {
	pool := &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{Parents: []string{"eth1", "eth2"}}}
	if got, err := named(pool, nil); err != nil || !slices.Equal(got, pool.Spec.Parents) {
		t.Errorf("got %v, %v", got, err)
	}
}

// Each pod that comes or goes interrupts the kernel's list: what is missing from
// it may be there.
func TestAVLANIsNotGoneBecauseTheListOfInterfacesWasInterrupted(t *testing.T) {
	pool := &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{Parents: []string{"eth1"}, Vlan: ptr.To[int64](5)}}
	whole := []netlink.Link{
		&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth1", Index: 3}},
		&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "eth1.5", Index: 5, ParentIndex: 3, NetNsID: -1}, VlanId: 5},
	}
	const always = 1 << 20
	for _, row := range []struct {
		name     string
		links    []netlink.Link
		err      error
		failures int
		want     []string
		known    bool
	}{
		{"once", nil, netlink.ErrDumpInterrupted, 1, []string{"eth1.5"}, true},
		{"and it is on it all the same", whole, netlink.ErrDumpInterrupted, always, []string{"eth1.5"}, true},
		{"each time", nil, netlink.ErrDumpInterrupted, always, nil, false},
		{"there is none", nil, unix.EMFILE, always, nil, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			lists := 0
			got, err := named(pool, func() ([]netlink.Link, error) {
				if lists++; lists <= row.failures {
					return row.links, row.err
				}
				return whole, nil
			})
			if !slices.Equal(got, row.want) || (err == nil) != row.known {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}
