package holder

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[key] = value
	}
}

// reserve keeps addresses back from now on.
func (r *rig) reserve(ips ...string) {
	r.api.put(&v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: v1alpha1.ReservedIPSpec{IPs: ips}})
}

// told are the events so far.
func (r *rig) told() []string {
	var all []string
	for {
		select {
		case e := <-r.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// wantNothing expects that a refused ADD has left nothing behind.
func (r *rig) wantNothing() {
	r.t.Helper()
	r.want()
	if all := r.Journal.All(); len(all) != 0 {
		r.t.Errorf("the journal holds %v", all)
	}
	for slot, device := range r.kernel.guards {
		if !r.kernel.isDead(slot) && !r.kernel.gone[device] {
			r.t.Errorf("slot %d still guards %s", slot, device)
		}
	}
	if len(r.kernel.leases) != 0 {
		r.t.Errorf("the kernel holds %v", r.kernel.leases)
	}
}

func TestAReservedAddressIsNotHandedOut(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.4"))
	r.reserve("10.0.0.2", "10.0.0.9-10.0.0.1")
	if got := r.add(r.pod("a", "u1")); got[0] == "10.0.0.2" {
		t.Errorf("got %v", got)
	}
	r.reserve("10.0.0.2-10.0.0.4")
	if text := r.refused(agentapi.CodeNoPool, r.pod("b", "u2")); !strings.Contains(text, "pool v4: all its addresses are reserved") {
		t.Error(text)
	}
}

func TestAnAddressInUseThatIsReservedStaysWithItsPod(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.3"))
	web := r.pod("web", "u1")
	r.add(web)
	r.reserve("10.0.0.2")
	if err := r.Check(t.Context(), agentapi.CheckRequest{Attachment: web.Attachment}); err != nil || !r.speaks(web, "10.0.0.2") {
		t.Errorf("CHECK: %v", err)
	}
	r.settle()
	r.want("10.0.0.2 Bound")

	// A newer sandbox of the same pod keeps it as well.
	newer := web
	newer.ContainerID, newer.NetNS = "c-newer", "/netns/c-newer"
	if got := r.add(newer); got[0] != "10.0.0.2" {
		t.Fatalf("got %v", got)
	}
	// Once it is free it is nobody's.
	r.del(newer)
	for i := range 3 {
		other := r.pod(fmt.Sprintf("other-%d", i), fmt.Sprintf("v%d", i))
		if got := r.add(other); got[0] != "10.0.0.3" {
			t.Fatalf("got %v", got)
		}
		r.del(other)
	}
}

func TestAKeptAddressIsNeverLostToAChangeOfItsPool(t *testing.T) {
	yes := true
	for _, c := range []struct {
		rule   string
		change func(*rig, *v1alpha1.IPPool)
	}{
		{"it is reserved", func(r *rig, _ *v1alpha1.IPPool) { r.reserve("10.0.0.2") }},
		{"the whole pool is reserved", func(r *rig, _ *v1alpha1.IPPool) { r.reserve("10.0.0.0/24") }},
		{"it has left ips", func(_ *rig, p *v1alpha1.IPPool) { p.Spec.IPs = []string{"10.0.0.3-10.0.0.9"} }},
		{"everything is excluded", func(_ *rig, p *v1alpha1.IPPool) { p.Spec.ExcludeIPs = []string{"10.0.0.0/24"} }},
		{"the pool is disabled", func(_ *rig, p *v1alpha1.IPPool) { p.Spec.Disable = &yes }},
		{"the pool is being deleted", func(_ *rig, p *v1alpha1.IPPool) { p.DeletionTimestamp = &metav1.Time{} }},
		{"the pool overlaps another one", func(_ *rig, p *v1alpha1.IPPool) {
			p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Overlapping"}}
		}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			p := v4("10.0.0.2-10.0.0.9")
			r := newRig(t, p)
			r.api.put(held("10.0.0.2", retained))
			c.change(r, p)
			r.api.put(p)
			web := r.pod("web-0", "u1", ofStatefulSet)
			if got := r.add(web); got[0] != "10.0.0.2" {
				t.Fatalf("got %v", got)
			}
			r.del(web)
			r.want("10.0.0.2 Retained")
		})
	}
}

// The lease goes while the ADD waits for it: a closed pool gives no other address.
func TestAClosedPoolGivesNoNewAddressInPlaceOfAKeptOne(t *testing.T) {
	p := v4("10.0.0.2-10.0.0.9")
	yes := true
	p.Spec.Disable = &yes
	r := newRig(t, p)
	r.api.put(held("10.0.0.2"))
	r.api.before = func(verb, name string) error {
		if verb == "get" {
			delete(r.api.objects, keyFor(held("10.0.0.2"), clientKey(name)))
		}
		return nil
	}
	if text := r.refused(agentapi.CodeNoPool, r.pod("web-0", "u1", ofStatefulSet)); !strings.Contains(text, "pool v4: it is disabled") {
		t.Error(text)
	}
	r.wantNothing()
}

func TestAnotherAddressThanTheKeptOneIsAskedFor(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.9"), pool("v4-too", "10.1.0.0/24", v1alpha1.ModeEnforce))
	r.api.put(held("10.0.0.2", retained))
	web := r.pod("web-0", "u1", ofStatefulSet)
	for _, addr := range []string{"10.0.0.5", "10.1.0.5"} {
		web.IPs = []netip.Addr{netip.MustParseAddr(addr)}
		if text := r.refused(agentapi.CodeAddressRefused, web); !strings.Contains(text, addr) || !strings.Contains(text, "10.0.0.2 is kept for the pod") {
			t.Error(text)
		}
	}
	r.want("10.0.0.2 Retained")
	web.IPs = []netip.Addr{two}
	if got := r.add(web); got[0] != "10.0.0.2" {
		t.Errorf("got %v", got)
	}
}

// second is the ADD of another interface of the same sandbox.
func second(r agentapi.AddRequest, iface string) agentapi.AddRequest {
	r.Interface = iface
	return r
}

func TestTwoInterfacesOfAPodOnOnePoolGetTwoAddresses(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.9"))
	web := r.pod("web", "u1")
	got := append(r.add(web), r.add(second(web, "net1"))...)
	if !slices.Equal(got, []string{"10.0.0.2", "10.0.0.3"}) {
		t.Fatalf("got %v", got)
	}
	r.del(second(web, "net1"))
	r.want("10.0.0.2 Bound")
	if !r.speaks(web, "10.0.0.2") {
		t.Error("the first interface is mute")
	}
	r.del(web)
	r.want()
}

// The runtime makes sandbox after sandbox while the second interface cannot be
// served, and its DELs may come late or never.
func TestAnExhaustedInterfaceDoesNotDrainThePoolOfTheOther(t *testing.T) {
	for _, withDEL := range []bool{true, false} {
		t.Run(fmt.Sprintf("DEL %v", withDEL), func(t *testing.T) {
			lan := pool("lan", "10.1.0.0/24", v1alpha1.ModeEnforce, "10.1.0.2")
			r := newRig(t, v4("10.0.0.2-10.0.0.4"), lan)
			full := held("10.1.0.2")
			full.Spec.Pool = "lan"
			r.api.put(full)
			web := r.pod("web", "u1", annotated("k8s.v1.cni.cncf.io/networks", "lan"),
				annotated("ipam.fenceline.io/ippools", `[{"interface":"eth0","ipv4":["v4"]},{"interface":"net1","ipv4":["lan"]}]`))
			for i := range 10 {
				try := web
				try.ContainerID, try.NetNS = fmt.Sprintf("c%d", i), fmt.Sprintf("/netns/c%d", i)
				r.add(try)
				r.refused(agentapi.CodeExhausted, second(try, "net1"))
				if withDEL {
					r.del(try)
				}
			}
			want := []string{"10.1.0.2 Bound"}
			if !withDEL {
				want = []string{"10.0.0.2 Bound", "10.1.0.2 Bound"}
			}
			r.want(want...)
		})
	}
}

func TestRoutesInTheAnswer(t *testing.T) {
	gateway, lanGateway := "10.0.0.1", "10.1.0.1"
	first := v4("10.0.0.2-10.0.0.9")
	first.Spec.Gateway = &gateway
	first.Spec.Routes = []v1alpha1.Route{{Dst: "10.8.0.0/16", Gw: "10.0.0.254"}}
	lan := pool("lan", "10.1.0.0/24", v1alpha1.ModeEnforce, "10.1.0.2-10.1.0.9")
	lan.Spec.Gateway = &lanGateway
	r := newRig(t, first, lan)
	web := r.pod("web", "u1", annotated("k8s.v1.cni.cncf.io/networks", "lan"),
		annotated("ipam.fenceline.io/ippools", `[{"interface":"eth0","ipv4":["v4"]},{"interface":"net1","ipv4":["lan"]}]`),
		annotated("ipam.fenceline.io/routes", `[{"dst":"10.9.0.0/16","gw":"10.1.0.254"},{"dst":"10.7.0.0/16","gw":"10.0.0.253"}]`))
	for _, c := range []struct{ iface, gateway, routes string }{
		{"eth0", "10.0.0.1", "0.0.0.0/0 invalid IP, 10.8.0.0/16 10.0.0.254, 10.7.0.0/16 10.0.0.253"},
		{"net1", "10.1.0.1", "10.9.0.0/16 10.1.0.254"},
	} {
		answer, err := r.Add(t.Context(), second(web, c.iface))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, route := range answer.Routes {
			got = append(got, route.Dst.String()+" "+route.GW.String())
		}
		if strings.Join(got, ", ") != c.routes || answer.IPs[0].Gateway.String() != c.gateway {
			t.Errorf("%s: gateway %s, routes %q, want %q", c.iface, answer.IPs[0].Gateway, strings.Join(got, ", "), c.routes)
		}
	}
}
