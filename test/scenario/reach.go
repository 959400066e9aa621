// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/cluster"
)

// manyPods is how many pods the first scenario starts at once.
const manyPods = 20

// httpPort is where a pod says its name by HTTP.
const httpPort = 8080

// playPods: pods get addresses of their own and reach each other.
func playPods(ctx context.Context, a *act) error {
	before := value(granted(ctx, a))
	check(a.makePool(ctx, 2*manyPods, nil))
	a.story.Say("A pool of %d addresses, and a Deployment of %d pods with macvlan interfaces on three nodes.", 2*manyPods, manyPods)
	started := time.Now()
	check(a.deploy(ctx, manyPods))
	pods := value(a.running(ctx, manyPods, everyPod))
	a.figures.add(fmt.Sprintf("%d pods Running", manyPods), time.Since(started))
	check(a.distinctAndLeased(ctx, pods))
	check(a.show(ctx, "get", "flpool", a.namespace))
	check(a.show(ctx, "get", "fllease"))
	a.story.Say("All addresses are distinct, and the lease of each address names its pod. Now each pod connects to a pod on each other node.")
	reached := value(reachEachOther(ctx, pods))
	a.figures.add("pairs of pods on different nodes that reached each other", reached)
	return a.metricsAgree(ctx, before)
}

// distinctAndLeased: no address occurs twice, and each lease is the pod's, or kept ready for the next
// one.
func (a *act) distinctAndLeased(ctx context.Context, pods []*cluster.Pod) error {
	owner := map[netip.Addr]string{}
	for _, p := range pods {
		addr := addressOf(p)
		if other, ok := owner[addr]; ok {
			return fmt.Errorf("%s is the address of pod %s and of pod %s", addr, other, p.Name)
		}
		owner[addr] = p.Name
		if err := a.boundTo(ctx, addr, p.UID); err != nil {
			return fmt.Errorf("pod %s has %s: %w", p.Name, addr, err)
		}
	}
	leases, err := a.leases(ctx, a.namespace)
	if err != nil {
		return err
	}
	leases = slices.DeleteFunc(leases, func(l v1alpha1.IPLease) bool { return l.Spec.State == v1alpha1.StateWarm })
	if len(leases) != len(pods) {
		return fmt.Errorf("%d pods have %d leases: %s", len(pods), len(leases), brief(leases))
	}
	return nil
}

// reachEachOther lets each pod connect to a pod on each other node.
func reachEachOther(ctx context.Context, pods []*cluster.Pod) (int, error) {
	pairs := 0
	for i, from := range pods {
		asked := map[string]bool{from.Node.Name(): true}
		for j := range pods {
			to := pods[(i+j)%len(pods)]
			if asked[to.Node.Name()] {
				continue
			}
			asked[to.Node.Name()] = true
			said := value(ask(ctx, from, addressOf(to)))
			if said != to.Name {
				return pairs, fmt.Errorf("pod %s asked pod %s, and %q answered", from.Name, to.Name, said)
			}
			pairs++
		}
	}
	return pairs, nil
}

// ask connects from a pod to an address by HTTP and returns the name that the
// pod there says, which may listen a moment later than it runs.
func ask(ctx context.Context, from *cluster.Pod, addr netip.Addr) (string, error) {
	said, err := from.Exec(ctx, "curl", "--silent", "--show-error", "--max-time", "10", "--connect-timeout", "3",
		"--retry", "9", "--retry-delay", "1", "--retry-connrefused", "http://"+netip.AddrPortFrom(addr, httpPort).String())
	if err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(said, " ")
	return name, nil
}

// granted counts the ADDs that all agents have answered with an address.
func granted(ctx context.Context, a *act) (float64, error) {
	return agents(ctx, a.Nodes(), "fenceline_cni_duration_seconds", map[string]string{"verb": "ADD", "result": "ok"})
}

// metricsAgree compares what is scraped over HTTP with the leases.
func (a *act) metricsAgree(ctx context.Context, before float64) error {
	controller := value(a.controllerNode(ctx))
	return eventually(ctx, eventLimit, "metrics that agree with the leases", func(ctx context.Context) error {
		adds, err := granted(ctx, a)
		if err != nil {
			return err
		}
		m, err := scrape(ctx, controller, controllerMetrics)
		if err != nil {
			return err
		}
		bound, _ := m.sum("fenceline_pool_leases", map[string]string{"pool": a.namespace, "state": string(v1alpha1.StateBound)})
		capacity, _ := m.sum("fenceline_pool_addresses", map[string]string{"pool": a.namespace})
		if adds-before != manyPods || bound != manyPods || capacity != 2*manyPods {
			return fmt.Errorf("agents count %v ADDs, the controller %v Bound leases of %v addresses", adds-before, bound, capacity)
		}
		a.story.Say("The metrics agree: the agents count %v granted ADDs, the controller counts %v Bound leases of %v addresses.", adds-before, bound, capacity)
		return a.nobodyIsBlind(ctx)
	})
}

// nobodyIsBlind: no agent is blind.
func (a *act) nobodyIsBlind(ctx context.Context) error {
	for _, n := range a.Nodes() {
		m, err := scrape(ctx, n, agentMetrics)
		if err != nil {
			return err
		}
		attached, series := m.sum("fenceline_programs_attached", map[string]string{"parent": cluster.UnderlayInterface})
		if series != 1 || attached != 1 {
			return errors.New("the agent of " + n.Name() + " has no program on " + cluster.UnderlayInterface)
		}
	}
	return nil
}
