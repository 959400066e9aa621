// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/network"
)

// wholeAddresses is the size of each pool: twice the scenario's pods and CoreDNS.
const wholeAddresses = 20

// whole is a cluster with pods behind Services. Fenceline is their only network, or their second one.
type whole struct {
	*act
	// annotations are those of the pods, by their names.
	annotations map[string]map[string]string
	// routed: eth0 belongs to the routed network.
	routed bool
	// first, second and third are nodes; the controller is on none of the first two.
	first, second, third *cluster.Node
	// a and d are on the first node, b on the second, c on the third.
	a, b, c, d   *cluster.Pod
	at           map[*cluster.Pod]place // their networks
	outside      place
	outsideAddrs []netip.Addr
	services     map[string]service
}

// playWhole: a pod has all that Kubernetes promises a pod.
func playWhole(ctx context.Context, a *act) {
	w := a.openWhole(ctx)
	a.show(ctx, "get", "pods", "--namespace="+a.namespace, "--output=wide")
	w.reaches(ctx)
	w.isServed(ctx)
}

// playSteady: a pod keeps all that while parts of its node end.
func playSteady(ctx context.Context, a *act) {
	w := a.openWhole(ctx)
	w.outlives(ctx)
	w.boots(ctx)
}

// openWhole makes a whole cluster with Fenceline as its only network.
func (a *act) openWhole(ctx context.Context) *whole {
	w := &whole{act: a}
	w.openPools(ctx)
	w.fill(ctx)
	return w
}

// openPools makes the namespace and a pool of each family.
func (w *whole) openPools(ctx context.Context) {
	w.chooseNodes(ctx)
	w.makeNamespace(ctx)
	for _, gateway := range w.Options.Gateways {
		name, ips := w.namespace, w.ips(firstHost, wholeAddresses)
		if gateway.Addr().Is6() {
			name, ips = name+"-v6", w.ips6(wholeAddresses)
		}
		w.addPool(ctx, name, v1alpha1.IPPoolSpec{
			Subnet: gateway.Masked().String(), IPs: ips, Gateway: ptr.To(gateway.Addr().String()),
			Default: ptr.To(true), NamespaceName: []string{w.namespace, "kube-system"},
		})
	}
}

// fill makes CoreDNS, pods with each kind of probe, and Services.
func (w *whole) fill(ctx context.Context) {
	started := time.Now()
	w.after("remove CoreDNS", func(ctx context.Context) { check(w.RemoveDNS(ctx)) })
	check(w.InstallDNS(ctx))
	w.story.Say("A pool of each family, CoreDNS, and a pod with each kind of probe: HTTP, TCP, gRPC and a command.")
	w.startPods(ctx)
	w.makeServices(ctx)
	w.awaitPods(ctx)
	w.story.Say("All of them are Ready after %s: their probes reach them, and CoreDNS reaches the API server.", round(time.Since(started)))
	w.openPlaces()
}

func (w *whole) chooseNodes(ctx context.Context) {
	must(len(w.Options.Gateways) > 0 && len(w.Nodes()) >= 3, "the cluster needs three nodes and a router")
	controller := w.controllerNode(ctx)
	others := w.others(controller)
	w.first, w.second, w.third = others[0], others[1], controller
}

// startPods makes a pod with each kind of probe, two on the network of their nodes, and one that waits
// for an input.
func (w *whole) startPods(ctx context.Context) {
	web := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: port(httpPort)}}
	tcp := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port(appPort)}}
	grpc := corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: grpcPort}}
	command := corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/app", "get", fmt.Sprintf("http://127.0.0.1:%d", httpPort)}}}
	for _, p := range []struct {
		name        string
		node        *cluster.Node
		ready, live corev1.ProbeHandler
		change      func(*corev1.Pod)
	}{
		{"a", w.first, web, tcp, nil},
		{"b", w.second, tcp, grpc, nil},
		{"c", w.third, grpc, command, nil},
		{"d", w.first, command, web, nil},
		{"near", w.first, web, web, ofNode},
		{"far", w.second, web, web, ofNode},
		{"input", w.second, corev1.ProbeHandler{}, corev1.ProbeHandler{}, waitsForInput},
	} {
		w.startPod(ctx, p.name, p.node, func(pod *corev1.Pod) {
			pod.Labels["part"], pod.Annotations = "web", w.annotations[p.name]
			container := &pod.Spec.Containers[0]
			container.ReadinessProbe = &corev1.Probe{ProbeHandler: p.ready, PeriodSeconds: 1}
			// With a second, the default, a busy machine kills the container and with it the steady connections.
			container.LivenessProbe = &corev1.Probe{ProbeHandler: p.live, PeriodSeconds: 5, TimeoutSeconds: 5}
			if p.change != nil {
				p.change(pod)
			}
		})
	}
}

