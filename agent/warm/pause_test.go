// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"testing"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/foreignhost"
)

func TestAProxyMakesNoEndlessWarmLeases(t *testing.T) {
	for _, mode := range []v1alpha1.ConflictMode{v1alpha1.ModeEnforce, v1alpha1.ModeObserve} {
		t.Run(string(mode), func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.proxied = true
				r.keeper.Used("v4", "eth1")
				made := func() (n int) {
					r.mu.Lock()
					defer r.mu.Unlock()
					for _, w := range r.writes {
						if len(w) > 6 && w[:6] == "create" {
							n++
						}
					}
					return n
				}
				r.pass(foreignhost.Interval / 2)
				if n := made(); n < v1alpha1.ManyAddresses || n > v1alpha1.ManyAddresses+3 {
					t.Errorf("%d leases were created in half an interval", n)
				}
				r.pass(10 * foreignhost.Interval)
				if n := made(); n > 40 {
					t.Errorf("%d leases were created in ten intervals", n)
				}
				want := v1alpha1.ManyAddresses
				if mode == v1alpha1.ModeObserve {
					want = 0
				}
				if n := len(r.leases()); n != want {
					t.Errorf("leases %v", r.leases())
				}
				// The proxy is named: the next leases are made at once.
				before := made()
				r.changePool(func(p *v1alpha1.IPPool) { p.Spec.ConflictDetection.IgnoreMACs = []string{"02:bd:00:00:00:01"} })
				r.pass(5 * time.Second)
				if made() == before {
					t.Error("no lease was created after the pool changed")
				}
			}, v4(func(p *v1alpha1.IPPool) { p.Spec.ConflictDetection = &v1alpha1.ConflictDetection{Mode: mode} }))
		})
	}
}
