// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/diagnosis"
	"github.com/fenceline/fenceline/test/check"
)

// unattachable are the observers of a kernel that attaches none now.
type unattachable struct {
	*bpf.Observers
	asked []int
}

func (k *unattachable) Attach(parent int) error {
	k.asked = append(k.asked, parent)
	return errors.New("too many open files")
}

// newParents is node n1, with pods of pool v4 on these parents.
func newParents(t *testing.T, k *unattachable, parents ...attachment.Entry) *Parents {
	t.Helper()
	return &Parents{
		Node: "n1", Segments: segment.New(segment.Config{Kernel: segment.Kernel{Observers: k}}), Observers: sightings{}, Sightings: sightings{}, Pools: pools{}, Log: testr.New(t),
		Bound: func() iter.Seq[*attachment.Entry] {
			return func(yield func(*attachment.Entry) bool) {
				for _, e := range parents {
					e.Addresses = []attachment.Address{{Pool: "v4"}}
					if !yield(&e) {
						return
					}
				}
			}
		},
	}
}

// pools are all pools of the cluster.
type pools []v1alpha1.IPPool

func (p pools) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	i := slices.IndexFunc(p, func(pool v1alpha1.IPPool) bool { return pool.Name == key.Name })
	if i < 0 {
		return errors.New("there is no pool " + key.Name)
	}
	p[i].DeepCopyInto(o.(*v1alpha1.IPPool))
	return nil
}

func (p pools) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*v1alpha1.IPPoolList).Items = p
	return nil
}

func pool(name string, parents ...string) *v1alpha1.IPPool {
	return &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Parents: parents}}
}

func lo(t *testing.T) int {
	t.Helper()
	index, exists, err := Index("lo")
	check.Must(t, err == nil && exists, "there is no lo")
	return index
}

func TestTheParentsOfAPoolBestFirst(t *testing.T) {
	p := newParents(t, &unattachable{}, attachment.Entry{Parent: "eth1", ParentIndex: 7})
	got, err := p.of(pool("v4", "none", "lo"))
	check.That(t, err == nil && len(got) != 0 && got[0] == lo(t), "got %v, %v", got, err)
	got, err = p.of(pool("other"))
	check.That(t, err == nil && len(got) == 0, "of a pool without pods here: %v, %v", got, err)
	_, _, err = p.Segment(pool("other"), segment.LastHolder{})
	check.Says(t, err, "spec.parents")
}

// R3: only an open segment repeats the claims of the pods on its parent.
func TestAParentThatCouldNotBeOpenedAtTheStartIsTriedAgain(t *testing.T) {
	k := &unattachable{}
	p := newParents(t, k, attachment.Entry{Parent: "eth1", ParentIndex: 7}, attachment.Entry{Parent: "eth1", ParentIndex: 7})
	p.attach()
	p.attach()
	check.List(t, k.asked, []int{7, 7}, "asked for")
}

// An interface may have been renamed since the ADD, and another interface may
// have its name now: silence there proves nothing.
func TestTheParentOfAPoolsPodsIsFoundByIndexNotByName(t *testing.T) {
	const gone = 1<<31 - 1
	for _, row := range []struct {
		name   string
		index  int
		opened []int
	}{{"eth1", lo(t), []int{lo(t)}}, {"lo", gone, nil}} {
		k := &unattachable{}
		p := newParents(t, k, attachment.Entry{Parent: row.name, ParentIndex: row.index})
		_, guessed, err := p.Segment(pool("v4"), segment.LastHolder{})
		check.That(t, err != nil && !guessed && slices.Equal(k.asked, row.opened), "%s of old: opened %v, guessed %v, %v", row.name, k.asked, guessed, err)
	}
}

// sightings are the speakers of 10.0.0.9 on the observed parents.
type sightings map[int]bpf.Sighting

func (s sightings) Attached() (map[int]bool, error) {
	all := map[int]bool{}
	for parent := range s {
		all[parent] = true
	}
	return all, nil
}

func (s sightings) Last(key bpf.Key) (bpf.Sighting, bool, error) {
	seen, ok := s[int(key.Segment)]
	return seen, ok && key.Addr == lost.Addr, nil
}

