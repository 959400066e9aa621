// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

// TestController runs one controller against one API server. Its subtests have
// pools, nodes and pods of their own.
func TestController(t *testing.T) {
	w, server := newWorld(t)
	w.readyNode("n1")
	w.readyNode("n2")
	said := &auditLog{}
	w.page = freeAddress(t)
	w.runLogging(server.Admin(), policy(), clock.RealClock{}, said)
	t.Run("together", func(t *testing.T) {
		for name, test := range map[string]func(world){
			"a pod Terminating past deletionTimestamp and extraGrace loses its address":  terminating,
			"a force-deleted pod loses its address after extraGrace":                     forceDeleted,
			"a pod replaced by one with another UID loses its address":                   replaced,
			"a finished pod loses its address":                                           finished,
			"a pod whose node is gone loses its address":                                 nodeGone,
			"a running pod is deleted before its address is taken":                       deletedFirst,
			"a retained lease ends when its StatefulSet is scaled in":                    scaledIn,
			"a retained lease ends with its StatefulSet":                                 statefulSetGone,
			"a lease without pool says so":                                               withoutPool,
			"a lease outside its pool says so":                                           outsidePool,
			"a pod of a silent node is deleted after nodeDown's time":                    nodeDownAfter,
			"a pool keeps what the cluster would take from a silent node":                nodeDownNever,
			"a pod that nobody has ever seen loses its address":                          neverWas,
			"an event is told whatever names it has":                                     longNames,
			"the template's annotations decide, and can be changed":                      templateChanged,
			"the pool's limit ends a retention":                                          cappedRetention,
			"an owner whose kind is not served keeps the address, and the lease says so": ownerNotServed,
			"an address that is kept for a pod ends with the pod":                        keptForPods,
			"a retained lease ends when the next pod of its name has another address":    succeeded,
			"status and bitmap are published":                                            published,
			"an invalid pool is not ready":                                               invalidPool,
			"a pool keeps durations that Go writes otherwise":                            otherDurations,
			"agents have indexes":                                                        indexes,
			"there is a claim key":                                                       claimKey,
			"the page explains a lease as the controller decides":                        onThePage(server),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(w.in(t))
			})
		}
	})
	t.Run("then each reason has been told by event, metric and audit line", func(t *testing.T) { w.in(t).reasonsAreTold(said) })
}

func terminating(w world) {
	w.pool("terminating", "10.1.0.0/24")
	pod := w.runningPod("terminating-0", "n1")
	token := check.Value(strconv.ParseInt(w.bound("terminating", "10.1.0.2", pod).ResourceVersion, 10, 64))(w)
	w.remove(pod)
	check.OK(w, w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
	due := pod.DeletionTimestamp.Add(extraGrace)

	lease := w.waitQuarantined("10.1.0.2", v1alpha1.ReasonPodTerminating)
	now := time.Now()
	check.That(w, !now.Before(due), "taken %s too early", due.Sub(now))
	check.That(w, lease.Spec.NodeName == "n1", "%s verifies, want n1, the holder's own node", lease.Spec.NodeName)
	want := v1alpha1.PreviousHolder{
		Node: "n1", Session: "node/boot", PodUID: string(pod.UID), MAC: "02:00:00:00:00:0a", Token: token, Guarded: true,
		Reason: v1alpha1.ReasonPodTerminating,
	}
	got := *lease.Spec.Previous
	got.Since = metav1.Time{}
	check.Equal(w, got, want, "previous holder")
	h := lease.Spec.Holder
	check.That(w, h != nil && h.Pod == pod.Name, "the holder's identity was lost: %+v", h)
	w.waitEvent(pod.Namespace, "AddressReclaimed", pod.Name, "10.1.0.2", string(pod.UID), "PodTerminating", "n1 verifies")
	w.waitMetric("fenceline_reclaims_total reason=PodTerminating", func(v float64) bool { return v >= 1 })
	w.waitMetric("fenceline_quarantined_addresses pool=terminating reason=PodTerminating", func(v float64) bool { return v == 1 })
}

// patientPool is a pool whose extraGrace outlasts a slow API server. A deletion without grace is two of
// its writes, and between them the pod is Terminating.
func (w world) patientPool(name, subnet string) {
	change(w, w.pool(name, subnet), func(p *v1alpha1.IPPool) { p.Spec.Reclaim.ExtraGrace.Duration = 10 * extraGrace })
}

func forceDeleted(w world) {
	w.patientPool("forced", "10.2.0.0/24")
	pod := w.runningPod("forced-0", "n1")
	w.bound("forced", "10.2.0.2", pod)
	// A controller that has not looked at both says PodGone.
	change(w, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "forced"}}, func(p *v1alpha1.IPPool) { p.Spec.ExcludeIPs = []string{"10.2.0.2"} })
	w.waitMessage("10.2.0.2", v1alpha1.ReasonOutsidePool, "no longer has the address")
	deleted := time.Now()
	w.remove(pod, client.GracePeriodSeconds(0))

	w.waitQuarantined("10.2.0.2", v1alpha1.ReasonPodDeleted)
	waited := time.Since(deleted)
	check.That(w, waited >= 10*extraGrace, "taken after %s: the agent's DEL has %s", waited, 10*extraGrace)
}