// ofNode puts a pod on the network of its node.
func ofNode(p *corev1.Pod) {
	p.Spec.HostNetwork = true
	delete(p.Labels, "part")
}

// waitsForInput makes a pod that prints its input.
func waitsForInput(p *corev1.Pod) {
	c := &p.Spec.Containers[0]
	c.Args, c.Stdin, c.ReadinessProbe, c.LivenessProbe = []string{"cat"}, true, nil, nil
	delete(p.Labels, "part")
}

func (w *whole) makeServices(ctx context.Context) {
	w.services = map[string]service{}
	for _, s := range []struct {
		name   string
		pods   map[string]string
		change func(*corev1.ServiceSpec)
	}{
		{"a", map[string]string{"app": "a"}, nil},
		{"b", map[string]string{"app": "b"}, onNodes},
		{"near", map[string]string{"app": "near"}, nil},
		{"far", map[string]string{"app": "far"}, nil},
		{"all", map[string]string{"part": "web"}, toOnePod},
		{"names", map[string]string{"part": "web"}, headless},
		{"local", map[string]string{"app": "b"}, onOwnNode},
	} {
		w.services[s.name] = w.serve(ctx, s.name, s.pods, s.change)
	}
	w.balance(ctx)
}

// balance makes a Service whose load balancer has an address on the subnet of the pods.
func (w *whole) balance(ctx context.Context) {
	s := w.serve(ctx, "balanced", map[string]string{"app": "b"}, func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer })
	s.addrs = nil
	object := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "balanced"}}
	did(w.api.Get(ctx, client.ObjectKeyFromObject(object), object), "read Service balanced")
	for _, gateway := range w.Options.Gateways {
		b := gateway.Masked().Addr().AsSlice()
		b[len(b)-1] = 253 // not of the pool
		addr, _ := netip.AddrFromSlice(b)
		s.addrs = append(s.addrs, addr)
		object.Status.LoadBalancer.Ingress = append(object.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: addr.String()})
	}
	did(w.api.Status().Update(ctx, object), "give Service balanced its addresses")
	w.services["balanced"] = s
}

// awaitPods waits until all pods and CoreDNS are Ready.
func (w *whole) awaitPods(ctx context.Context) {
	w.running(ctx, 7, everyPod)
	w.a, w.b, w.c, w.d = w.pod(ctx, "a"), w.pod(ctx, "b"), w.pod(ctx, "c"), w.pod(ctx, "d")
	eventually(ctx, podLimit, "CoreDNS", func(ctx context.Context) {
		w.rolledOut(ctx, client.ObjectKey{Namespace: "kube-system", Name: "coredns"})
	})
}

// openPlaces opens the networks from which requests are made. They are new after a boot.
func (w *whole) openPlaces() {
	w.at = map[*cluster.Pod]place{}
	for _, pod := range []*cluster.Pod{w.a, w.b, w.c, w.d} {
		w.at[pod] = w.placeOf(pod)
	}
	host, addrs, err := w.Outside()
	check(err)
	w.outside, w.outsideAddrs = place{"outside host", host.Namespace}, addrs
}

// servicePort leads to the HTTP port of a pod. The ports of its echo servers stay what they are.
const servicePort = 80

// service is a Service of the families of the cluster.
type service struct {
	// addrs are the cluster IPs, of which a headless one has none.
	addrs []netip.Addr
	// http, udp and tcp are the ports of nodes, zero without any.
	http, udp, tcp uint16
}

// serve makes a Service for pods with these labels.
func (a *act) serve(ctx context.Context, name string, pods map[string]string, change func(*corev1.ServiceSpec)) service {
	object := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: name},
		Spec: corev1.ServiceSpec{
			Selector: pods, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack),
			Ports: []corev1.ServicePort{
				{Name: "http", Port: servicePort, TargetPort: intstr.FromInt32(httpPort)},
				{Name: "udp", Port: appPort, Protocol: corev1.ProtocolUDP},
				{Name: "tcp", Port: appPort},
			},
		},
	}
	if change != nil {
		change(&object.Spec)
	}
	did(a.api.Create(ctx, object), "make Service %s", name)
	port := func(i int) uint16 { return uint16(object.Spec.Ports[i].NodePort) }
	s := service{http: port(0), udp: port(1), tcp: port(2)}
	for _, ip := range object.Spec.ClusterIPs {
		if ip == corev1.ClusterIPNone {
			continue
		}
		s.addrs = append(s.addrs, value(netip.ParseAddr(ip)))
	}
	return s
}