func TestTheGatewaysOfAnInterfaceWithTheMACsThatWereHeard(t *testing.T) {
	heard, silent := pool("v4"), pool("v6")
	heard.Spec.Gateway, silent.Spec.Gateway = ptr.To("10.0.0.9"), ptr.To("fd00::9")
	p := newParents(t, nil)
	p.Pools = pools{*heard, *silent, *pool("none")}
	seen := sightings{7: {MAC: stranger, LastSeen: 1}, 8: {MAC: stranger}}
	p.Observers, p.Sightings = seen, seen
	of := func(parent int) map[netip.Addr]net.HardwareAddr {
		return p.Gateways(&attachment.Entry{ParentIndex: parent, Addresses: []attachment.Address{{Pool: "v4"}, {Pool: "v6"}, {Pool: "none"}, {Pool: "gone"}}})
	}
	v4, v6 := lost.Addr, netip.MustParseAddr("fd00::9")
	check.SameBy(t, cmp.Options{cmpopts.EquateComparable(netip.Addr{})}, of(7), map[netip.Addr]net.HardwareAddr{v4: stranger, v6: nil}, "gateways")
	check.SameBy(t, cmp.Options{cmpopts.EquateComparable(netip.Addr{})}, of(8), map[netip.Addr]net.HardwareAddr{v4: nil, v6: nil}, "gateways that were only probed")
}

var (
	lost     = segment.LastHolder{Addr: netip.MustParseAddr("10.0.0.9"), Parent: "none", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}}
	stranger = net.HardwareAddr{2, 0, 0, 0, 0, 7}
)

// R2: the frames of the last holder show which parent leads to it. Nothing else does, except for the
// statements of people and the pool's own pods.
func TestTheParentOnWhichTheLastHolderWasHeard(t *testing.T) {
	const gone = 1<<31 - 1
	here := lo(t)
	for _, row := range []struct {
		name   string
		seen   sightings
		last   segment.LastHolder
		opened []int
	}{
		{"the holder was heard", sightings{here: {MAC: lost.MAC, LastSeen: 1}}, lost, []int{here}},
		{"another host was heard with its address", sightings{here: {MAC: stranger, LastSeen: 1}}, lost, nil},
		{"it has only probed the address", sightings{here: {ProbeMAC: lost.MAC, LastProbe: 1}}, lost, nil},
		{"it was heard on an interface that is gone", sightings{gone: {MAC: lost.MAC, LastSeen: 1}}, lost, nil},
		{"its MAC is not recorded", sightings{here: {LastSeen: 1}}, segment.LastHolder{Addr: lost.Addr, Parent: "none"}, nil},
		{"its address was heard for another one", sightings{here: {MAC: lost.MAC, LastSeen: 1}},
			segment.LastHolder{Addr: netip.MustParseAddr("10.0.0.8"), Parent: "none", MAC: lost.MAC}, nil},
		{"nothing was heard", nil, lost, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			k := &unattachable{}
			p := newParents(t, k)
			seen := row.seen
			p.Observers, p.Sightings = seen, seen
			_, guessed, err := p.Segment(pool("own"), row.last)
			check.That(t, err != nil && !guessed && slices.Equal(k.asked, row.opened), "opened %v, guessed %v, %v", k.asked, guessed, err)
		})
	}
}

// R1: a forged frame of the last holder must not choose the segment whose silence frees the address.
func TestAForgedSightingDoesNotOverruleThePool(t *testing.T) {
	k := &unattachable{}
	p := newParents(t, k)
	seen := sightings{lo(t): {MAC: lost.MAC, LastSeen: 1}}
	p.Observers, p.Sightings = seen, seen
	_, _, err := p.Segment(pool("own", "eth9"), lost)
	check.That(t, err != nil && len(k.asked) == 0, "opened %v, %v", k.asked, err)
}

// R1: two networks may have the same addresses. With ipvlan, the pods of a node have the same MAC on
// all its VLANs. Then frames of the other network look like those of the holder.
func TestWhatWasHeardProvesNothingIfTwoNetworksHaveTheAddress(t *testing.T) {
	here := lo(t)
	for _, row := range []struct {
		name            string
		network, subnet string
		parents         []string
		opened          []int
	}{
		{"the other network has the address", "lab", "10.0.0.0/24", nil, nil},
		{"and the pool names the parent", "lab", "10.0.0.0/24", []string{"lo"}, []int{here}},
		{"it has another subnet", "lab", "10.0.1.0/24", nil, []int{here}},
		{"its subnet is unreadable", "lab", "?", nil, nil},
		{"it is a pool of the same network", "", "10.0.0.0/24", nil, []int{here}},
	} {
		t.Run(row.name, func(t *testing.T) {
			k := &unattachable{}
			p := newParents(t, k)
			seen := sightings{here: {MAC: lost.MAC, LastSeen: 1}}
			p.Observers, p.Sightings = seen, seen
			other := pool("other")
			other.Spec.Network, other.Spec.Subnet = row.network, row.subnet
			p.Pools = pools{*other}
			_, guessed, err := p.Segment(pool("own", row.parents...), lost)
			check.That(t, err != nil && !guessed && slices.Equal(k.asked, row.opened), "opened %v, guessed %v, %v", k.asked, guessed, err)
		})
	}
}

