// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

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
		p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{
			{ContainerPort: 80, HostPort: 8080, Protocol: corev1.ProtocolTCP}, {ContainerPort: 81},
		}}}
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
