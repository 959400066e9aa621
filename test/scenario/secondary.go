// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
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

// playThin: the same promises with the underlay as a second network, and the thin plugin of Multus.
func playThin(ctx context.Context, a *act) error {
	return a.playSecondary(ctx, cluster.Multus{Routed: true})
}

// playThick is the same with the thick plugin of Multus.
func playThick(ctx context.Context, a *act) error {
	return a.playSecondary(ctx, cluster.Multus{Routed: true, Thick: true})
}

func (a *act) playSecondary(ctx context.Context, multus cluster.Multus) error {
	s := value(a.openSecondary(ctx, multus))
	check(a.show(ctx, "get", "pods", "--namespace="+a.namespace, "--output=wide"))
	check(s.reaches(ctx))
	check(s.reachUnderlay(ctx))
	s.isServed(ctx)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.RemoveDNS(groupCtx) }) // CoreDNS takes 5 s to end
	group.Go(func() error {
		if err := s.deleteBlind(groupCtx); err != nil {
			return err
		}
		if err := s.reachUnderlay(groupCtx); err != nil {
			return fmt.Errorf("after the restart of all agents: %w", err)
		}
		return s.staysOnItsWay()
	})
	check(group.Wait())
	return s.leavesNothing(ctx)
}

// openSecondary installs the routed network and Multus, and makes pods with interfaces on the underlay:
// a with one, b with two on one subnet, c with a host link, d with the pod's default routes.
func (a *act) openSecondary(ctx context.Context, multus cluster.Multus) (*secondary, error) {
	s := &secondary{whole: &whole{act: a, routed: multus.Routed}}
	started := time.Now()
	a.after("remove Multus", a.RemoveMultus)
	check(a.InstallMultus(ctx, multus))
	a.figures.add("Multus in use on all nodes", time.Since(started))
	s.openPools(ctx)
	macvlan := macvlan(map[string]any{"type": "fenceline"}, nil)
	err := errors.Join(
		a.definePlugins(ctx, a.namespace, "floor", macvlan, map[string]any{"type": "fenceline"}),
		a.definePlugins(ctx, a.namespace, "way", macvlan, map[string]any{"type": "fenceline", "hostLinkCIDRs": cluster.RoutedPods()}),
	)
	if err != nil {
		return nil, err
	}
	s.annotations = map[string]map[string]string{
		"a": {annotationNetworks: "floor"},
		"b": {annotationNetworks: "floor,floor"},
		"c": {annotationNetworks: "floor", "ipam.fenceline.io/host-link": `[{"interface": "net1", "hostLink": true}]`},
		"d": {annotationNetworks: "way", "ipam.fenceline.io/default-route-nic": "net1"},
	}
	s.before = value(s.state(ctx))
	s.listen()
	a.story.Say("Another network has eth0 of each pod: veth pairs, and routes between the nodes. Multus adds interfaces on the underlay.")
	check(s.fill(ctx))
	return s, s.readUnderlays(ctx)
}

// listen starts the captures.
func (s *secondary) listen() {
	s.underlay = value(s.Capture())
	s.after("end the capture of the underlay", func(context.Context) error { _, err := s.underlay.Stop(); return err })
	s.management = value(s.CaptureManagement())
	s.after("end the capture of the management network", func(context.Context) error { _, err := s.management.Stop(); return err })
}

// readUnderlays reads the interfaces that Multus has added, each with an address of both families.
func (s *secondary) readUnderlays(ctx context.Context) error {
	s.underlays = map[*cluster.Pod][]networkInterface{}
	for pod, want := range map[*cluster.Pod]int{s.a: 1, s.b: 2, s.c: 1, s.d: 1} {
		interfaces := value(s.interfaces(ctx, pod))
		if len(interfaces) != 1+want {
			return fmt.Errorf("pod %s has %d interfaces, not %d: %v", pod.Name, len(interfaces), 1+want, interfaces)
		}
		for n, i := range interfaces[1:] {
			if i.name != fmt.Sprintf("net%d", n+1) || len(i.addrs) != len(s.Options.Gateways) {
				return fmt.Errorf("pod %s has the interface %+v", pod.Name, i)
			}
			for _, addr := range i.addrs {
				if err := s.boundTo(ctx, addr, pod.UID); err != nil {
					return fmt.Errorf("%s of pod %s has %s: %w", i.name, pod.Name, addr, err)
				}
			}
		}
		s.underlays[pod] = interfaces[1:]
	}
	return nil
}

