// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// lastFrame returns the time of the old holder's last frame, relative to the claim.
func lastFrame(p capture.Passage) string {
	after := p.Last.Time.Sub(p.Claim.Time)
	if after > 0 {
		return fmt.Sprintf("%s after the claim", round(after))
	}
	return fmt.Sprintf("%s before the claim", round(-after))
}

// onlyAnswersOf judges the connections that began after end. It returns an error if another pod
// answered one of them, or if a connection failed after the pod had answered an earlier one.
func onlyAnswersOf(pod string, answers []answer, end time.Time) error {
	heard := false
	for _, a := range answers {
		switch {
		case a.begun.Before(end):
		case a.pod == pod:
			heard = true
		case a.pod != "":
			return fmt.Errorf("a client that asked %s after the change was answered by %s", a.begun.Sub(end), a.pod)
		case heard:
			return fmt.Errorf("a client that asked %s after the change got no answer from %s any more: %w", a.begun.Sub(end), pod, a.err)
		}
	}
	if !heard {
		return fmt.Errorf("no client was answered by %s", pod)
	}
	return nil
}

// speaksAlone fails unless only the pod has used each of its addresses.
func speaksAlone(frames []capture.Frame, pod *cluster.Pod) {
	mac := macOf(pod).String()
	for _, addr := range pod.IPs {
		speakers := capture.Speakers(frames, addr)
		must(len(speakers) == 1 && speakers[0] == mac, "%v speak for %s of pod %s, whose MAC is %s", speakers, addr, pod.Name, mac)
	}
}

// addresses contains all addresses of the scenario and its foreign hosts.
func (a *act) addresses() netip.Prefix { return netip.PrefixFrom(a.address(0), 24) }

// takeTurns returns an error unless each address had one speaker at a time: after a MAC has first
// spoken for an address, no earlier speaker may do so again. frames must be in order of arrival.
func takeTurns(frames []capture.Frame, among netip.Prefix) error {
	turns := map[netip.Addr][]capture.Frame{} // the first frame of each speaker
	for _, f := range frames {
		for _, addr := range f.Speaks {
			if !among.Contains(addr) {
				continue
			}
			var err error
			if turns[addr], err = takeTurn(turns[addr], f); err != nil {
				return fmt.Errorf("two speakers for %s: %w", addr, err)
			}
		}
	}
	return nil
}

// takeTurn adds a frame to the first frames of the speakers for its address, if its speaker is new.
func takeTurn(began []capture.Frame, f capture.Frame) ([]capture.Frame, error) {
	for i, first := range began {
		if first.Source.String() != f.Source.String() {
			continue
		}
		if last := began[len(began)-1]; i < len(began)-1 {
			return began, fmt.Errorf("%s speaks by %s %s after %s has begun by %s: %s",
				f.Source, f.Port, round(f.Time.Sub(last.Time)), last.Source, last.Port, f)
		}
		return began, nil
	}
	return append(began, f), nil
}

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
		parent := a.Options.Parent()
		attached, series := scraped(ctx, n, agentMetrics).Sum("fenceline_programs_attached", map[string]string{"parent": parent})
		must(series == 1 && attached == 1, "the agent of %s has no program on %s", n.Name(), parent)
	}
}
