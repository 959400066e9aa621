// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/foreignhost"
	"github.com/fenceline/fenceline/test/cluster"
)

// returnLimit is how long an address may stay Quarantined after the foreign host has left: it is
// probed again after 10, then 20 seconds.
const returnLimit = 60 * time.Second

// playConflict shows that an address that a foreign host uses is not given to a pod.
//
// The pool has three addresses. Pod neighbour has one. Pod first had the second, which cools down. So
// the first candidate of the next pod is the third address, which the foreign host uses.
func playConflict(ctx context.Context, a *act) {
	a.makePool(ctx, 3, func(s *v1alpha1.IPPoolSpec) {
		s.Reclaim = &v1alpha1.Reclaim{Cooldown: &v1alpha1.Duration{Duration: 10 * time.Minute}}
	})
	chronicle := a.keepChronicle(ctx, a.namespace)
	node := a.Node(1)
	first := a.runPod(ctx, "first", node, nil)
	// This node hears the neighbour's node, so the silence of other hosts counts (R2).
	neighbour := a.runPod(ctx, "neighbour", a.Node(3), nil)
	had, used := addressOf(first), a.address(firstHost)
	for used == had || used == addressOf(neighbour) {
		used = used.Next()
	}
	host := a.foreignHost("printer", netip.PrefixFrom(used, underlay.Bits()))
	a.story.Say("A pool of three addresses. Pod neighbour has one, and pod first has %s. A printer that Fenceline does not know uses the third one, %s, with MAC %s.", had, used, host.MAC)
	a.deletePod(ctx, first, false)
	started := time.Now()
	chronicle.wait(ctx, podLimit, had, started, "deleted", isDeleted)
	a.story.Say("Pod first ends, and %s cools down. Pod second starts: the first candidate is the address of the printer.", had)
	before := added(ctx, node)
	second := a.runPod(ctx, "second", node, nil)
	after := added(ctx, node)
	must(after-before == 1, "the pod took %v ADDs, not one", after-before)
	a.setAside(ctx, chronicle, second, had, used, host)
	a.comesBack(ctx, chronicle, host)
	a.poolEnds(ctx, chronicle, host, []*cluster.Pod{neighbour, second})
	a.answersForAll(ctx, host)
}

// setAside judges that the pod got the other address in the same ADD, and that the lease of the first
// candidate is Quarantined and names the foreign host.
func (a *act) setAside(ctx context.Context, c *chronicle, pod *cluster.Pod, had, used netip.Addr, host *cluster.Host) {
	must(addressOf(pod) == had, "pod %s has %s, not %s", pod.Name, addressOf(pod), had)
	conflict := c.wait(ctx, eventLimit, used, time.Time{}, "Quarantined for a conflict", isQuarantined)
	spec := conflict.Spec
	if spec.Reason != v1alpha1.ReasonConflict || spec.Conflict == nil || spec.Conflict.MAC != host.MAC.String() {
		fail("%s does not name the foreign host %s: %+v", conflict, host.MAC, ptr.Deref(spec.Conflict, v1alpha1.Conflict{}))
	}
	event := a.event(ctx, pod.Name, "AddressConflict", host.MAC.String())
	a.show(ctx, "get", "fllease", "-o", "wide")
	a.story.Say("The ADD found the printer, and gave %s to the pod instead. The event of the pod: %q", had, event.Message)
}

// comesBack switches the foreign host off, and waits until its address is free.
func (a *act) comesBack(ctx context.Context, c *chronicle, host *cluster.Host) {
	value(host.Exec(ctx, "ip", "link", "set", "eth0", "down"))
	left := time.Now()
	a.story.Say("The printer is switched off. Fenceline has to find that out by probes.")
	c.wait(ctx, returnLimit, host.Addr, left, "deleted", isDeleted)
	a.story.Say("After %s, the address of the printer is free again.", round(time.Since(left)))
}

// poolEnds switches the foreign host on again and lets a pod meet it, so that its address is set aside.
// Then it deletes the pods and the pool. The host stays for good, and the pool does not wait for it.
func (a *act) poolEnds(ctx context.Context, c *chronicle, host *cluster.Host, pods []*cluster.Pod) {
	value(host.Exec(ctx, "ip", "link", "set", "eth0", "up"))
	returned := time.Now()
	a.startPod(ctx, "third", pods[1].Node, nil)
	c.wait(ctx, podLimit, host.Addr, returned, "Quarantined for a conflict", isQuarantined)
	a.story.Say("The printer is back, and pod third meets it: %s is set aside again. The pods and the pool are deleted, and the printer stays.", host.Addr)
	for _, pod := range append(pods, &cluster.Pod{Namespace: a.namespace, Name: "third"}) {
		a.deletePod(ctx, pod, false)
	}
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}}
	did(a.api.Delete(ctx, pool), "delete pool %s", pool.Name)
	deleted := time.Now()
	eventually(ctx, podLimit, "the end of pool "+pool.Name, func(ctx context.Context) {
		left := a.leases(ctx, pool.Name)
		a.isGone(ctx, pool, fmt.Sprintf("leases %v", brief(left)))
	})
	a.story.Say("The pool is gone after %s.", round(time.Since(deleted)))
}

// answersForAll gives the foreign host all addresses of another pool. The kubelet's event must name
// the host that answers for so many.
func (a *act) answersForAll(ctx context.Context, host *cluster.Host) {
	first, count := 140, foreignhost.MaxConflicts+2
	for i := range count {
		value(host.Exec(ctx, "ip", "address", "add", netip.PrefixFrom(a.address(first+i), underlay.Bits()).String(), "dev", "eth0"))
	}
	a.addPool(ctx, a.namespace+"-answered", v1alpha1.IPPoolSpec{Subnet: underlay.String(), IPs: a.ips(first, count), Default: ptr.To(true)})
	a.startPod(ctx, "refused", a.Node(1), nil)
	why := fmt.Sprintf("%s answers for more than %d addresses", host.MAC, foreignhost.MaxConflicts)
	event := a.event(ctx, "refused", "FailedCreatePodSandBox", why)
	a.story.Say("The printer answers for all %d addresses of another pool. Pod refused waits. Its event: %q", count, event.Message)
}

// added returns the number of ADDs on a node, with any result.
func added(ctx context.Context, node *cluster.Node) float64 {
	return agents(ctx, []*cluster.Node{node}, "fenceline_cni_duration_seconds", map[string]string{"verb": "ADD"})
}
