// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenceline/fenceline/test/cluster"
)

// grpcPort is where a pod answers gRPC probes.
const grpcPort = 7001

func port(number int) intstr.IntOrString { return intstr.FromInt(number) }

// reaches walks all paths between pods, nodes, Services and the outside, in each family.
func (w *whole) reaches(ctx context.Context) {
	ways := &paths{}
	for family := range w.Options.Gateways {
		w.toServices(ways, family)
		w.byNodes(ways, family)
		w.direct(ways, family)
		w.names(ways, w.NameServers()[family])
	}
	w.toAPIServer(ways)
	check(ways.walk(ctx))
	w.story.Say("%d ways work, in each family: ClusterIP, NodePort, headless, externalTrafficPolicy Local, session affinity, the pod's own Service, DNS, nodes and the outside.", len(*ways))
}

// toServices adds the ways by cluster IPs.
func (w *whole) toServices(ways *paths, family int) {
	for _, to := range []struct {
		from      place
		what, pod string
	}{
		{w.atD, "a", "a"}, // the same node
		{w.atD, "b", "b"}, // another node
		{w.atC, "a", "a"},
		{w.atA, "a", "a"}, // itself
		{w.atB, "b", "b"},
		{w.atD, "near", w.first.Name()}, // on the network of its own node
		{w.atD, "far", w.second.Name()},
		{placeOfNode(w.first), "a", "a"},
		{placeOfNode(w.first), "b", "b"},
		{placeOfNode(w.third), "far", w.second.Name()},
	} {
		addr := w.services[to.what].addrs[family]
		ways.get(to.from, "Service "+to.what, netip.AddrPortFrom(addr, servicePort), to.pod, netip.Addr{})
		if w.routed && to.what == "near" {
			continue // the node has an address of its own for the pod, and answers by UDP with it
		}
		ways.send(to.from, "Service "+to.what, netip.AddrPortFrom(addr, appPort), to.pod, netip.Addr{})
	}
	all := netip.AddrPortFrom(w.services["all"].addrs[family], servicePort)
	ways.add(fmt.Sprintf("pod d to one pod of Service all, always the same (HTTP %s)", all), func(ctx context.Context) error {
		const times = 12
		seen := map[string]int{}
		for range times {
			got, err := w.atD.get(ctx, all)
			if err != nil {
				return err
			}
			seen[got.pod]++
		}
		if len(seen) != 1 {
			return fmt.Errorf("of %d times, pods answered %v", times, seen)
		}
		return nil
	})
}

// byNodes adds the ways by ports of nodes.
func (w *whole) byNodes(ways *paths, family int) {
	b, local := w.services["b"], w.services["local"]
	first, second := nodeAddr(w.first, family), nodeAddr(w.second, family)
	for _, from := range []place{w.outside, w.atD, w.atB, placeOfNode(w.first), placeOfNode(w.third)} {
		for _, node := range []netip.Addr{first, second} {
			ways.get(from, "the NodePort of b", netip.AddrPortFrom(node, b.http), "b", netip.Addr{})
			ways.send(from, "the NodePort of b", netip.AddrPortFrom(node, b.udp), "b", netip.Addr{})
		}
	}
	// The client's address is kept for TCP.
	ways.get(w.outside, "the NodePort of local", netip.AddrPortFrom(second, local.http), "b", w.outsideAddrs[family])
	ways.send(w.outside, "the NodePort of local", netip.AddrPortFrom(second, local.udp), "b", netip.Addr{})
}

// direct adds the ways by the addresses of pods, nodes and the outside.
func (w *whole) direct(ways *paths, family int) {
	pods := map[*cluster.Pod]place{w.a: w.atA, w.b: w.atB, w.c: w.atC, w.d: w.atD}
	for from, at := range pods {
		for to := range pods {
			ways.get(at, "pod "+to.Name, netip.AddrPortFrom(to.IPs[family], httpPort), to.Name, from.IPs[family])
		}
		for _, n := range w.Nodes() {
			ways.ping(at, "node "+n.Name(), nodeAddr(n, family))
			ways.get(placeOfNode(n), "pod "+from.Name, netip.AddrPortFrom(from.IPs[family], httpPort), from.Name, netip.Addr{})
		}
		ways.ping(at, "the outside host", w.outsideAddrs[family])
		ways.get(w.outside, "pod "+from.Name, netip.AddrPortFrom(from.IPs[family], httpPort), from.Name, w.outsideAddrs[family])
		ways.get(at, "pod near, on the network of "+w.first.Name(), netip.AddrPortFrom(nodeAddr(w.first, family), httpPort), w.first.Name(), netip.Addr{})
		ways.get(at, "pod far, on the network of "+w.second.Name(), netip.AddrPortFrom(nodeAddr(w.second, family), httpPort), w.second.Name(), netip.Addr{})
	}
}

// names adds questions to a name server.
func (w *whole) names(ways *paths, server netip.Addr) {
	domain := "." + w.namespace + ".svc.cluster.local"
	pods := []*cluster.Pod{w.a, w.b, w.c, w.d}
	var all []netip.Addr
	for _, p := range pods {
		all = append(all, p.IPs...)
	}
	for _, at := range []place{w.atB, w.atD} {
		ways.resolve(at, server, "b"+domain, w.services["b"].addrs)
		ways.resolve(at, server, "names"+domain, all)
	}
}

// toAPIServer adds the ways to Service kubernetes, which has one family.
func (w *whole) toAPIServer(ways *paths) {
	config := value(w.RESTConfig())
	authority := x509.NewCertPool()
	must(authority.AppendCertsFromPEM(config.CAData), "the administrator's kubeconfig has no authority")
	api := netip.AddrPortFrom(w.APIServerService(), 443)
	for _, at := range []place{w.atA, w.atB, w.atC, w.atD} {
		ways.add(fmt.Sprintf("%s to the API server (TLS %s)", at.name, api), func(ctx context.Context) error {
			return at.handshake(ctx, api, &tls.Config{RootCAs: authority, ServerName: "kubernetes"})
		})
	}
}

func nodeAddr(node *cluster.Node, family int) netip.Addr { return node.Config.Addresses[family] }