// staysOnItsWay judges that each address was used on its own network only: on the underlay by the
// interface that has it, and not on the management network by any node.
func (s *secondary) staysOnItsWay() error {
	frames, err := s.underlay.Stop()
	if err != nil {
		return err
	}
	other, err := s.management.Stop()
	if err != nil {
		return err
	}
	for pod, interfaces := range s.underlays {
		for _, i := range interfaces {
			for _, addr := range i.addrs {
				if speakers := capture.Speakers(frames, addr); len(speakers) != 1 || speakers[0] != i.mac.String() {
					return fmt.Errorf("%v speak for %s of pod %s, not only its %s with %s", speakers, addr, pod.Name, i.name, i.mac)
				}
				for _, f := range capture.SpokenFor(other, addr) {
					if f.Port != "mgmt-router" { // which has them from the underlay
						return fmt.Errorf("%s of pod %s left its way: %s", addr, pod.Name, f)
					}
				}
			}
		}
		for _, addr := range pod.IPs {
			if left := capture.SpokenFor(frames, addr); len(left) > 0 && strings.HasPrefix(left[0].Port, "ul-n") {
				return fmt.Errorf("%s of pod %s left its way: %s", addr, pod.Name, left[0])
			}
		}
	}
	s.story.Say("Of %d frames on the underlay and %d on the management network, each left by the interface with its address.", len(frames), len(other))
	return nil
}

// deleteBlind ends the agents of all nodes while pod c, which has a host link, ends.
func (s *secondary) deleteBlind(ctx context.Context) error {
	links, err := s.third.Exec(ctx, "ip", "-brief", "link")
	if err != nil {
		return err
	}
	if got := strings.Count(links, hostlink.NodePrefix); got != 1 {
		return fmt.Errorf("%s has %d host links, not that of pod c alone:\n%s", s.third.Name(), got, links)
	}
	if err := s.deletePod(ctx, s.c, false); err != nil {
		return err
	}
	if err := s.replaceAgents(ctx); err != nil {
		return err
	}
	gone := s.underlays[s.c]
	delete(s.underlays, s.c)
	return eventually(ctx, podLimit, "the end of the leases of pod c", func(ctx context.Context) error {
		for _, addr := range gone[0].addrs {
			lease := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LeaseName("", addr)}}
			if err := s.isGone(ctx, lease, "the address "+addr.String()); err != nil {
				return err
			}
		}
		return nil
	})
}

// replaceAgents ends the agents of all nodes at once, and waits for new ones. Unlike after a kill, the
// kubelet starts these without a back-off.
func (s *secondary) replaceAgents(ctx context.Context) error {
	agents := []client.DeleteAllOfOption{
		client.InNamespace(cluster.FencelineNamespace), client.MatchingLabels{"app.kubernetes.io/component": "agent"},
		client.GracePeriodSeconds(0),
	}
	old, err := s.agentRestarts(ctx)
	if err != nil {
		return err
	}
	if err := s.api.DeleteAllOf(ctx, &corev1.Pod{}, agents...); err != nil {
		return fmt.Errorf("delete the agents: %w", err)
	}
	return eventually(ctx, podLimit, "new agents", func(ctx context.Context) error {
		now, err := s.agentRestarts(ctx)
		if err != nil {
			return err
		}
		maps.DeleteFunc(now, func(name string, _ int32) bool { _, is := old[name]; return is })
		if len(now) != len(s.Nodes()) {
			return fmt.Errorf("%d of %d are Ready", len(now), len(s.Nodes()))
		}
		return nil
	})
}

// leavesNothing deletes all pods. No lease is left, and the nodes are as they were before the first pod.
func (s *secondary) leavesNothing(ctx context.Context) error {
	check(s.nothingIsLeft(ctx, s.namespace, s.namespace+"-v6"))
	err := eventually(ctx, podLimit, "nodes as they were before", func(ctx context.Context) error {
		now, err := s.state(ctx)
		if err != nil {
			return err
		}
		for name, lines := range now {
			for _, line := range lines {
				if !slices.Contains(s.before[name], line) {
					return fmt.Errorf("%s has this too: %s", name, line)
				}
			}
		}
		return nil
	})
	if err == nil {
		s.story.Say("The pods are deleted, one of them while the agents restarted. No lease, link, route or rule is left.")
	}
	return err
}

// state returns the links, addresses, routes, rules and neighbours of each node, without those that
// come and go by themselves.
func (s *secondary) state(ctx context.Context) (map[string][]string, error) {
	found := map[string][]string{}
	for _, n := range s.Nodes() {
		text, err := n.Exec(ctx, "sh", "-c", "ip -brief link; ip -4 route; ip -6 route; ip -4 rule; ip -6 rule; ip neigh show nud permanent")
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(text) {
			found[n.Name()] = append(found[n.Name()], strings.Join(strings.Fields(line), " "))
		}
	}
	return found, nil
}
