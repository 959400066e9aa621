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

// httpPort is where a pod says its name by HTTP.
const httpPort = 8080

// distinctAndLeased: no address occurs twice, and each lease is the pod's, or kept ready for the next one.
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

// metricsAgree compares the metrics, scraped over HTTP, with the leases of a pool of this size. Since before,
// each of the pods has got its address by one ADD.
func (a *act) metricsAgree(ctx context.Context, before, pods, size float64) {
	controller := a.controllerNode(ctx)
	eventually(ctx, eventLimit, "metrics that agree with the leases", func(ctx context.Context) {
		adds := granted(ctx, a) - before
		m := scraped(ctx, controller, controllerMetrics)
		bound, _ := m.Sum("fenceline_pool_leases", map[string]string{"pool": a.namespace, "state": string(v1alpha1.StateBound)})
		capacity, _ := m.Sum("fenceline_pool_addresses", map[string]string{"pool": a.namespace})
		must(adds == pods && bound == pods && capacity == size,
			"agents count %v ADDs, the controller %v Bound leases of %v addresses", adds, bound, capacity)
		a.story.Say("The metrics agree: the agents count %v granted ADDs, the controller counts %v Bound leases of %v addresses.", adds, bound, capacity)
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
