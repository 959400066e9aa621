// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/cluster"
)

// manyPods is how many pods the first scenario starts at once.
const manyPods = 20

// httpPort is where a pod says its name by HTTP.
const httpPort = 8080

// playPods: pods get addresses of their own and reach each other.
func playPods(ctx context.Context, a *act) {
	before := granted(ctx, a)
	a.makePool(ctx, 2*manyPods, nil)
	a.story.Say("A pool of %d addresses, and a Deployment of %d pods with macvlan interfaces on three nodes.", 2*manyPods, manyPods)
	a.deploy(ctx, manyPods)
	pods := a.running(ctx, manyPods, everyPod)
	a.distinctAndLeased(ctx, pods)
	a.show(ctx, "get", "flpool", a.namespace)
	a.show(ctx, "get", "fllease")
	a.story.Say("All addresses are distinct, and the lease of each address names its pod. Now each pod connects to a pod on each other node.")
	reachEachOther(ctx, pods)
	a.metricsAgree(ctx, before)
}

// distinctAndLeased: no address occurs twice, and each lease is the pod's, or kept ready for the next
// one.
func (a *act) distinctAndLeased(ctx context.Context, pods []*cluster.Pod) {
	owner := map[netip.Addr]string{}
	for _, p := range pods {
		addr := addressOf(p)
		must(owner[addr] == "", "%s is the address of pod %s and of pod %s", addr, owner[addr], p.Name)
		owner[addr] = p.Name
		during(func() { a.boundTo(ctx, addr, p.UID) }, "pod %s has %s", p.Name, addr)
	}
	leases := a.leases(ctx, a.namespace)
	leases = slices.DeleteFunc(leases, func(l v1alpha1.IPLease) bool { return l.Spec.State == v1alpha1.StateWarm })
	must(len(leases) == len(pods), "%d pods have %d leases: %s", len(pods), len(leases), brief(leases))
}

// reachEachOther lets each pod connect to a pod on each other node.
func reachEachOther(ctx context.Context, pods []*cluster.Pod) {
	for i, from := range pods {
		asked := map[string]bool{from.Node.Name(): true}
		for j := range pods {
			to := pods[(i+j)%len(pods)]
			if asked[to.Node.Name()] {
				continue
			}
			asked[to.Node.Name()] = true
			said := ask(ctx, from, addressOf(to))
			must(said == to.Name, "pod %s asked pod %s, and %q answered", from.Name, to.Name, said)
		}
	}
}

// ask connects from a pod to an address by HTTP and returns the name that the other pod says. A pod
// may listen a moment later than it runs.
func ask(ctx context.Context, from *cluster.Pod, addr netip.Addr) string {
	said := value(from.Exec(ctx, "curl", "--silent", "--show-error", "--max-time", "10", "--connect-timeout", "3",
		"--retry", "9", "--retry-delay", "1", "--retry-connrefused", "http://"+netip.AddrPortFrom(addr, httpPort).String()))
	name, _, _ := strings.Cut(said, " ")
	return name
}

// granted counts the ADDs that all agents have answered with an address.
func granted(ctx context.Context, a *act) float64 {
	return agents(ctx, a.Nodes(), "fenceline_cni_duration_seconds", map[string]string{"verb": "ADD", "result": "ok"})
}

// metricsAgree compares the metrics, scraped over HTTP, with the leases.
func (a *act) metricsAgree(ctx context.Context, before float64) {
	controller := a.controllerNode(ctx)
	eventually(ctx, eventLimit, "metrics that agree with the leases", func(ctx context.Context) {
		adds := granted(ctx, a)
		m := scraped(ctx, controller, controllerMetrics)
		bound, _ := m.Sum("fenceline_pool_leases", map[string]string{"pool": a.namespace, "state": string(v1alpha1.StateBound)})
		capacity, _ := m.Sum("fenceline_pool_addresses", map[string]string{"pool": a.namespace})
		must(adds-before == manyPods && bound == manyPods && capacity == 2*manyPods,
			"agents count %v ADDs, the controller %v Bound leases of %v addresses", adds-before, bound, capacity)
		a.story.Say("The metrics agree: the agents count %v granted ADDs, the controller counts %v Bound leases of %v addresses.", adds-before, bound, capacity)
		a.nobodyIsBlind(ctx)
	})
}

// nobodyIsBlind: no agent is blind.
func (a *act) nobodyIsBlind(ctx context.Context) {
	for _, n := range a.Nodes() {
		attached, series := scraped(ctx, n, agentMetrics).Sum("fenceline_programs_attached", map[string]string{"parent": cluster.UnderlayInterface})
		must(series == 1 && attached == 1, "the agent of %s has no program on %s", n.Name(), cluster.UnderlayInterface)
	}
}
