// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/cluster"
)

const (
	// warmStock is how many addresses each node keeps ready.
	warmStock = 2
	// warmPool has room for four pods, the stocks of three nodes and one conflict,
	// and leaves so much free that stocks are filled up: agents leave others as much
	// as all of them together keep ready.
	warmPool = 4 + 2*3*warmStock + 1
	// warmLimit is how long stocks may take to fill. An address is verified with
	// the timing of RFC 5227, which is up to seven seconds.
	warmLimit = time.Minute
)

// playWarm: addresses that are kept ready are watched, and are never why a pod is
// told that there are none.
func playWarm(ctx context.Context, a *act) error {
	err := a.makePool(ctx, warmPool, func(s *v1alpha1.IPPoolSpec) { s.Warm = ptr.To[int64](warmStock) })
	if err != nil {
		return err
	}
	chronicle, err := a.keepChronicle(ctx, a.namespace)
	if err != nil {
		return err
	}
	for _, n := range a.Nodes() {
		if err := a.startPod(ctx, "first-"+n.Name(), n, nil); err != nil {
			return err
		}
	}
	pods, err := a.running(ctx, len(a.Nodes()), everyPod)
	if err != nil {
		return err
	}
	a.story.Say("A pool of %d addresses, of which each node keeps %d Warm. A pod runs on each node.", warmPool, warmStock)
	started := time.Now()
	stock, err := a.stocked(ctx)
	if err != nil {
		return err
	}
	a.figures.add("all stocks proven, after the first pods were Running", time.Since(started))
	if err := a.show(ctx, "get", "fllease"); err != nil {
		return err
	}
	host, err := a.takesWarm(ctx, chronicle, stock[a.Node(1).Name()][0], addressOf(pods[0]))
	if err != nil {
		return err
	}
	if stock, err = a.stocked(ctx); err != nil {
		return err
	}
	if err := a.servedFromStock(ctx, stock); err != nil {
		return err
	}
	return a.givenUp(ctx, host)
}

// stocked waits until every node has its stock, with a proof for each address, and
// returns the addresses.
func (a *act) stocked(ctx context.Context) (map[string][]netip.Addr, error) {
	var stock map[string][]netip.Addr
	err := eventually(ctx, warmLimit, fmt.Sprintf("%d Warm leases on every node", warmStock), func(ctx context.Context) error {
		leases, err := a.leases(ctx, a.namespace)
		if err != nil {
			return err
		}
		stock = map[string][]netip.Addr{}
		for _, l := range leases {
			if l.Spec.State == v1alpha1.StateWarm {
				addr, err := netip.ParseAddr(l.Spec.Address)
				if err != nil {
					return err
				}
				stock[l.Spec.NodeName] = append(stock[l.Spec.NodeName], addr)
			}
		}
		for _, n := range a.Nodes() {
			if len(stock[n.Name()]) != warmStock {
				return fmt.Errorf("there are %s", brief(leases))
			}
			proven, err := agents(ctx, []*cluster.Node{n}, "fenceline_warm_leases", map[string]string{"pool": a.namespace, "condition": "ready"})
			if err != nil {
				return err
			}
			if proven != warmStock {
				return fmt.Errorf("%v of %s are proven", proven, n.Name())
			}
		}
		return nil
	})
	return stock, err
}

// takesWarm: a foreign host begins to use an address that is kept ready. It is set
// aside, with the host's MAC.
func (a *act) takesWarm(ctx context.Context, c *chronicle, addr, pod netip.Addr) (*cluster.Host, error) {
	host, err := a.foreignHost("printer", netip.PrefixFrom(addr, underlay.Bits()))
	if err != nil {
		return nil, err
	}
	spoke := time.Now()
	if _, err := host.Exec(ctx, "ping", "-q", "-c", "1", "-W", "3", pod.String()); err != nil {
		return nil, err
	}
	conflict, err := c.wait(ctx, eventLimit, addr, spoke, "Quarantined", isQuarantined)
	if err != nil {
		return nil, err
	}
	spec := conflict.Spec
	if spec.Reason != v1alpha1.ReasonConflict || spec.Conflict == nil || spec.Conflict.MAC != host.MAC.String() {
		return nil, fmt.Errorf("%s does not name the foreign host %s: %+v", conflict, host.MAC, ptr.Deref(spec.Conflict, v1alpha1.Conflict{}))
	}
	a.figures.add("Warm address quarantined, after a foreign host spoke", conflict.at.Sub(spoke))
	a.story.Say("A printer that Fenceline does not know starts to use %s, which is Warm on %s. After %s, the lease names its MAC %s.",
		addr, a.Node(1).Name(), round(conflict.at.Sub(spoke)), host.MAC)
	return host, nil
}