func replaced(w world) {
	w.patientPool("replaced", "10.3.0.0/24")
	pod := w.runningPod("replaced-0", "n1")
	w.bound("replaced", "10.3.0.2", pod)
	w.remove(pod, client.GracePeriodSeconds(0))
	w.runningPod("replaced-0", "n2")

	lease := w.waitQuarantined("10.3.0.2", v1alpha1.ReasonPodReplaced)
	check.Equal(w, lease.Spec.Previous.PodUID, string(pod.UID), "taken from")
}

func finished(w world) {
	w.pool("finished", "10.4.0.0/24")
	pod := w.runningPod("finished-0", "n1")
	w.bound("finished", "10.4.0.2", pod)
	w.setPodStatus(pod, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodSucceeded
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Image: "none", ImageID: "none",
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Now()}}}}
	})
	w.waitQuarantined("10.4.0.2", v1alpha1.ReasonPodFinished)
}

func nodeGone(w world) {
	w.pool("nodegone", "10.5.0.0/24")
	w.readyNode("leaving")
	pod := w.runningPod("nodegone-0", "leaving")
	w.bound("nodegone", "10.5.0.2", pod)
	w.bound("nodegone", "10.5.0.3", w.runningPod("nodegone-1", "n2"))
	w.waitBound("nodegone", 2)

	// What a cloud's controller and the pod garbage collector do.
	check.OK(w, w.client.Delete(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "leaving"}}))
	w.remove(pod, client.GracePeriodSeconds(0))

	lease := w.waitQuarantined("10.5.0.2", v1alpha1.ReasonNodeGone)
	check.That(w, lease.Spec.NodeName == "n2", "%s verifies, want n2, which has a lease of the pool", lease.Spec.NodeName)
}

// deletedFirst is rule R12: a pod that Kubernetes believes Running, on a node that a person says is off.
func deletedFirst(w world) {
	w.pool("first", "10.6.0.0/24")
	w.readyNode("off")
	pod := w.runningPod("first-0", "off")
	w.bound("first", "10.6.0.2", pod)
	w.setReady("off", corev1.ConditionUnknown)
	change(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "off"}}, func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	})

	lease := w.waitQuarantined("10.6.0.2", v1alpha1.ReasonOutOfService)
	err := w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), pod)
	check.That(w, apierrors.IsNotFound(err), "the address was taken from a pod that Kubernetes believes %s (%v)", pod.Status.Phase, err)
	check.That(w, lease.Spec.NodeName != "off", "a node that is off verifies")
	w.waitEvent("default", "DeletedForReclaim", pod.Name, "10.6.0.2", "OutOfService")
}

