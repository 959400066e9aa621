// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/test/network"
)

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