// servedFromStock: the next pod of a node gets an address that the node has kept
// ready, and the stock is filled up again.
func (a *act) servedFromStock(ctx context.Context, stock map[string][]netip.Addr) error {
	node := a.Node(2)
	pod, err := a.runPod(ctx, "next", node, nil)
	if err != nil {
		return err
	}
	if !slices.Contains(stock[node.Name()], addressOf(pod)) {
		return fmt.Errorf("pod next has %s, which is none of %v, that %s kept ready", addressOf(pod), stock[node.Name()], node.Name())
	}
	a.story.Say("The next pod on %s gets %s, which was Warm there.", node.Name(), addressOf(pod))
	return nil
}

// givenUp: the pool is narrowed to what is in use or kept ready. Pods of one node
// get all that is kept ready, most of it elsewhere, and none is told that the pool
// is exhausted.
func (a *act) givenUp(ctx context.Context, host *cluster.Host) error {
	ready, left, err := a.narrow(ctx)
	if err != nil {
		return err
	}
	before, err := exhausted(ctx, a)
	if err != nil {
		return err
	}
	node, started := a.Node(3), time.Now()
	for n := range ready {
		if err := a.startPod(ctx, "late-"+strconv.Itoa(n), node, nil); err != nil {
			return err
		}
	}
	pods, err := a.running(ctx, left, everyPod)
	if err != nil {
		return err
	}
	a.figures.add(fmt.Sprintf("%d pods on one node, with the stocks of three", ready), time.Since(started))
	after, err := exhausted(ctx, a)
	if err != nil {
		return err
	}
	if after > before {
		return fmt.Errorf("%v ADDs found the pool exhausted while addresses were kept ready", after-before)
	}
	owner := map[netip.Addr]string{host.Addr: "the foreign host"}
	for _, p := range pods {
		addr := addressOf(p)
		if other, ok := owner[addr]; ok {
			return fmt.Errorf("pod %s has %s, the address of %s", p.Name, addr, other)
		}
		owner[addr] = "pod " + p.Name
		if err := a.boundTo(ctx, addr, p.UID); err != nil {
			return fmt.Errorf("pod %s has %s: %w", p.Name, addr, err)
		}
	}
	if err := a.nobodyWasRefused(ctx); err != nil {
		return err
	}
	a.story.Say("The pool is narrowed to addresses that are in use or Warm. %d pods start on %s at once, and get the Warm addresses of all nodes. No ADD failed.", ready, node.Name())
	return nil
}

// narrow leaves no address in the pool that is free, and returns how many are kept
// ready, and how many there are with those in use.
func (a *act) narrow(ctx context.Context) (ready, all int, err error) {
	stock, err := a.stocked(ctx)
	if err != nil {
		return 0, 0, err
	}
	pods, err := a.running(ctx, len(a.Nodes())+1, everyPod)
	if err != nil {
		return 0, 0, err
	}
	var left []string
	for _, addrs := range stock {
		for _, addr := range addrs {
			left = append(left, addr.String())
		}
	}
	ready = len(left)
	for _, p := range pods {
		left = append(left, addressOf(p).String())
	}
	return ready, len(left), a.editPool(ctx, a.namespace, func(s *v1alpha1.IPPoolSpec) { s.IPs = left })
}

// nobodyWasRefused: no pod of the scenario was told that there is no address.
func (a *act) nobodyWasRefused(ctx context.Context) error {
	list := &corev1.EventList{}
	if err := a.api.List(ctx, list, client.InNamespace(a.namespace)); err != nil {
		return err
	}
	for _, e := range list.Items {
		if e.Reason == "AddressRefused" {
			return fmt.Errorf("pod %s was refused: %s", e.InvolvedObject.Name, e.Message)
		}
	}
	return nil
}