func scaledIn(w world) {
	w.pool("scaled", "10.10.0.0/24")
	set := w.statefulSet("scaled", 2)
	w.retained("scaled", "10.10.0.2", "scaled", 0)
	w.retained("scaled", "10.10.0.3", "scaled", 1)
	change(w, set, func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To[int32](1) })
	w.waitGone("10.10.0.3")
	check.That(w, w.lease("10.10.0.2") != nil, "the address of an ordinal that is wanted was freed")
}

func statefulSetGone(w world) {
	w.pool("gone", "10.11.0.0/24")
	set := w.statefulSet("gone", 1)
	w.retained("gone", "10.11.0.2", "gone", 0)
	w.retained("gone", "10.11.0.3", "gone", 0, forever)
	check.OK(w, w.client.Delete(w.ctx, set))
	w.waitGone("10.11.0.2")
	check.That(w, w.lease("10.11.0.3") != nil, "an address retained for ever was freed")
}

func withoutPool(w world) {
	lease := w.bound("nowhere", "10.12.0.2", w.runningPod("nowhere-0", "n1"))
	w.waitMessage(lease.Name, v1alpha1.ReasonPoolGone, "pool nowhere does not exist")
	w.waitEvent("default", "PoolGone", lease.Name, "ends with its holder")
	check.Equal(w, w.lease(lease.Name).Spec.State, v1alpha1.StateBound, "the lease of a pod that runs is")
}

// pair is a leader and a controller that stands by. They are real processes that
// have no more rights than the chart gives.
type pair struct {
	world
	first, second *exec.Cmd
	// firstLeader is who first is in the leader's Lease.
	firstLeader string
}

// startPair starts both and returns once the first one leads.
func (w world) startPair(server *controlplane.Server) *pair {
	w.Helper()
	program := w.build()
	kubeconfig := w.kubeconfig(w.chartRights(server))
	p := &pair{world: w, first: w.start(program, kubeconfig)}
	w.eventually("a leader", func() (err error) { p.firstLeader, err = w.leader(); return err })
	p.second = w.start(program, kubeconfig)
	return p
}

// killLeader leaves the Lease as it is, so that the other one has to wait for it to run out.
func (p *pair) killLeader() {
	p.Helper()
	check.OK(p, p.first.Process.Kill())
	check.That(p, p.first.Wait() != nil, "the leader ended by itself")
}

// waitSuccessor waits until the other one leads.
func (p *pair) waitSuccessor() {
	p.Helper()
	p.eventually("another leader", func() error {
		now, err := p.leader()
		if err == nil && now == p.firstLeader {
			err = fmt.Errorf("it is still %s", now)
		}
		return err
	})
}

// endSuccessor ends it in an orderly way, which gives the Lease up, and looks
// whether either was refused anything.
func (p *pair) endSuccessor() {
	p.Helper()
	check.OK(p, p.second.Process.Signal(syscall.SIGTERM))
	check.Is(p, p.second.Wait(), nil, "the controller ended with")
	for _, cmd := range []*exec.Cmd{p.first, p.second} {
		for line := range strings.Lines(cmd.Stderr.(*output).String()) {
			check.That(p, !strings.Contains(line, "forbidden"), "the chart gives too few rights: %s", line)
		}
	}
}

// drain allocates as the agent of the node does, with what the API server tells,
// until the pool is exhausted, and returns what it has been given.
func (w world) drain(node, pool string) []string {
	w.Helper()
	var all v1alpha1.IPPoolList
	var reservations v1alpha1.ReservedIPList
	check.OK(w, errors.Join(w.client.List(w.ctx, &all), w.client.List(w.ctx, &reservations)))
	request := ipam.Request{
		Pod:      ipam.Pod{Namespace: "default", Name: "drain-" + pool},
		NodeName: node, Interface: "eth0", ConfigPools: ipam.ConfigPools{V4: []string{pool}},
	}
	choice := check.Value(ipam.ChoosePools(request, all.Items, poolset.ReservedSet(reservations.Items)))(w)
	family := check.Value(choice.Families[0].Open())(w)
	return w.drainFamily(w.runningPod("drain-"+pool+"-"+node, node), family)
}

