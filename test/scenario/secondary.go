// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/hostlink"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// secondary is a cluster in which eth0 of each pod belongs to another network, and Fenceline serves
// further interfaces by Multus.
type secondary struct {
	*whole
	// before is the state of the nodes before the first pod.
	before map[string][]string
	// underlays are the interfaces of the pods on the underlay.
	underlays map[*cluster.Pod][]networkInterface
	// underlay and management record what the nodes send.
	underlay, management *capture.Capture
}

// secondaryBy: the promises hold with the underlay as a second network, by the thin or the thick plugin of Multus.
func secondaryBy(multus cluster.Multus) func(context.Context, *act) {
	return func(ctx context.Context, a *act) {
		s := a.openSecondary(ctx, multus)
		a.show(ctx, "get", "pods", "--namespace="+a.namespace, "--output=wide")
		s.reaches(ctx)
		s.reachUnderlay(ctx)
		s.isServed(ctx)
		s.deleteBlind(ctx)
		during(func() { s.reachUnderlay(ctx) }, "after the restart of all agents")
		s.staysOnItsWay()
		check(s.RemoveDNS(ctx))
		s.leavesNothing(ctx)
	}
}

// openSecondary installs the routed network and Multus, and makes pods with interfaces on the underlay:
// a with one, b with two on one subnet, c with a host link, d with the pod's default routes.
func (a *act) openSecondary(ctx context.Context, multus cluster.Multus) *secondary {
	s := &secondary{whole: &whole{act: a, routed: multus.Routed}}
	a.installMultus(ctx, multus)
	s.openPools(ctx)
	macvlan := macvlan(map[string]any{"type": "fenceline"}, nil)
	a.definePlugins(ctx, a.namespace, "floor", macvlan, map[string]any{"type": "fenceline"})
	a.definePlugins(ctx, a.namespace, "way", macvlan, map[string]any{"type": "fenceline", "hostLinkCIDRs": cluster.RoutedPods()})
	s.annotations = map[string]map[string]string{
		"a": {annotationNetworks: "floor"},
		"b": {annotationNetworks: "floor,floor"},
		"c": {annotationNetworks: "floor", "ipam.fenceline.io/host-link": `[{"interface": "net1", "hostLink": true}]`},
		"d": {annotationNetworks: "way", "ipam.fenceline.io/default-route-nic": "net1"},
	}
	s.before = s.state(ctx)
	s.underlay, s.management = a.record(), a.recorded(a.CaptureManagement())
	a.story.Say("Another network has eth0 of each pod: veth pairs, and routes between the nodes. Multus adds interfaces on the underlay.")
	s.fill(ctx)
	s.readUnderlays(ctx)
	return s
}

// readUnderlays reads the interfaces that Multus has added, each with an address of both families.
func (s *secondary) readUnderlays(ctx context.Context) {
	s.underlays = map[*cluster.Pod][]networkInterface{}
	for pod, want := range map[*cluster.Pod]int{s.a: 1, s.b: 2, s.c: 1, s.d: 1} {
		interfaces := s.interfaces(ctx, pod)
		must(len(interfaces) == 1+want, "pod %s has %d interfaces, not %d: %v", pod.Name, len(interfaces), 1+want, interfaces)
		for n, i := range interfaces[1:] {
			must(i.name == fmt.Sprintf("net%d", n+1) && len(i.addrs) == len(s.Options.Gateways), "pod %s has the interface %+v", pod.Name, i)
			for _, addr := range i.addrs {
				during(func() { s.boundTo(ctx, addr, pod.UID) }, "%s of pod %s has %s", i.name, pod.Name, addr)
			}
		}
		s.underlays[pod] = interfaces[1:]
	}
}

// staysOnItsWay judges that each address was used on its own network only: on the underlay by its
// own interface, and on the management network by no node.
func (s *secondary) staysOnItsWay() {
	frames := value(s.underlay.Stop())
	other := value(s.management.Stop())
	for pod, interfaces := range s.underlays {
		for _, i := range interfaces {
			for _, addr := range i.addrs {
				speakers := capture.Speakers(frames, addr)
				must(len(speakers) == 1 && speakers[0] == i.mac.String(),
					"%v speak for %s of pod %s, not only its %s with %s", speakers, addr, pod.Name, i.name, i.mac)
				for _, f := range capture.SpokenFor(other, addr) { // the router has them from the underlay
					must(f.Port == "mgmt-router", "%s of pod %s left its way: %s", addr, pod.Name, f)
				}
			}
		}
		for _, addr := range pod.IPs {
			if left := capture.SpokenFor(frames, addr); len(left) > 0 && strings.HasPrefix(left[0].Port, "ul-n") {
				fail("%s of pod %s left its way: %s", addr, pod.Name, left[0])
			}
		}
	}
	s.story.Say("Of %d frames on the underlay and %d on the management network, each left by the interface with its address.", len(frames), len(other))
}

// deleteBlind ends the agents of all nodes while pod c, which has a host link, ends.
func (s *secondary) deleteBlind(ctx context.Context) {
	links := value(s.third.Exec(ctx, "ip", "-brief", "link"))
	must(strings.Count(links, hostlink.NodePrefix) == 1, "%s does not have the host link of pod c alone:\n%s", s.third.Name(), links)
	s.deletePod(ctx, s.c, false)
	s.replaceAgents(ctx)
	gone := s.underlays[s.c]
	delete(s.underlays, s.c)
	eventually(ctx, podLimit, "the end of the leases of pod c", func(ctx context.Context) {
		for _, addr := range gone[0].addrs {
			lease := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LeaseName("", addr)}}
			s.isGone(ctx, lease, "the address "+addr.String())
		}
	})
}

