// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"net/netip"
	"testing"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

func fromIP(pool *v1alpha1.IPPool) *v1alpha1.IPPool {
	pool.Spec.MACPolicy = &v1alpha1.MACPolicy{Type: v1alpha1.MACFromIP, Prefix: "0a:58"}
	return pool
}

// wantMAC checks the MAC in the lease, the journal, the kernel and the pod.
func wantMAC(t *testing.T, r *fakenode.Node, web agentapi.AddRequest, addr, mac string) {
	t.Helper()
	check.Equal(t, r.Lease(addr, v1alpha1.StateBound).Spec.Holder.MAC, mac, "the lease has MAC")
	e, _ := r.Journal.Get(web.ContainerID, web.Interface)
	check.Equal(t, e.MAC, mac, "the journal has MAC")
	l, _, err := r.Kernel.Lease(bpf.Key{Segment: fakenode.ParentIndex, Addr: netip.MustParseAddr(addr)})
	check.That(t, err == nil && l.MAC.String() == mac && l.Flags&bpf.FlagDown == 0, "the kernel has %+v, %v, want MAC %s", l, err, mac)
	link, err := r.FindLink(web.NetNS, web.Interface)
	check.That(t, err == nil && link.MAC.String() == mac, "the interface has MAC %s, %v, want %s", link.MAC, err, mac)
}

func TestTheMACFollowsTheAddress(t *testing.T) {
	for name, test := range map[string]struct {
		pool      *v1alpha1.IPPool
		prepare   func(*fakenode.Node)
		addr, mac string
	}{
		"of an IPv4 pool": {fakenode.V4("10.0.0.2"), func(*fakenode.Node) {}, "10.0.0.2", "0a:58:0a:00:00:02"},
		"after a conflict, to the next address": {fakenode.V4("10.0.0.2-10.0.0.3"),
			func(r *fakenode.Node) { r.Wire.Answers[fakenode.Two] = fakenode.Stranger }, "10.0.0.3", "0a:58:0a:00:00:03"},
		"that was Warm": {fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")),
			func(r *fakenode.Node) { r.WarmLease("10.0.0.7", true) }, "10.0.0.7", "0a:58:0a:00:00:07"},
		"that is taken over": {fakenode.V4("10.0.0.2"), func(r *fakenode.Node) {
			r.API.Put(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodTerminating)))
			r.Wire.Verdicts[fakenode.Two] = segment.Fenced
		}, "10.0.0.2", "0a:58:0a:00:00:02"},
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fromIP(test.pool))
			test.prepare(r)
			web := r.Pod("web-0", "u1", fakenode.OfStatefulSet)
			r.MustAdd(web)
			wantMAC(t, r, web, test.addr, test.mac)
			r.Restart()
			wantMAC(t, r, web, test.addr, test.mac)
		})
	}
}

func TestWithoutAPolicyTheInterfaceKeepsItsMAC(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	wantMAC(t, r, web, "10.0.0.2", fakenode.MacOf(web.NetNS).String())
}

func TestAFailedADDGivesTheInterfaceItsMACBack(t *testing.T) {
	r := fakenode.New(t, fromIP(fakenode.V4("10.0.0.2")))
	r.Patience = 0
	r.Wire.Answers[fakenode.Two] = fakenode.Stranger
	web := r.Pod("web", "u1")
	check.Must(t, fakenode.TryAdd(r, web) != nil, "ADD succeeds")
	link, _ := r.FindLink(web.NetNS, web.Interface)
	check.That(t, link.MAC.String() == fakenode.MacOf(web.NetNS).String(), "the interface is left with %s", link.MAC)
}

func TestAMACFromTheAddressIsRefusedForIPVLAN(t *testing.T) {
	r := fakenode.New(t, fromIP(fakenode.V4("10.0.0.2")))
	r.IPVLAN = true
	check.Says(t, fakenode.TryAdd(r, r.Pod("web", "u1")), "pool v4: spec.macPolicy", "ipvlan")
	check.None(t, r.API.Leases(), "left")
}

// The last holder has the MAC of the new one: the claim asks it by its token.
func TestATakeOverWithTheSameMACAsksTheLastHolderByItsToken(t *testing.T) {
	r := fakenode.New(t, fromIP(fakenode.V4("10.0.0.2")))
	l := fakenode.Held("10.0.0.2")
	l.Spec.Holder.MAC = "0a:58:0a:00:00:02"
	fakenode.Quarantined(v1alpha1.ReasonPodTerminating)(&l.Spec)
	r.API.Put(l)
	r.Wire.Verdicts[fakenode.Two] = segment.Fenced
	r.MustAdd(r.Pod("web-0", "u1", fakenode.OfStatefulSet))
	c := r.Wire.Verification.Claim
	check.That(t, c.PreviousToken == fakenode.LastToken && c.PreviousMAC.String() == "0a:58:0a:00:00:02", "claimed as %+v", c)
	k, _, err := r.Kernel.Lease(bpf.Key{Segment: fakenode.ParentIndex, Addr: fakenode.Two})
	check.That(t, err == nil && k.Flags == bpf.FlagSharedMAC, "the kernel has %+v, %v", k, err)
}

// The interface of the sandbox before is still there, and up. No two interfaces of a parent that are
// up may have one MAC.
func TestTheInterfaceOfTheLastSandboxIsSetDown(t *testing.T) {
	r := fakenode.New(t, fromIP(fakenode.V4("10.0.0.2")))
	first := r.Pod("web-0", "u1", fakenode.OfStatefulSet)
	r.MustAdd(first)
	second := next(first, "c-next")
	r.MustAdd(second)
	wantMAC(t, r, second, "10.0.0.2", "0a:58:0a:00:00:02")
	check.List(t, r.Lowered, []string{first.NetNS}, "set down")
}
