// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/cluster"
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
	a, b, c, d *cluster.Pod
	// atA and so on are their networks.
	atA, atB, atC, atD place
	outside            place
	outsideAddrs       []netip.Addr
	services           map[string]service
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
			stays(pod)
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
	for pod, at := range map[*cluster.Pod]*place{w.a: &w.atA, w.b: &w.atB, w.c: &w.atC, w.d: &w.atD} {
		*at = w.placeOf(pod)
	}
	host, addrs, err := w.Outside()
	check(err)
	w.outside, w.outsideAddrs = place{"outside host", host.Namespace}, addrs
}
