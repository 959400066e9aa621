// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

func (m *machine) reservations(t *testing.T) {
	m.pool(t, "reserved", 60, func(p *v1alpha1.IPPool) { p.Spec.IPs = []string{"10.70.60.2-10.70.60.3"} })
	user := m.sandbox(from("reserved"))
	used := m.gets(t, user, "10.70.60.").IPs[0].Address.Addr()
	check(t, m.Create(t.Context(), &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "used"}, Spec: v1alpha1.ReservedIPSpec{IPs: []string{used.String()}}}))

	m.asked(t, "reserved", used.String(), func(answer string) bool { return strings.Contains(answer, "it is reserved") })
	asks := m.sandbox(from("reserved"))
	asks.IPs = []netip.Addr{used}
	m.refuses(t, asks, agentapi.CodeAddressRefused, used.String(), "it is reserved")
	check(t, m.agent.Check(t.Context(), agentapi.CheckRequest{Attachment: user.Attachment}))
	if l := m.lease(used); l == nil || l.Spec.State != v1alpha1.StateBound {
		t.Errorf("the address in use is %+v", l)
	}
	check(t, m.agent.Del(t.Context(), agentapi.DelRequest{Attachment: user.Attachment}))
	for range 3 {
		r := m.sandbox(from("reserved"))
		if got := m.gets(t, r).IPs[0].Address.Addr(); got == used {
			t.Errorf("%s is reserved and was handed out", got)
		}
		check(t, m.agent.Del(t.Context(), agentapi.DelRequest{Attachment: r.Attachment}))
	}
}

func (m *machine) exhaustion(t *testing.T) {
	m.pool(t, "one", 65, func(p *v1alpha1.IPPool) { p.Spec.IPs = []string{"10.70.65.2"} })
	first, second := m.sandbox(from("one")), m.sandbox(from("one"))
	m.gets(t, first, "10.70.65.2")
	m.refuses(t, second, agentapi.CodeExhausted, "pool one: it is exhausted")
	check(t, m.agent.Del(t.Context(), agentapi.DelRequest{Attachment: first.Attachment}))
	// It cools down, and nothing else is free.
	m.gets(t, second, "10.70.65.2")
}

func (m *machine) edits(t *testing.T) {
	p := m.pool(t, "edited", 66)
	change := func(c func(*v1alpha1.IPPoolSpec)) {
		t.Helper()
		check(t, m.Get(t.Context(), types.NamespacedName{Name: p.Name}, p))
		c(&p.Spec)
		check(t, m.Update(t.Context(), p))
	}
	user := m.sandbox(from("edited"))
	used := m.gets(t, user, "10.70.66.").IPs[0].Address.Addr()
	stays := func(when string) {
		t.Helper()
		l := m.lease(used)
		if err := m.agent.Check(t.Context(), agentapi.CheckRequest{Attachment: user.Attachment}); err != nil || l == nil || l.Spec.State != v1alpha1.StateBound {
			t.Errorf("%s: lease %+v, CHECK %v", when, l, err)
		}
	}
	yes := true
	change(func(s *v1alpha1.IPPoolSpec) { s.Disable = &yes })
	m.refuses(t, m.sandbox(from("edited")), agentapi.CodeNoPool, "pool edited: it is disabled")
	stays("disabled")
	change(func(s *v1alpha1.IPPoolSpec) { s.Disable, s.IPs = nil, []string{"10.70.66.99"} })
	m.gets(t, m.sandbox(from("edited")), "10.70.66.99")
	stays("outside of ips")
	m.refuses(t, m.sandbox(from("edited")), agentapi.CodeExhausted, "pool edited: it is exhausted")
	// A newer sandbox of the pod keeps the address, which is in no pool any more.
	newer := m.sandbox()
	newer.Pod = user.Pod
	m.gets(t, newer, used.String())
}

// There is no controller here, so the agent itself finds the pool that hands out a common address.
func (m *machine) overlapping(t *testing.T) {
	shared := func(p *v1alpha1.IPPool) { p.Spec.IPs = []string{"10.70.67.2"} }
	m.pool(t, "overlap-older", 67, shared)
	m.pool(t, "overlap-younger", 67, shared)
	m.refuses(t, m.sandbox(from("overlap-younger")), agentapi.CodeNoPool, "pool overlap-younger: other pools hand out all its addresses")
	m.gets(t, m.sandbox(from("overlap-older")), "10.70.67.2")
}

// The rotation alone would give the address freed first: it is the one after
// the last. Without a cooldown only the one freed last is left alone.
func (m *machine) cooldown(t *testing.T) {
	for i, c := range []struct {
		rule     string
		cooldown time.Duration
		waits    bool
	}{
		{"a freed address cools down", time.Hour, true},
		{"without a cooldown it is the next", 0, false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			n := 68 + i
			addr := func(host int) string { return fmt.Sprintf("10.70.%d.%d", n, host) }
			p := m.pool(t, fmt.Sprintf("cooldown-%d", i), n, func(p *v1alpha1.IPPool) {
				p.Spec.IPs = []string{addr(2), addr(4), addr(6)}
				p.Spec.Reclaim = &v1alpha1.Reclaim{Cooldown: &v1alpha1.Duration{Duration: c.cooldown}}
			})
			first, second := m.sandbox(from(p.Name)), m.sandbox(from(p.Name))
			freed := m.gets(t, first).IPs[0].Address.Addr()
			m.gets(t, second)
			m.gets(t, m.sandbox(from(p.Name)))
			for _, r := range []agentapi.AddRequest{first, second} {
				check(t, m.agent.Del(t.Context(), agentapi.DelRequest{Attachment: r.Attachment}))
			}
			check(t, m.Get(t.Context(), client.ObjectKeyFromObject(p), p))
			p.Spec.IPs, p.Spec.ExcludeIPs = append(p.Spec.IPs, freed.Next().String()), []string{addr(99)}
			check(t, m.Update(t.Context(), p))
			m.asked(t, p.Name, addr(99), func(answer string) bool { return strings.Contains(answer, "it is excluded") })
			next, last := freed, freed.Next()
			if c.waits {
				next, last = last, next
			}
			m.gets(t, m.sandbox(from(p.Name)), next.String())
			m.gets(t, m.sandbox(from(p.Name)), last.String())
		})
	}
}
