// SPDX-License-Identifier: Apache-2.0

//go:build api

package waiting

import (
	"context"
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

// heard passes on the news of a watch.
type heard struct {
	listed  chan map[netip.Addr]struct{}
	changed chan string
}

func (h heard) Listed(taken map[netip.Addr]struct{}) { h.listed <- taken }
func (h heard) Changed(addr netip.Addr, leased bool) {
	if leased {
		h.changed <- "lease of " + addr.String()
	} else {
		h.changed <- addr.String() + " is free"
	}
}

func TestTheLeasesOfOnePoolAreFollowed(t *testing.T) {
	scheme := runtime.NewScheme()
	check.OK(t, v1alpha1.AddToScheme(scheme))
	c := check.Value(client.NewWithWatch(controlplane.New(t).Admin(), client.Options{Scheme: scheme}))(t)
	add := func(addr, pool string) *v1alpha1.IPLease {
		t.Helper()
		l := &v1alpha1.IPLease{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LeaseName("", netip.MustParseAddr(addr))},
			Spec: v1alpha1.IPLeaseSpec{
				Address: addr, Pool: pool, State: v1alpha1.StateBound, NodeName: "n1", Session: "node-1/boot-1",
				Holder: &v1alpha1.Holder{Namespace: "shop", Pod: "web-0", PodUID: "u0", Interface: "eth0", ContainerID: "c0"},
			},
		}
		check.OK(t, c.Create(t.Context(), l))
		return l
	}
	first := add("10.0.0.2", "lan")
	other := add("10.1.0.2", "wan")
	h := heard{listed: make(chan map[netip.Addr]struct{}, 1), changed: make(chan string, 10)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Leases{c}.Follow(ctx, "lan", h) }()
	taken := <-h.listed
	check.Must(t, len(taken) == 1, "listed %v", taken)
	for _, l := range []*v1alpha1.IPLease{other, first} {
		check.OK(t, c.Delete(t.Context(), l))
	}
	add("10.0.0.3", "lan")
	for _, want := range []string{"10.0.0.2 is free", "lease of 10.0.0.3"} {
		check.Equal(t, <-h.changed, want, "heard")
	}
	cancel()
	check.That(t, <-ended != nil, "a watch whose context has ended reports no reason")
}
