// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"

	"github.com/fenceline/fenceline/test/cluster"
)

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
		at, client := s.at(from), own[0].addrs[family]
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

// toOutside adds the ways to the outside: by eth0, except from the pod whose default routes are those of
// its net1.
func (s *secondary) toOutside(ways *paths, family int) {
	to := netip.AddrPortFrom(s.outsideAddrs[family], httpPort)
	for from, own := range s.underlays {
		if from == s.d {
			ways.get(s.at(from), "the outside host by net1", to, outsideName, own[0].addrs[family])
		} else {
			ways.get(s.at(from), "the outside host by eth0", to, outsideName, from.IPs[family])
		}
	}
}

// at returns the network of a pod.
func (s *secondary) at(pod *cluster.Pod) place {
	return map[*cluster.Pod]place{s.a: s.atA, s.b: s.atB, s.c: s.atC, s.d: s.atD}[pod]
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
