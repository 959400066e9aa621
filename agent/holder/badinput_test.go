// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

func TestBadInputIsToldInTheErrorAndAnEventAndLeavesNothing(t *testing.T) {
	pool := func(v string) func(*corev1.Pod) { return fakenode.Annotated("ipam.fenceline.io/ippool", v) }
	routes := func(v string) func(*corev1.Pod) { return fakenode.Annotated("ipam.fenceline.io/routes", v) }
	asking := func(addr string) func(*agentapi.AddRequest) {
		return func(r *agentapi.AddRequest) { r.IPs = []netip.Addr{netip.MustParseAddr(addr)} }
	}
	for _, c := range []struct {
		rule string
		pod  func(*corev1.Pod)
		add  func(*agentapi.AddRequest)
		code uint
		says []string
	}{
		{"no JSON", pool("v4"), nil, 7, []string{`annotation ipam.fenceline.io/ippool of pod shop/web is "v4"`, `expected the form {"ipv4": ["pool-a"`}},
		{"a huge value", pool(strings.Repeat("x", 200_000)), nil, 7, []string{"annotation ipam.fenceline.io/ippool", "xxx…", "expected the form"}},
		{"a subnet for a pod without replicas", fakenode.Annotated("ipam.fenceline.io/subnet", `{"ipv4":["s"]}`), nil, 7, []string{"a pod without an owner has no replicas: give a fixed number in the annotation ippool-ip-number"}},
		{"the other prefix", fakenode.Annotated("ipam.spidernet.io/ippool", "v4"), nil, 7, []string{"annotation ipam.spidernet.io/ippool of pod shop/web"}},
		{"a retention that is no duration", fakenode.Annotated("ipam.fenceline.io/ip-retention", "2d"), nil, 7, []string{"expected forever, a duration such as 48h, or a number of hours"}},
		{"a huge retention", fakenode.Annotated("ipam.fenceline.io/ip-retention", strings.Repeat("x", 200_000)), nil, 7, []string{"expected forever"}},
		{"a fixed address neither wanted nor not", fakenode.Annotated("ipam.fenceline.io/static-ip", "maybe"), nil, 7, []string{"expected true or false"}},
		{"routes that are none", routes(`[{"dst":"10.8.0.0/16","gw":"router"}]`), nil, 7, []string{"annotation ipam.fenceline.io/routes", `"router" is not an IP address`, `expected the form [{"dst": "10.0.0.0/16", "gw": "192.168.1.1"}]`}},
		{"an interface for the default route that is empty", fakenode.Annotated("ipam.fenceline.io/default-route-nic", ""), nil, 7, []string{"it names no interface", "expected the form eth0"}},
		{"broken networks", fakenode.Annotated("k8s.v1.cni.cncf.io/networks", "[{"), nil, 7, []string{"annotation k8s.v1.cni.cncf.io/networks", "expected the form"}},
		{"an unknown pool in the CNI configuration", nil, func(r *agentapi.AddRequest) { r.Network.DefaultIPv4IPPool = []string{"x"} }, 100, []string{"pool x: it does not exist"}},
		{"the gateway is asked for", nil, asking("10.0.0.1"), 102, []string{"10.0.0.1", "it is the gateway of pool v4"}},
		{"a reserved address is asked for", nil, asking("10.0.0.8"), 102, []string{"10.0.0.8", "it is reserved"}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			p := fakenode.V4("10.0.0.2-10.0.0.9")
			p.Spec.Gateway = new("10.0.0.1")
			r := fakenode.New(t, p)
			reserve(r, "10.0.0.8")
			if c.pod == nil {
				c.pod = func(*corev1.Pod) {}
			}
			request := r.Pod("web", "u1", c.pod)
			if c.add != nil {
				c.add(&request)
			}
			text := r.Refused(c.code, request)
			events := r.Told()
			check.Must(t, len(events) == 1 && strings.HasPrefix(events[0], "Warning AddressRefused "), "events %q", events)
			says := c.says
			if c.code == agentapi.CodeInvalidNetworkConfig {
				says = append(says, ofAnnotation(c.pod)...)
			}
			check.Says(t, text, says...)
			check.Says(t, events[0], says...)
			check.That(t, len(events[0]) <= event.MaxNote+100, "an event of %d bytes", len(events[0]))
			r.WantNothing()
		})
	}
}

// ofAnnotation is what must be told of the one annotation that a pod was given:
// its name, its value or the beginning of it, and the form expected.
func ofAnnotation(annotate func(*corev1.Pod)) []string {
	pod := &corev1.Pod{}
	annotate(pod)
	says := []string{"expected "}
	for key, value := range pod.Annotations {
		quoted := strconv.Quote(value[:min(len(value), 200)])
		says = append(says, "annotation "+key, "is "+quoted[:len(quoted)-1])
	}
	return says
}

