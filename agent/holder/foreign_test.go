// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/foreignhost"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// proxied makes one host answer for every address of the subnet, except some.
func proxied(r *fakenode.Node, except ...string) {
	for addr := netip.MustParseAddr("10.0.0.1"); addr.As4()[3] < 255; addr = addr.Next() {
		if !slices.Contains(except, addr.String()) {
			r.Wire.Answers[addr] = fakenode.Stranger
		}
	}
}

// quarantined counts the Quarantined leases.
func quarantined(r *fakenode.Node) (n int) {
	for _, l := range r.API.Leases() {
		if l.Spec.State == v1alpha1.StateQuarantined {
			n++
		}
	}
	return n
}

func TestAProxyCostsAPoolAFewAddressesAndNotAll(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.201"))
	proxied(r)
	text := r.Refused(agentapi.CodeTryAgainLater, r.Pod("web", "u1"))
	check.Says(t, text, fakenode.Stranger.String(), "pool v4", "ignoreMACs", "excludeIPs")
	n := len(r.API.Leases())
	check.Must(t, n == v1alpha1.ManyAddresses && quarantined(r) == n, "leases %v, want %d Quarantined ones", r.Names(), v1alpha1.ManyAddresses)
	probes := len(r.Wire.Did)
	check.That(t, probes == foreignhost.MaxConflicts+1, "%d probes, want MAX_CONFLICTS and one more", probes)
	// The retries of the runtime, and the ADDs of other pods.
	for range 20 {
		r.Refused(agentapi.CodeTryAgainLater, r.Pod("db", "u2"))
	}
	if n := len(r.API.Leases()); n != v1alpha1.ManyAddresses || quarantined(r) != n {
		t.Errorf("leases %v", r.Names())
	}
	check.Equal(t, len(r.Wire.Did), foreignhost.MaxConflicts+21, "each ADD in the interval tries one address: probes")
	// Neither time nor another agent adds to them.
	r.Skip(2 * foreignhost.Interval)
	r.Refused(agentapi.CodeTryAgainLater, r.Pod("web", "u3"))
	r.Restart()
	r.Refused(agentapi.CodeTryAgainLater, r.Pod("web", "u4"))
	if n := len(r.API.Leases()); n != v1alpha1.ManyAddresses || quarantined(r) != n {
		t.Errorf("leases %v", r.Names())
	}
}

// A router with many addresses in the range of the pool must not keep pods from the others.
func TestAHostOfManyAddressesDoesNotKeepAPodFromTheOthers(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.21"))
	proxied(r, "10.0.0.8", "10.0.0.12", "10.0.0.21")
	first := r.MustAdd(r.Pod("web", "u1"))
	second := r.MustAdd(r.Pod("web", "u2"))
	if first[0] != "10.0.0.8" || second[0] != "10.0.0.12" || quarantined(r) != v1alpha1.ManyAddresses {
		t.Errorf("got %v and %v; leases %v", first, second, r.Names())
	}
	// More conflicts come than MAX_CONFLICTS in this interval.
	r.Refused(agentapi.CodeTryAgainLater, r.Pod("web", "u3"))
	r.Skip(foreignhost.Interval)
	third := r.MustAdd(r.Pod("web", "u4"))
	check.That(t, third[0] == "10.0.0.21", "got %v", third)
	check.That(t, quarantined(r) == v1alpha1.ManyAddresses, "leases %v", r.Names())
}

func TestOtherForeignHostsArePassedOverAsBefore(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.40"))
	for i := range byte(30) {
		r.Wire.Answers[netip.AddrFrom4([4]byte{10, 0, 0, 2 + i})] = []byte{2, 0xbd, 0, 0, 1, i}
	}
	got := r.MustAdd(r.Pod("web", "u1"))
	check.That(t, got[0] == "10.0.0.32" && quarantined(r) == 30, "got %v; leases %v", got, r.Names())
}

func TestAnAddressThatWasAskedForIsRefusedAlsoIfItsHostHasMany(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.201"))
	proxied(r)
	for i := range byte(5) {
		request := r.Pod("web", "u1")
		request.IPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, 100 + i})}
		r.Refused(agentapi.CodeAddressRefused, request)
	}
	check.That(t, len(r.API.Leases()) == v1alpha1.ManyAddresses, "leases %v", r.Names())
}
