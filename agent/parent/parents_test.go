// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"context"
	"errors"
	"iter"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/testr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
)

// unattachable is a kernel that attaches no observer now.
type unattachable struct {
	segment.Kernel
	asked []int
}

func (k *unattachable) AttachObserver(parent int) error {
	k.asked = append(k.asked, parent)
	return errors.New("too many open files")
}

// newParents is node n1, with pods of pool v4 on these parents.
func newParents(t *testing.T, k segment.Kernel, parents ...journal.Entry) *Parents {
	t.Helper()
	return &Parents{
		Node: "n1", Segments: segment.New(segment.Config{Kernel: k}), Sightings: sightings{}, Pools: pools{}, Log: testr.New(t),
		Bound: func() iter.Seq[*journal.Entry] {
			return func(yield func(*journal.Entry) bool) {
				for _, e := range parents {
					e.Addresses = []journal.Address{{Pool: "v4"}}
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

func (p pools) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("not asked for")
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
	if err != nil || !exists {
		t.Fatal("there is no lo")
	}
	return index
}

func TestTheParentsOfAPoolBestFirst(t *testing.T) {
	p := newParents(t, &unattachable{}, journal.Entry{Parent: "eth1", ParentIndex: 7})
	if got, err := p.of(pool("v4", "none", "lo")); err != nil || len(got) == 0 || got[0] != lo(t) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := p.of(pool("other")); err != nil || len(got) != 0 {
		t.Errorf("of a pool without pods here: %v, %v", got, err)
	}
	if _, _, err := p.Segment(pool("other"), segment.LastHolder{}); err == nil || !strings.Contains(err.Error(), "spec.parents") {
		t.Errorf("no parent at all: %v", err)
	}
}

// R3: only an open segment repeats the claims of the pods on its parent.
func TestAParentThatCouldNotBeOpenedAtTheStartIsTriedAgain(t *testing.T) {
	k := &unattachable{}
	p := newParents(t, k, journal.Entry{Parent: "eth1", ParentIndex: 7}, journal.Entry{Parent: "eth1", ParentIndex: 7})
	p.attach()
	p.attach()
	if !slices.Equal(k.asked, []int{7, 7}) {
		t.Errorf("asked for %v", k.asked)
	}
}

// An interface may have been renamed since the ADD, and another interface may
// have its name now: silence there proves nothing.
func TestTheParentOfAPoolsPodsIsFoundByIndexNotByName(t *testing.T) {
	const gone = 1<<31 - 1
	for _, row := range []struct {
		name   string
		index  int
		opened []int
	}{
		{"eth1", lo(t), []int{lo(t)}},
		{"lo", gone, nil},
	} {
		k := &unattachable{}
		p := newParents(t, k, journal.Entry{Parent: row.name, ParentIndex: row.index})
		if _, guessed, err := p.Segment(pool("v4"), segment.LastHolder{}); err == nil || guessed || !slices.Equal(k.asked, row.opened) {
			t.Errorf("%s of old: opened %v, guessed %v, %v", row.name, k.asked, guessed, err)
		}
	}
}

// sightings are the speakers of 10.0.0.9 on the observed parents.
type sightings map[int]bpf.Sighting

func (s sightings) ObserversAttached() (map[int]bool, error) {
	all := map[int]bool{}
	for parent := range s {
		all[parent] = true
	}
	return all, nil
}

func (s sightings) Sighting(key bpf.Key) (bpf.Sighting, bool, error) {
	seen, ok := s[int(key.Segment)]
	return seen, ok && key.Addr == lost.Addr, nil
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
			p.Sightings = row.seen
			if _, guessed, err := p.Segment(pool("own"), row.last); err == nil || guessed || !slices.Equal(k.asked, row.opened) {
				t.Errorf("opened %v, guessed %v, %v", k.asked, guessed, err)
			}
		})
	}
}

// R1: whoever forges a frame of the last holder on another segment would choose the segment whose silence
// frees the address.
func TestAForgedSightingDoesNotOverruleThePool(t *testing.T) {
	k := &unattachable{}
	p := newParents(t, k)
	p.Sightings = sightings{lo(t): {MAC: lost.MAC, LastSeen: 1}}
	if _, _, err := p.Segment(pool("own", "eth9"), lost); err == nil || len(k.asked) > 0 {
		t.Errorf("opened %v, %v", k.asked, err)
	}
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
			p.Sightings = sightings{here: {MAC: lost.MAC, LastSeen: 1}}
			other := pool("other")
			other.Spec.Network, other.Spec.Subnet = row.network, row.subnet
			p.Pools = pools{*other}
			if _, guessed, err := p.Segment(pool("own", row.parents...), lost); err == nil || guessed || !slices.Equal(k.asked, row.opened) {
				t.Errorf("opened %v, guessed %v, %v", k.asked, guessed, err)
			}
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
		if got, ok := choose(row.said, row.heard); got != row.want || ok != (row.want != 0) {
			t.Errorf("%s: %d, %v", row.name, got, ok)
		}
	}
}

// A node that hears the holders of addresses from the start can verify them before it has a pod.
func TestTheParentsOfTheNetworkConfigurationAreOpenedBeforeTheFirstPod(t *testing.T) {
	k := &unattachable{}
	p := newParents(t, k)
	p.Configured = []string{"none", "lo"}
	p.attach()
	if !slices.Equal(k.asked, []int{lo(t)}) {
		t.Errorf("asked for %v", k.asked)
	}
}