func TestBadInputOfANamespace(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	r.API.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{"ipam.fenceline.io/default-ipv4-ippool": "v4"}}})
	text := r.Refused(agentapi.CodeInvalidNetworkConfig, r.Pod("web", "u1"))
	const want = `annotation ipam.fenceline.io/default-ipv4-ippool of namespace shop is "v4"`
	check.Says(t, text, want, "expected ")
	events := r.Told()
	check.That(t, len(events) == 1 && strings.Contains(events[0], want), "events %q", events)
	r.WantNothing()
}

func TestTheRuntimeIsToldEveryCandidate(t *testing.T) {
	pools := make([]*v1alpha1.IPPool, 40)
	for i := range pools {
		pools[i] = fakenode.Pool(fmt.Sprintf("p%02d", i), fmt.Sprintf("10.%d.0.0/24", i), v1alpha1.ModeEnforce)
		pools[i].Spec.Disable, pools[i].Spec.Default = new(true), new(true)
	}
	r := fakenode.New(t, pools...)
	text := r.Refused(agentapi.CodeNoPool, r.Pod("web", "u1"))
	for _, p := range pools {
		check.Says(t, text, "pool "+p.Name+": it is disabled")
	}
	events := r.Told()
	check.That(t, len(events) == 1 && strings.HasSuffix(events[0], "more; see kubectl get flpool") &&
		strings.Contains(events[0], "pool p05: it is disabled"), "events %q", events)
}

// toldOf returns the events of a reason since the last call.
func toldOf(r *fakenode.Node, reason string) []string {
	return slices.DeleteFunc(r.Told(), func(e string) bool { return !strings.Contains(e, " "+reason+" ") })
}

func TestAnnotationsThatNobodyReadsAreReportedOncePerADD(t *testing.T) {
	r, l := fullNode(t)
	r.API.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{
		"ipam.fenceline.io/default-ipv4-pool": `["v4"]`, "example.com/ipool": "x",
	}}})
	web := r.Pod("web", "u1", fakenode.Annotated("ipam.fenceline.io/ipool", `{"ipv4":["v4"]}`), fakenode.Annotated("ipam.fenceline.io/mode", "underlay"))
	end := waits(t.Context(), r, web)
	r.API.Drop(l)
	check.OK(t, <-end) // by its second try
	want := []string{"Warning AnnotationUnknown annotation ipam.fenceline.io/ipool of pod shop/web does not exist, the nearest one is ipam.fenceline.io/ippool; " +
		"annotation ipam.fenceline.io/default-ipv4-pool of namespace shop does not exist, the nearest one is ipam.fenceline.io/default-ipv4-ippool"}
	check.List(t, toldOf(r, "AnnotationUnknown"), want, "got")

	r.API.Put(fakenode.V4("10.0.0.2-10.0.0.9"))
	web.Interface, web.NetNS = "net1", web.NetNS+"1"
	r.MustAdd(web)
	check.None(t, toldOf(r, "AnnotationUnknown"), "the second interface of the sandbox:")
}

func TestHostPortsThatNobodyListensOnAreReported(t *testing.T) {
	ports := func(p *corev1.Pod) {
		first := corev1.ContainerPort{ContainerPort: 80, HostPort: 8080, Protocol: corev1.ProtocolTCP}
		p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{first, {ContainerPort: 81}}}}
		p.Spec.InitContainers = []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 53, HostPort: 53, Protocol: corev1.ProtocolUDP}}}}
	}
	const without = "Warning HostPortIgnored hostPort 8080/TCP, 53/UDP of pod shop/web has no effect: no plugin of the pod network has the capability portMappings; " +
		"set cni.conflist.portMap of the chart, or chain the plugin portmap"
	for name, c := range map[string]struct {
		change  func(*corev1.Pod)
		iface   string
		passes  bool
		runtime string
		want    []string
	}{
		"no plugin takes them":                 {ports, "eth0", false, "containerd://2.1.0", []string{without}},
		"a plugin takes them":                  {ports, "eth0", true, "containerd://2.1.0", nil},
		"CRI-O serves them itself":             {ports, "eth0", false, "cri-o://1.34.0", nil},
		"the pod has none":                     {func(*corev1.Pod) {}, "eth0", false, "containerd://2.1.0", nil},
		"another network makes the pod's eth0": {ports, "net1", false, "containerd://2.1.0", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
			r.PassesPorts = c.passes
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fakenode.ThisNode}}
			node.Status.NodeInfo.ContainerRuntimeVersion = c.runtime
			r.API.Put(node)
			web := r.Pod("web", "u1", c.change)
			web.Interface = c.iface
			r.MustAdd(web)
			check.List(t, toldOf(r, "HostPortIgnored"), c.want, "got")
		})
	}
}
