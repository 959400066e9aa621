// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/waiting"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/scrape"
)

// noWaits counts nothing.
type noWaits struct{}

func (noWaits) Waiting(string, int)        {}
func (noWaits) Waited(time.Duration, bool) {}

// only is a full pool of one address.
type only struct {
	waiting.Pool
	addr  netip.Addr
	lease *v1alpha1.IPLease
}

// full makes a pool of one address, which a pod has.
func (w world) full(name, address string, by *lease.Store, pod *corev1.Pod) only {
	w.Helper()
	pool := w.pool(name, address+"/32")
	o := only{waiting.Pool{Name: name, Set: check.Value(poolset.Addresses(pool))(w), Agents: 2}, netip.MustParseAddr(address), nil}
	o.lease = check.Value(by.Create(w.ctx, o.wish(pod)))(w)
	return o
}

// wish is the lease of another sandbox of a pod.
func (o only) wish(pod *corev1.Pod) lease.Request {
	return lease.Request{Pool: o.Name, Addr: o.addr, Parent: "eth0", Holder: v1alpha1.Holder{
		Namespace: pod.Namespace, Pod: pod.Name, PodUID: string(pod.UID), Interface: "eth0", ContainerID: rand.Text(), Guarded: true,
	}}
}

// served is an ADD that has the address.
type served struct {
	lease *v1alpha1.IPLease
	// offered is the time of the offer that it used, and failed the number of those before it.
	offered time.Time
	failed  int
	err     error
}

// add waits for the address and takes it, as an ADD does.
func (l listener) add(w world, o only, pod *corev1.Pod, done chan<- served) {
	place := l.queue.Enter(waiting.Key{PodUID: string(pod.UID), Interface: "eth0"})
	go func() {
		for s := (served{}); ; s.failed++ {
			_, s.err = place.Await(w.ctx, []waiting.Pool{o.Pool}, time.Now().Add(waiting.Longest))
			s.offered = time.Now()
			if s.err == nil {
				s.lease, s.err = l.leases.Create(w.ctx, o.wish(pod))
			}
			if !errors.Is(s.err, lease.ErrTaken) {
				place.Leave(s.err == nil)
				done <- s
				return
			}
		}
	}()
}

// watches is the number of watches of leases at the API server.
func (w world) watches(config *rest.Config) float64 {
	w.Helper()
	text := check.Value(check.Value(kubernetes.NewForConfig(config))(w).RESTClient().Get().AbsPath("/metrics").Stream(w.ctx))(w)
	defer text.Close()
	n, _ := check.Value(scrape.Parse(text))(w).Sum("apiserver_longrunning_requests", map[string]string{"resource": "ipleases", "verb": "WATCH"})
	return n
}

// freedAddress has ADDs of two nodes wait for an address that comes free again and again.
func freedAddress(w world, config *rest.Config) {
	before := w.watches(config)
	check.That(w, before > 0, "there is no watch of the controller: the figure is blind")
	const told = 250 * time.Millisecond // until another node is told of an address
	nodes := []string{"n1", "n2"}
	agents := []listener{w.listen(config, nodes[0]), w.listen(config, nodes[1])}
	var pods []*corev1.Pod // they live, so no lease is reclaimed
	for _, node := range nodes {
		pods = append(pods, w.runningPod("waits-on-"+node, node))
	}
	o := w.full("few", "10.61.0.5", agents[0].leases, pods[0])
	const times = 15
	var took []time.Duration
	failed, late := 0, 0
	for range times {
		done := make(chan served, len(agents))
		for i, l := range agents {
			l.add(w, o, pods[i], done)
		}
		for _, node := range nodes {
			w.eventually("the controller knows of the wait on "+node, func() error {
				h := w.hint(node)
				return unless(len(h.Spec.Waits) == 1 && h.Status.Round == h.Spec.Round, "the hint is %+v", h)
			})
		}
		w.eventually("no watch of leases for ADDs that wait", func() error { // the controller may open its own again
			now := w.watches(config)
			return unless(now == before, "there are %v, and were %v", now, before)
		})
		for range agents {
			check.OK(w, agents[0].leases.Delete(w.ctx, o.lease))
			free := time.Now()
			s := check.Receive(w, limit, "the address", done)
			check.OK(w, s.err)
			o.lease = s.lease
			if time.Since(free) >= told { // so another ADD was told rightly, and failed
				late++
			}
			took, failed = append(took, s.offered.Sub(free)), failed+s.failed
		}
	}
	slices.Sort(took)
	w.Logf("an address that comes free is offered after %s, at worst after %s; %d creates of %d failed, %d were late", took[times], took[len(took)-1], failed, failed+len(took), late)
	// Without an offer, an ADD looks for itself after 5 s.
	check.That(w, took[times] < 4*time.Second, "half of the offers took longer: %v", took)
	check.That(w, 3*(failed-late) <= len(took), "%d creates failed for %d addresses, %d of them late: nodes outrun one another", failed, len(took), late)
	for _, node := range nodes {
		w.eventually("nothing is left in the hint of "+node, func() error {
			h := w.hint(node)
			return unless(len(h.Spec.Waits) == 0 && len(h.Status.Free) == 0, "the hint is %+v", h)
		})
	}
	check.OK(w, agents[0].leases.Delete(w.ctx, o.lease))
}

// freedUnseen has an ADD of each agent wait for an address that comes free while no controller tells of it.
func freedUnseen(w world, agents ...listener) {
	w.Helper()
	done := make(chan served, len(agents))
	var pools []only
	for i, l := range agents {
		pod := w.podObject("default", fmt.Sprint("waits-unseen-", i), "n3")
		pod.UID = types.UID(pod.Name)
		o := w.full(fmt.Sprint("unseen-", i), fmt.Sprint("10.61.0.", 6+i), l.leases, pod)
		l.add(w, o, pod, done)
		w.eventually("the agent has asked", func() error {
			waits := l.queue.Waits()
			return unless(len(waits) == 1, "it waits for %v", waits)
		})
		pools = append(pools, o)
	}
	free := time.Now()
	for i, l := range agents {
		check.OK(w, l.leases.Delete(w.ctx, pools[i].lease))
	}
	for range agents {
		s := check.Receive(w, limit, "the address", done)
		check.OK(w, s.err)
		w.Logf("without a controller that tells of it, an address that comes free is offered after %s", s.offered.Sub(free))
		check.OK(w, agents[0].leases.Delete(w.ctx, s.lease))
	}
}