// drainFamily gives all addresses of the family to one pod, a container each.
func (w world) drainFamily(pod *corev1.Pod, family ipam.Family) []string {
	w.Helper()
	node := pod.Spec.NodeName
	store := lease.NewStore(lease.Options{Client: w.client, Reader: w.client, Node: node, Session: node + "/boot", Clock: clock.RealClock{}})
	allocator := allocate.New(allocate.Options{Leases: store, Clock: clock.RealClock{}})
	var got []string
	for i := 0; ; i++ {
		l, err := allocator.First(w.ctx, allocate.Need{Family: family, Holder: v1alpha1.Holder{
			Namespace: pod.Namespace, Pod: pod.Name, PodUID: string(pod.UID), ContainerID: fmt.Sprintf("%s-%d", node, i), Guarded: true,
		}})
		if none := (*ipam.NoPoolError)(nil); errors.As(err, &none) {
			return got
		}
		if err != nil {
			w.Errorf("node %s: %v", node, err)
			return got
		}
		got = append(got, l.Spec.Address)
	}
}

// endpointSlices is rule R12 as a client of a Service sees it: a pod that Kubernetes believes Running and
// Ready is on a machine that is off, or silent for too long. As long as an EndpointSlice offers its address
// as the old pod's, as here while the controllers of Kubernetes are away, the address is not taken.
func endpointSlices(w world, server *controlplane.Server) {
	for i, c := range []struct {
		name   string
		policy v1alpha1.NodeDownPolicy
		falls  func(string)
		reason v1alpha1.LeaseReason
		// gone: the pod's object is, too. Otherwise it is Terminating for as long
		// as its kubelet is silent, and its endpoint stays without being ready.
		gone bool
	}{
		{"out-of-service", "", func(node string) {
			w.setReady(node, corev1.ConditionUnknown)
			change(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, func(n *corev1.Node) {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute})
			})
		}, v1alpha1.ReasonOutOfService, true},
		{"silent", "After 1s", func(node string) { w.setReady(node, corev1.ConditionUnknown) }, v1alpha1.ReasonNodeUnreachable, false},
	} {
		pool, address, node := c.name+"-pool", fmt.Sprintf("10.6%d.0.2", 2+i), c.name
		change(w, w.pool(pool, fmt.Sprintf("10.6%d.0.0/24", 2+i)), func(p *v1alpha1.IPPool) { p.Spec.Reclaim.NodeDown = c.policy })
		w.readyNode(node)
		labels := map[string]string{"app": c.name}
		w.create(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: c.name}, Spec: corev1.ServiceSpec{
			Selector: labels, Ports: []corev1.ServicePort{{Port: 80}},
		}})
		old := w.serving(c.name+"-old", node, address, labels)
		w.bound(pool, address, old)
		w.eventually("an endpoint of "+old.Name, func() error {
			e := w.endpoint(c.name, old)
			return unless(e != nil && ptr.Deref(e.Conditions.Ready, false), "it is %+v", e)
		})

		check.OK(w, server.StopControllerManager(w.ctx))
		c.falls(node)
		w.waitEvent("default", "DeletedForReclaim", old.Name, address)
		w.waitMessage(address, "", "still offers the address as the pod's")
		check.OK(w, server.StartControllerManager())
		w.waitQuarantined(address, c.reason)
		e := w.endpoint(c.name, old)
		check.That(w, e == nil || !c.gone && !ptr.Deref(e.Conditions.Ready, true), "%s: %s is taken, and the EndpointSlice says of its pod %+v", c.name, address, e)
	}
}