func TestWhichParentVerifiesAnAddress(t *testing.T) {
	for _, row := range []struct {
		name        string
		said, heard []int
		want        int
	}{
		{"none", nil, nil, 0},
		{"the first that is named", []int{7, 3}, nil, 7},
		{"the one that has heard the holder, of those that are named", []int{7, 3}, []int{3}, 3},
		{"the one that has heard the holder, although another one is named", []int{7}, []int{3}, 3},
		{"the one that has heard the holder, and none is named", nil, []int{3, 7}, 3},
	} {
		got, ok := choose(row.said, row.heard)
		check.That(t, got == row.want && ok == (row.want != 0), "%s: %d, %v", row.name, got, ok)
	}
}

// A node that hears the holders of addresses from the start can verify them before it has a pod.
func TestTheParentsOfTheNetworkAreOpenedBeforeTheFirstPod(t *testing.T) {
	k := &unattachable{}
	p := newParents(t, k)
	p.Configured.Masters = []string{"none", "lo"}
	p.attach()
	check.List(t, k.asked, []int{lo(t)}, "asked for")
}

// A node is blind only if there is another node to hear: one with an address of the same subnet and
// network.
func TestWhichParentsShouldHearAnotherNode(t *testing.T) {
	const eth1, eth2 = 7, 8
	poolOf := func(name, subnet string, bound int64, change ...func(*v1alpha1.IPPool)) v1alpha1.IPPool {
		p := pool(name)
		p.Spec.Subnet, p.Status.Bound = subnet, bound
		for _, c := range change {
			c(p)
		}
		return *p
	}
	network := func(p *v1alpha1.IPPool) { p.Spec.Network = "lab" }
	observe := func(p *v1alpha1.IPPool) {
		p.Spec.ConflictDetection = &v1alpha1.ConflictDetection{Mode: v1alpha1.ModeObserve}
	}
	own := poolOf("own", "10.0.0.0/24", 1)
	for _, row := range []struct {
		name   string
		parent int
		pools  []v1alpha1.IPPool
		want   bool
	}{
		{"the pod of this node is the only one", eth1, []v1alpha1.IPPool{own}, false},
		{"another node has an address of the pool", eth1, []v1alpha1.IPPool{poolOf("own", "10.0.0.0/24", 2)}, true},
		{"another node has an address of another pool of the subnet", eth1, []v1alpha1.IPPool{own, poolOf("b", "10.0.0.0/24", 1)}, true},
		{"nothing of the other pool is in use", eth1, []v1alpha1.IPPool{own, poolOf("b", "10.0.0.0/24", 0)}, false},
		{"another subnet", eth1, []v1alpha1.IPPool{own, poolOf("b", "10.0.1.0/24", 1)}, false},
		{"another network", eth1, []v1alpha1.IPPool{own, poolOf("b", "10.0.0.0/24", 1, network)}, false},
		{"holders that send no claims", eth1, []v1alpha1.IPPool{own, poolOf("b", "10.0.0.0/24", 1, observe)}, false},
		{"no pod of this node is on the parent", eth2, []v1alpha1.IPPool{poolOf("own", "10.0.0.0/24", 2)}, false},
		{"the pool has not been counted since the pod began", eth1, []v1alpha1.IPPool{poolOf("own", "10.0.0.0/24", 0)}, false},
	} {
		pod := &attachment.Entry{ParentIndex: eth1, Addresses: []attachment.Address{{Pool: "own"}}}
		check.Equal(t, expected(row.parent, slices.Values([]*attachment.Entry{pod}), row.pools), row.want, "%s:", row.name)
	}
}