// replaceAgents ends the agents of all nodes at once, and waits for new ones. Unlike after a kill, the
// kubelet starts these without a back-off.
func (s *secondary) replaceAgents(ctx context.Context) {
	agents := []client.DeleteAllOfOption{
		client.InNamespace(cluster.FencelineNamespace), client.MatchingLabels{"app.kubernetes.io/component": "agent"},
		client.GracePeriodSeconds(0),
	}
	old := s.agentRestarts(ctx)
	did(s.api.DeleteAllOf(ctx, &corev1.Pod{}, agents...), "delete the agents")
	eventually(ctx, podLimit, "new agents", func(ctx context.Context) {
		now := s.agentRestarts(ctx)
		maps.DeleteFunc(now, func(name string, _ int32) bool { _, is := old[name]; return is })
		must(len(now) == len(s.Nodes()), "%d of %d are Ready", len(now), len(s.Nodes()))
	})
}

// leavesNothing deletes all pods. No lease is left, and the nodes are as they were before the first pod.
func (s *secondary) leavesNothing(ctx context.Context) {
	s.nothingIsLeft(ctx, s.namespace, s.namespace+"-v6")
	eventually(ctx, podLimit, "nodes as they were before", func(ctx context.Context) {
		for name, lines := range s.state(ctx) {
			for _, line := range lines {
				must(slices.Contains(s.before[name], line), "%s has this too: %s", name, line)
			}
		}
	})
	s.story.Say("The pods are deleted, one of them while the agents restarted. No lease, link, route or rule is left.")
}

// state returns the links, addresses, routes, rules and neighbours of each node, without those that
// come and go by themselves.
func (s *secondary) state(ctx context.Context) map[string][]string {
	found := map[string][]string{}
	for _, n := range s.Nodes() {
		text := value(n.Exec(ctx, "sh", "-c", "ip -brief link; ip -4 route; ip -6 route; ip -4 rule; ip -6 rule; ip neigh show nud permanent"))
		for line := range strings.Lines(text) {
			found[n.Name()] = append(found[n.Name()], strings.Join(strings.Fields(line), " "))
		}
	}
	return found
}

// reachUnderlay walks all ways by the addresses of the underlay, in both families.
func (s *secondary) reachUnderlay(ctx context.Context) {
	server := s.serveOutside()
	defer server.Close()
	ways := &paths{}
	for family := range s.Options.Gateways {
		s.amongPods(ways, family)
		s.fromHosts(ways, family)
		s.toOutside(ways, family)
	}
	check(ways.walk(ctx))
	s.story.Say("%d ways work by the addresses of the underlay, in both families: pods of the same node and of others, nodes, and the outside.", len(*ways))
}

// amongPods adds the ways from the underlay to the underlay.
func (s *secondary) amongPods(ways *paths, family int) {
	for from, own := range s.underlays {
		at, client := s.at[from], own[0].addrs[family]
		for to, interfaces := range s.underlays {
			for _, i := range interfaces {
				what := fmt.Sprintf("%s of pod %s", i.name, to.Name)
				addr, seen := i.addrs[family], client
				if from == to {
					seen = addr
				}
				if len(own) > 1 && from != to {
					seen = netip.Addr{} // any of its addresses on the subnet
				}
				ways.get(at, what, netip.AddrPortFrom(addr, httpPort), to.Name, seen)
				if len(interfaces) == 1 {
					// Two interfaces are on one subnet: a server has to name its address in an answer by UDP.
					ways.send(at, what, netip.AddrPortFrom(addr, appPort), to.Name, seen)
				}
				ways.ping(at, what, addr)
			}
		}
	}
}

// fromHosts adds the ways from nodes and from the outside host to the underlay.
func (s *secondary) fromHosts(ways *paths, family int) {
	for to, interfaces := range s.underlays {
		for _, i := range interfaces {
			what, addr := fmt.Sprintf("%s of pod %s", i.name, to.Name), i.addrs[family]
			for _, n := range s.Nodes() {
				ways.get(placeOfNode(n), what, netip.AddrPortFrom(addr, httpPort), to.Name, nodeAddr(n, family))
				ways.ping(placeOfNode(n), what, addr)
			}
			ways.get(s.outside, what, netip.AddrPortFrom(addr, httpPort), to.Name, s.outsideAddrs[family])
			ways.ping(s.outside, what, addr)
		}
	}
}

// toOutside adds the ways to the outside: by eth0, except from the pod whose default routes are those of its net1.
func (s *secondary) toOutside(ways *paths, family int) {
	to := netip.AddrPortFrom(s.outsideAddrs[family], httpPort)
	for from, own := range s.underlays {
		if from == s.d {
			ways.get(s.at[from], "the outside host by net1", to, outsideName, own[0].addrs[family])
		} else {
			ways.get(s.at[from], "the outside host by eth0", to, outsideName, from.IPs[family])
		}
	}
}

// outsideName is what the outside host says.
const outsideName = "outside"

// serveOutside starts a server on the outside host. It answers by HTTP like the test app.
func (s *secondary) serveOutside() *http.Server {
	var listener net.Listener
	did(s.outside.ns.Do(func() (err error) {
		listener, err = net.Listen("tcp", fmt.Sprintf(":%d", httpPort))
		return err
	}), "serve on the outside host")
	server := &http.Server{ReadHeaderTimeout: requestLimit, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, outsideName+" "+r.RemoteAddr) // the client notices
	})}
	go func() { _ = server.Serve(listener) }() // until it is closed
	return server
}