func headless(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone }
func onNodes(s *corev1.ServiceSpec)  { s.Type = corev1.ServiceTypeNodePort }
func toOnePod(s *corev1.ServiceSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP }
func onOwnNode(s *corev1.ServiceSpec) {
	onNodes(s)
	s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

// isServed uses kubectl as a person does.
func (w *whole) isServed(ctx context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	domain := w.namespace + ".svc.cluster.local"
	for _, name := range []string{"b", "b." + w.namespace, "b." + domain} {
		group.Go(func() error {
			output, err := w.Kubectl(ctx, "exec", "--namespace="+w.namespace, "d", "--", "/app", "get", "http://"+name)
			return says("exec in pod d", output, "b ", err)
		})
	}
	group.Go(func() error {
		output, err := w.Kubectl(ctx, "logs", "--namespace="+w.namespace, "c")
		return says("the log of pod c", output, "c serves HTTP", err)
	})
	group.Go(func() error {
		output, err := w.Attach(ctx, w.namespace, "input", "hello")
		return says("attach to pod input", output, "hello", err)
	})
	group.Go(func() error { return attempt(func() { w.isForwarded(ctx) }) })
	check(group.Wait())
	w.story.Say("kubectl exec, logs, attach and port-forward work.")
}

// isForwarded asks pod b by a port of this machine.
func (w *whole) isForwarded(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	port := value(w.PortForward(ctx, w.namespace, "b", httpPort))
	here := value(network.Current())
	defer here.Close()
	got, err := place{"this machine", here}.get(ctx, port)
	check(says("a forwarded port of pod b", got.pod, "b", err))
}

func says(what, got, want string, err error) error {
	if err == nil && !strings.Contains(got, want) {
		err = fmt.Errorf("it says %q, not %q", got, want)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

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
	w.story.Say("%d ways work, in each family: ClusterIP, LoadBalancer, NodePort, headless, externalTrafficPolicy Local, session affinity, the pod's own Service, DNS, nodes and the outside.", len(*ways))
}

// toServices adds the ways by cluster IPs.
func (w *whole) toServices(ways *paths, family int) {
	for _, to := range []struct {
		from      place
		what, pod string
	}{
		{w.at[w.d], "a", "a"}, // the same node
		{w.at[w.d], "b", "b"}, // another node
		{w.at[w.c], "a", "a"},
		{w.at[w.a], "a", "a"}, // itself
		{w.at[w.b], "b", "b"},
		{w.at[w.d], "balanced", "b"},
		{w.at[w.b], "balanced", "b"},        // itself
		{w.at[w.d], "near", w.first.Name()}, // on the network of its own node
		{w.at[w.d], "far", w.second.Name()},
		{placeOfNode(w.first), "a", "a"},
		{placeOfNode(w.first), "b", "b"},
		{placeOfNode(w.third), "far", w.second.Name()},
	} {
		if w.routed && to.what == "balanced" {
			continue // no host link leads there, and nobody announces it
		}
		addr := w.services[to.what].addrs[family]
		ways.get(to.from, "Service "+to.what, netip.AddrPortFrom(addr, servicePort), to.pod, netip.Addr{})
		if w.routed && to.what == "near" {
			continue // the node has an address of its own for the pod, and answers by UDP with it
		}
		ways.send(to.from, "Service "+to.what, netip.AddrPortFrom(addr, appPort), to.pod, netip.Addr{})
	}
	all := netip.AddrPortFrom(w.services["all"].addrs[family], servicePort)
	ways.add(fmt.Sprintf("pod d to one pod of Service all, always the same (HTTP %s)", all), func(ctx context.Context) {
		const times = 12
		seen := map[string]int{}
		for range times {
			seen[value(w.at[w.d].get(ctx, all)).pod]++
		}
		must(len(seen) == 1, "of %d times, pods answered %v", times, seen)
	})
}

// byNodes adds the ways by ports of nodes.
func (w *whole) byNodes(ways *paths, family int) {
	b, local := w.services["b"], w.services["local"]
	first, second := nodeAddr(w.first, family), nodeAddr(w.second, family)
	for _, from := range []place{w.outside, w.at[w.d], w.at[w.b], placeOfNode(w.first), placeOfNode(w.third)} {
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
	for from, at := range w.at {
		for to := range w.at {
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
	var all []netip.Addr
	for p := range w.at {
		all = append(all, p.IPs...)
	}
	for _, at := range []place{w.at[w.b], w.at[w.d]} {
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
	for _, at := range w.at {
		ways.add(fmt.Sprintf("%s to the API server (TLS %s)", at.name, api), func(ctx context.Context) {
			check(at.handshake(ctx, api, &tls.Config{RootCAs: authority, ServerName: "kubernetes"}))
		})
	}
}

func nodeAddr(node *cluster.Node, family int) netip.Addr { return node.Config.Addresses[family] }