// Pods that run keep their addresses, and people hear that new ones would come elsewhere.
func TestPodsOnAnotherParentThanNewOnesAreToldOnce(t *testing.T) {
	here := lo(t)
	web := attachment.Entry{PodNamespace: "shop", PodName: "web-0", Parent: "lo", ParentIndex: here, Network: "underlay"}
	for _, row := range []struct {
		rule   string
		pool   *v1alpha1.IPPool
		device string
		master string
		want   string
	}{
		{"the pool names no parent", pool("v4"), "", "lo", ""},
		{"it names the parent", pool("v4", "eth9", "lo"), "", "lo", ""},
		{"it names others", pool("v4", "eth9"), "", "lo", "lo: [shop/web-0], pool v4 names the parents [eth9]"},
		{"the network leads elsewhere", pool("v4"), "", other(t), "lo: [shop/web-0], network underlay leads to " + other(t) + " now"},
		{"it leads nowhere", pool("v4"), "", "eth9", ""},
		{"the device plugin chooses among several PFs", pool("v4"), "0000:03:10.0", other(t), ""},
	} {
		t.Run(row.rule, func(t *testing.T) {
			e := web
			e.Device = row.device
			p := newParents(t, &unattachable{}, e, e)
			p.Pools, p.Configured = pools{*row.pool}, Network{"underlay", []string{row.master}}
			var told []string
			p.Tell = func(m diagnosis.Misplaced) { told = append(told, fmt.Sprintf("%s: %v, %s", m.Parent, m.Pods, m.Why)) }
			p.tell()
			p.tell()
			check.Equal(t, strings.Join(told, "; "), row.want, "told")
		})
	}
}

// other returns an interface of this machine that is not lo.
func other(t *testing.T) string {
	t.Helper()
	all := check.Value(net.Interfaces())(t)
	i := slices.IndexFunc(all, func(i net.Interface) bool { return i.Name != "lo" })
	check.Must(t, i >= 0, "this machine has only lo")
	return all[i].Name
}

func TestWhichParentsExist(t *testing.T) {
	lo := check.Value(net.InterfaceByName("lo"))(t)
	check.That(t, Exists(lo.Index), "lo does not")
	const beyond = 1<<31 - 1
	check.That(t, !Exists(beyond), "interface %d does", beyond)
}

// A node that is out of files must not release the leases that it keeps for a parent.
func TestAnInterfaceThatCannotBeLookedForIsNotGone(t *testing.T) {
	var files unix.Rlimit
	check.OK(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &files))
	check.OK(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: files.Max}))
	_, exists, err := Index("lo")
	check.OK(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &files))
	check.That(t, err != nil, "exists: %v", exists)
	_, exists, err = Index("nowhere")
	check.That(t, !exists && err == nil, "of none: %v, %v", exists, err)
}

func TestAnAddressOfTheNode(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1": true, "192.0.2.1": false, "2001:db8::1": false} {
		own, err := OfNode(lo(t), netip.MustParseAddr(addr))
		check.That(t, own == want && err == nil, "%s: %v, %v", addr, own, err)
	}
}

func TestTheSubnetOfAnAddressOfTheNode(t *testing.T) {
	subnets, err := SubnetsOf([]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.1")})
	check.That(t, err == nil && slices.Equal(subnets, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}), "got %v, %v", subnets, err)
}

func TestWhichInterfaceCarriesAVLAN(t *testing.T) {
	link := func(name string, index int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: name, Index: index, NetNsID: -1, AltNames: []string{"alt-" + name}}
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
		{"an alternative name of the parent", "alt-eth1", 5, "storage"},
		{"an alternative name of its own", "alt-eth1.6", 6, "eth1.6"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, ok := onVLAN(links, row.parent, row.vlan)
			check.That(t, got == row.want && ok == (row.want != ""), "got %q, %v", got, ok)
		})
	}
}

func TestAPoolWithoutVLANIsReachedOnWhatItNames(t *testing.T) {
	pool := &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{Parents: []string{"uplink", "eth2"}}}
	got, err := named(pool, func(name string) (netlink.Link, error) {
		if name == "eth2" {
			return nil, nil
		}
		return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth1"}}, nil
	}, nil)
	check.That(t, err == nil && slices.Equal(got, []string{"eth1"}), "got %v, %v", got, err)
}

// Each pod that comes or goes interrupts the kernel's list: what is missing from it may be there.
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
			got, err := named(pool, nil, func() ([]netlink.Link, error) {
				if lists++; lists <= row.failures {
					return row.links, row.err
				}
				return whole, nil
			})
			check.That(t, slices.Equal(got, row.want) && (err == nil) == row.known, "got %v, %v", got, err)
		})
	}
}