// serving makes a pod that Kubernetes believes Ready.
func (w world) serving(name, node, address string, labels map[string]string) *corev1.Pod {
	w.Helper()
	pod := w.podObject("default", name, node)
	pod.Labels = labels
	w.create(pod)
	w.setPodStatus(pod, func(s *corev1.PodStatus) {
		s.Phase, s.PodIP, s.PodIPs = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
	return pod
}

// endpoint returns what the Service's EndpointSlice says of a pod, nil if nothing.
func (w world) endpoint(service string, pod *corev1.Pod) *discoveryv1.Endpoint {
	w.Helper()
	var slices discoveryv1.EndpointSliceList
	check.OK(w, w.client.List(w.ctx, &slices, client.InNamespace("default"), client.MatchingLabels{discoveryv1.LabelServiceName: service}))
	for _, slice := range slices.Items {
		for i := range slice.Endpoints {
			if ref := slice.Endpoints[i].TargetRef; ref != nil && ref.UID == pod.UID {
				return &slice.Endpoints[i]
			}
		}
	}
	return nil
}

// conflict makes the lease of an address at which an ADD has met a foreign host. n1 probes it again.
func (w world) conflict(pool, address string) *v1alpha1.IPLease {
	w.Helper()
	lease := &v1alpha1.IPLease{
		ObjectMeta: metav1.ObjectMeta{Name: address},
		Spec: v1alpha1.IPLeaseSpec{
			Address: address, Pool: pool, Parent: "eth0", State: v1alpha1.StateQuarantined, Reason: v1alpha1.ReasonConflict,
			Message: "02:00:00:00:00:99 uses the address too (probe)", Since: metav1.Now(), NodeName: "n1", Session: "node/boot",
			Conflict: &v1alpha1.Conflict{MAC: "02:00:00:00:00:99", Source: "probe", FirstSeen: metav1.Now(), LastSeen: metav1.Now(), Count: 1},
		},
	}
	w.create(lease)
	return lease
}

// waitEnded waits until an object is gone.
func (w world) waitEnded(o client.Object) {
	w.Helper()
	w.eventually(fmt.Sprintf("end of %T %s", o, o.GetName()), func() error {
		err := w.client.Get(w.ctx, client.ObjectKeyFromObject(o), o)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return errors.New("it is still there")
	})
}

// unwantedConflicts: the foreign hosts stay. Each edit ends the leases that it makes useless, and no
// other one.
func unwantedConflicts(w world) {
	pool, other := w.pool("printers", "10.62.0.0/24"), w.pool("printers-too", "10.62.0.64/26")
	excluded, reserved := w.conflict("printers", "10.62.0.10"), w.conflict("printers", "10.62.0.11")
	gateway, left, common := w.conflict("printers", "10.62.0.1"), w.conflict("printers", "10.62.0.12"), w.conflict("printers-too", "10.62.0.70")
	w.waitStatus("printers", "counts them", func(s v1alpha1.IPPoolStatus) bool { return s.Quarantined == 4 })

	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.ExcludeIPs = []string{"10.62.0.10"} })
	w.waitEnded(excluded)
	w.waitEvent("default", "QuarantineEnded", "10.62.0.10", "no pool hands 10.62.0.10 out any more")
	w.reserve("printers", "10.62.0.11")
	w.waitEnded(reserved)
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Gateway = ptr.To("10.62.0.1") })
	w.waitEnded(gateway)
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Disable = ptr.To(true) })
	w.remove(other)
	w.waitStatus("printers-too", "waits: the disabled pool has the address as well", says("Ready", "False/Deleting", "1 Quarantined"))
	for _, lease := range []*v1alpha1.IPLease{left, common} {
		now := w.lease(lease.Name)
		check.That(w, now != nil && now.UID == lease.UID, "the lease %s of an address that a pool has is %+v", lease.Name, now)
	}
	w.remove(pool)
	for _, object := range []client.Object{left, common, pool, other} {
		w.waitEnded(object)
	}
}
