package holder

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/cni/agentapi"
)

func TestBadInputIsToldInTheErrorAndAnEventAndLeavesNothing(t *testing.T) {
	pool := func(v string) func(*corev1.Pod) { return annotated("ipam.fenceline.io/ippool", v) }
	pools := func(v string) func(*corev1.Pod) { return annotated("ipam.fenceline.io/ippools", v) }
	routes := func(v string) func(*corev1.Pod) { return annotated("ipam.fenceline.io/routes", v) }
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
		{"an unknown field", pool(`{"ipv4pools":["v4"]}`), nil, 7, []string{`unknown field "ipv4pools"`, "expected the form"}},
		{"an unknown pool", pool(`{"ipv4":["v4","x"]}`), nil, 7, []string{"there is no pool x", "expected the form"}},
		{"the wrong family", pool(`{"ipv6":["v4"]}`), nil, 7, []string{"pool v4: its subnet 10.0.0.0/24 is of the other family", "expected the form"}},
		{"a pool named twice", pool(`{"ipv4":["v4","v4"]}`), nil, 7, []string{"pool v4 is named twice", "expected the form"}},
		{"an interface named twice", pools(`[{"interface":"eth0","ipv4":["v4"]},{"interface":"eth0","ipv4":["v4"]}]`), nil, 7, []string{"interface eth0 is named twice"}},
		{"an empty list", pools("[]"), nil, 7, []string{"annotation ipam.fenceline.io/ippools", "0 entries"}},
		{"a huge value", pool(strings.Repeat("x", 200_000)), nil, 7, []string{"annotation ipam.fenceline.io/ippool", "xxx…", "expected the form"}},
		{"a subnet, which nobody serves", annotated("ipam.fenceline.io/subnet", `{"ipv4":["s"]}`), nil, 7, []string{"IPSubnet is not available in this version"}},
		{"routes that are none", routes(`[{"dst":"10.8.0.0/16","gw":"router"}]`), nil, 7, []string{"annotation ipam.fenceline.io/routes", `"router" is not an IP address`, `expected the form [{"dst": "10.0.0.0/16", "gw": "192.168.1.1"}]`}},
		{"a route of a family that the pod does not get", routes(`[{"dst":"fd08::/16","gw":"fd00::1"}]`), nil, 7, []string{"gets no address of this family"}},
		{"an interface for the default route that is empty", annotated("ipam.fenceline.io/default-route-nic", ""), nil, 7, []string{"it names no interface", "expected the form eth0"}},
		{"broken networks", annotated("k8s.v1.cni.cncf.io/networks", "[{"), nil, 7, []string{"annotation k8s.v1.cni.cncf.io/networks", "expected the form"}},
		{"an unknown pool in the CNI configuration", nil, func(r *agentapi.AddRequest) { r.Network.DefaultIPv4IPPool = []string{"x"} }, 100, []string{"pool x: it does not exist"}},
		{"the gateway is asked for", nil, asking("10.0.0.1"), 102, []string{"10.0.0.1", "it is the gateway of pool v4"}},
		{"an excluded address is asked for", nil, asking("10.0.0.9"), 102, []string{"10.0.0.9", "it is excluded from pool v4"}},
		{"a reserved address is asked for", nil, asking("10.0.0.8"), 102, []string{"10.0.0.8", "it is reserved"}},
		{"an address of no pool is asked for", nil, asking("10.7.0.1"), 102, []string{"10.7.0.1", "it is in none of the pools [v4]"}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			p := v4("10.0.0.2-10.0.0.9")
			gateway := "10.0.0.1"
			p.Spec.Gateway, p.Spec.ExcludeIPs = &gateway, []string{"10.0.0.9"}
			r := newRig(t, p)
			r.reserve("10.0.0.8")
			if c.pod == nil {
				c.pod = func(*corev1.Pod) {}
			}
			request := r.pod("web", "u1", c.pod)
			if c.add != nil {
				c.add(&request)
			}
			text := r.refused(c.code, request)
			events := r.told()
			if len(events) != 1 || !strings.HasPrefix(events[0], "Warning AddressRefused ") {
				t.Fatalf("events %q", events)
			}
			for _, part := range c.says {
				if !strings.Contains(text, part) {
					t.Errorf("the error %q does not say %q", text, part)
				}
				if !strings.Contains(events[0], part) {
					t.Errorf("the event %q does not say %q", events[0], part)
				}
			}
			if len(events[0]) > maxNote+100 {
				t.Errorf("an event of %d bytes", len(events[0]))
			}
			r.wantNothing()
		})
	}
}

func TestBadInputOfANamespace(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	r.api.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{"ipam.fenceline.io/default-ipv4-ippool": "v4"}}})
	text := r.refused(agentapi.CodeInvalidNetworkConfig, r.pod("web", "u1"))
	const want = `annotation ipam.fenceline.io/default-ipv4-ippool of namespace shop is "v4"`
	if events := r.told(); !strings.Contains(text, want) || len(events) != 1 || !strings.Contains(events[0], want) {
		t.Errorf("error %q, events %q", text, events)
	}
	r.wantNothing()
}
