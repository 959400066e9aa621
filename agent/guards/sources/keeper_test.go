// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
)

// rig is a keeper of one pod, on a kernel and with interfaces in memory.
type rig struct {
	*Keeper
	t        *testing.T
	api      client.Client
	events   *events.FakeRecorder
	clock    *testclock.FakeClock
	entry    *attachment.Entry
	set      map[uint32]bpf.Sources
	sockets  bool
	writes   int
	reads    int
	offences map[bpf.Offence]uint64
	readErr  error
	autoconf []bool
	alone    []string
	more     []*attachment.Entry

	speaksFor  map[netip.Addr]*v1alpha1.ReservedIP
	virtualErr error
}

func (r *rig) Set(slot uint32, s bpf.Sources) error {
	r.set[slot], r.writes = s, r.writes+1
	return nil
}
func (r *rig) Allow(_ uint32, allowed bool) error {
	r.sockets = allowed
	return nil
}
func (r *rig) virtuals(context.Context, *attachment.Entry, []*v1alpha1.IPPool) (map[netip.Addr]*v1alpha1.ReservedIP, error) {
	return r.speaksFor, r.virtualErr
}
func (r *rig) Of(slot uint32) bpf.Sources                { return r.set[slot] }
func (r *rig) Offences() (map[bpf.Offence]uint64, error) { return r.offences, nil }
func (r *rig) LinkLocal(string, string) ([]netip.Addr, error) {
	r.reads++
	return nil, r.readErr
}
func (r *rig) Autoconfigure(_, _ string, on bool) error {
	r.autoconf = append(r.autoconf, on)
	return nil
}

func (r *rig) KeepARP(_, ifname string) error {
	r.alone = append(r.alone, ifname)
	return nil
}

func newRig(t *testing.T) *rig {
	t.Helper()
	scheme := runtime.NewScheme()
	check.OK(t, v1alpha1.AddToScheme(scheme))
	r := &rig{
		t: t, set: map[uint32]bpf.Sources{}, events: events.NewFakeRecorder(10), clock: testclock.NewFakeClock(time.Unix(1e9, 0)),
		api: fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool("Enforce", nil)).Build(),
		entry: &attachment.Entry{
			Phase: attachment.Bound, Session: "s", Slot: 7, MAC: podMAC, Interface: "eth0", PodNamespace: "shop", PodName: "web-0",
			Addresses: []attachment.Address{{Pool: "v4"}},
		},
	}
	r.Keeper = New(Options{
		Session: "s", Entries: func() []*attachment.Entry { return append([]*attachment.Entry{r.entry}, r.more...) }, Pools: r.api, Virtuals: r.virtuals,
		Kernel: Kernel{Sources: r, Sockets: r}, Interfaces: r, Reporter: event.Reporter{Events: r.events, Log: testr.New(t), Clock: r.clock},
	})
	return r
}

func (r *rig) edit(mode v1alpha1.SourceGuardMode) {
	r.t.Helper()
	p := &v1alpha1.IPPool{}
	check.OK(r.t, r.api.Get(context.Background(), client.ObjectKey{Name: "v4"}, p))
	p.Spec.SourceGuard = mode
	check.OK(r.t, r.api.Update(context.Background(), p))
}

func (r *rig) allow(roles ...v1alpha1.SourceGuardRole) {
	r.t.Helper()
	p := &v1alpha1.IPPool{}
	check.OK(r.t, r.api.Get(context.Background(), client.ObjectKey{Name: "v4"}, p))
	p.Spec.SourceGuardAllow = &v1alpha1.SourceGuardAllow{Roles: roles}
	check.OK(r.t, r.api.Update(context.Background(), p))
}

func (r *rig) applies() {
	r.t.Helper()
	check.OK(r.t, check.Err(r.pass(context.Background())))
}

func TestAnEditOfThePoolReachesALivingPod(t *testing.T) {
	r := newRig(t)
	for _, tc := range []struct {
		mode v1alpha1.SourceGuardMode
		want bpf.SourceMode
	}{{"Enforce", bpf.SourcesEnforce}, {"Observe", bpf.SourcesObserve}, {"Off", bpf.SourcesOff}, {"Enforce", bpf.SourcesEnforce}} {
		r.edit(tc.mode)
		r.applies()
		r.applies() // without a change
		check.Equal(t, r.set[7].Mode, tc.want, "mode %s: the kernel has", tc.mode)
	}
	check.That(t, r.writes == 4, "%d writes to the kernel, want one for each edit", r.writes)
	check.List(t, r.autoconf, []bool{false, true, false}, "autoconfiguration was set to")
}

func TestVirtualAddressesComeAndGoForALivingPodButStayWhileTheAPIServerIsAway(t *testing.T) {
	r := newRig(t)
	v := &v1alpha1.ReservedIP{Spec: v1alpha1.ReservedIPSpec{Virtual: &v1alpha1.ReservedVirtual{VRRPID: ptr.To[int64](1)}}}
	with := func(addr ...string) map[netip.Addr]*v1alpha1.ReservedIP {
		all := map[netip.Addr]*v1alpha1.ReservedIP{}
		for _, a := range addr {
			all[netip.MustParseAddr(a)] = v
		}
		return all
	}
	own := prefixes("fe80::ff:fe00:101/128")
	for _, tc := range []struct {
		name string
		now  map[netip.Addr]*v1alpha1.ReservedIP
		err  error
		want []netip.Prefix
	}{
		{"two come", with("10.0.0.5", "fd00::5"), nil, append(prefixes("10.0.0.5/32", "fd00::5/128"), own...)},
		{"one goes", with("10.0.0.5"), nil, append(prefixes("10.0.0.5/32"), own...)},
		{"the API server is away", nil, errors.New("away"), append(prefixes("10.0.0.5/32"), own...)},
		{"the other goes", with(), nil, own},
	} {
		r.speaksFor, r.virtualErr = tc.now, tc.err
		r.applies()
		check.List(t, r.set[7].Prefixes, tc.want, "%s: the pod may use", tc.name)
		vrrp := len(tc.want) > 1
		check.That(t, slices.ContainsFunc(r.set[7].MACs, func(m net.HardwareAddr) bool { return m.String() == vrrpMAC }) == vrrp, "%s: MACs %v", tc.name, r.set[7].MACs)
		check.Equal(t, r.set[7].Allow == bpf.AllowVRRP, vrrp, "%s: may send VRRP", tc.name)
	}
}

// The interface on which keepalived has the MAC of VRRP sends past the guard.
func TestTheMACOfVRRPIsJudgedForAnExclusiveAddress(t *testing.T) {
	r := newRig(t)
	v := &v1alpha1.ReservedIP{Spec: v1alpha1.ReservedIPSpec{Virtual: &v1alpha1.ReservedVirtual{VRRPID: ptr.To[int64](1), Exclusive: true}}}
	r.speaksFor = map[netip.Addr]*v1alpha1.ReservedIP{netip.MustParseAddr("10.0.0.5"): v}
	r.applies()
	check.Equal(t, r.set[7].Allow, bpf.AllowVRRP|bpf.AllowTurns, "allowances:")
	check.List(t, r.set[7].Prefixes, prefixes("10.0.0.5/32", "fe80::ff:fe00:101/128", "fe80::200:5eff:fe00:101/128"), "the pod may use")
}

func TestAPoolAllowsLivingPodsToTransmitDirectly(t *testing.T) {
	r := newRig(t)
	r.edit(v1alpha1.SourceGuardOff) // the fence does not depend on it
	for _, roles := range [][]v1alpha1.SourceGuardRole{{v1alpha1.RoleBridge}, {v1alpha1.RoleBridge, v1alpha1.RoleDirectTransmit}, {}} {
		r.allow(roles...)
		r.applies()
		check.Equal(t, r.sockets, len(roles) == 2, "roles %v: the kernel allows", roles)
	}
}

func TestEveryPoolOfAnInterfaceMustAllowDirectTransmit(t *testing.T) {
	direct := pool("Enforce", &v1alpha1.SourceGuardAllow{Roles: []v1alpha1.SourceGuardRole{v1alpha1.RoleDirectTransmit}})
	check.Equal(t, transmitDirectly([]*v1alpha1.IPPool{direct, direct}, 2), true, "both:")
	check.Equal(t, transmitDirectly([]*v1alpha1.IPPool{direct, pool("Off", nil)}, 2), false, "one of two:")
	check.Equal(t, transmitDirectly([]*v1alpha1.IPPool{direct}, 2), false, "one, and the other is gone:")
}

// A slot is used again, by another pod.
func TestEachInterfaceIsKeptFromAutoconfiguration(t *testing.T) {
	r := newRig(t)
	r.applies()
	next := *r.entry
	next.ContainerID = "next"
	r.entry = &next
	r.applies()
	check.List(t, r.autoconf, []bool{false, false}, "autoconfiguration was set to")
	check.Equal(t, len(r.interfaces), 1, "interfaces are remembered:")
}

func TestADeletedPoolAndAnotherSessionChangeNothing(t *testing.T) {
	r := newRig(t)
	r.applies()
	check.OK(t, r.api.Delete(context.Background(), pool("", nil)))
	r.applies()
	check.Equal(t, r.set[7].Mode, bpf.SourcesEnforce, "the kernel has the mode, of what the pool said last:")
	other := newRig(t)
	other.entry.Session = "another boot"
	other.applies()
	check.That(t, other.writes == 0, "%d writes for a pod of another session", other.writes)
}

func TestAnInterfaceThatCannotBeReadKeepsItsAddresses(t *testing.T) {
	r := newRig(t)
	r.readErr = errors.New("no descriptor left")
	for range 10 { // the pause does not grow as it does without an error
		pause, err := r.pass(context.Background())
		check.That(t, errors.Is(err, r.readErr) && pause <= patience, "got %v, the next pass after %s, want %v", err, pause, r.readErr)
		r.clock.Step(pause)
	}
	check.Equal(t, r.writes, 0, "writes to the kernel:")
	r.readErr = pod.ErrNoInterface
	r.clock.Step(patience)
	r.applies()
	check.That(t, r.set[7].Mode == bpf.SourcesEnforce, "the guard of an interface that is gone is not strict")
}

func TestAPodIsToldOnceInTenMinutesForEachReason(t *testing.T) {
	r := newRig(t)
	ev := func(result bpf.Result, observed uint64) bpf.Event {
		return bpf.Event{Type: bpf.EventSource, Token: 7, Mine: uint64(result) | observed<<16, Key: bpf.Key{Addr: netip.MustParseAddr("10.0.0.1")}, MAC: mac(vrrpMAC)}
	}
	for range 3 {
		r.report(ev(bpf.ResultDropUnleased, 0))
		r.report(ev(bpf.ResultDropEther, 1))
		r.report(bpf.Event{Type: bpf.EventSource, Token: 8, Mine: uint64(bpf.ResultDropEther)}) // no pod of this slot
	}
	for _, want := range []string{
		"Warning SourceDropped the source guard drops frames of eth0 from an address that is not leased to the pod (the last one: address 10.0.0.1,",
		"Warning SourceObserved the source guard would drop frames of eth0 from a MAC that is not the interface's",
	} {
		got := <-r.events.Events
		check.That(t, strings.HasPrefix(got, want), "got event %q, want %q", got, want)
	}
	check.Equal(t, len(r.events.Events), 0, "events more:")
	for result, advice := range map[bpf.Result]string{bpf.ResultDropRouter: "spec.sourceGuardAllow.roles: Router of its pool", bpf.ResultDropFenced: "no pool can allow them"} {
		r.report(ev(result, 0))
		check.Says(t, <-r.events.Events, advice)
	}
	r.clock.Step(reportPeriod)
	r.report(ev(bpf.ResultDropUnleased, 0))
	check.Equal(t, len(r.events.Events), 1, "events after the period:")
	check.Equal(t, len(r.told), 1, "events are remembered:")
}

// second adds an interface of the pod with an address.
func (r *rig) second(netns, addr string) {
	r.entry.NetNS = "/pod"
	more := *r.entry
	more.NetNS, more.Interface, more.Slot, more.Addresses = netns, "net1", 8, []attachment.Address{{Pool: "v4", Addr: netip.MustParseAddr(addr)}}
	r.more = append(r.more, &more)
}

func TestTheARPOfAPodWithTwoInterfacesInASubnetStaysOnEach(t *testing.T) {
	for _, row := range []struct {
		name, netns, addr string
		want              []string
	}{
		{"of one pod in one subnet", "/pod", "10.0.0.3", []string{"eth0", "net1"}},
		{"of one pod in two subnets", "/pod", "10.0.1.3", nil},
		{"of two pods", "/other", "10.0.0.3", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			r.entry.Addresses[0].Addr = netip.MustParseAddr("10.0.0.2")
			if row.want == nil {
				r.entry.Addresses[0].Addr = netip.MustParseAddr("10.0.2.2")
			}
			r.applies()
			r.second(row.netns, row.addr)
			r.applies()
			r.applies()
			slices.Sort(r.alone)
			check.List(t, r.alone, row.want, "ARP is kept on")
		})
	}
}

func TestAnAddressOfThePodsOtherInterfaceIsNamed(t *testing.T) {
	r := newRig(t)
	r.second("/pod", "10.0.0.3")
	r.report(bpf.Event{Type: bpf.EventSource, Token: 7, Mine: uint64(bpf.ResultDropUnleased), Key: bpf.Key{Addr: netip.MustParseAddr("10.0.0.3")}, MAC: mac(podMAC)})
	check.Says(t, check.Receive(t, time.Second, "an event", r.events.Events), "from the address of its interface net1, which has another parent", "route the pod's packets by their source")
}

// A read costs as much as the rest of a pass over a hundred pods.
func TestAnInterfaceIsReadMoreAndMoreSeldom(t *testing.T) {
	r := newRig(t)
	for end := r.clock.Now().Add(time.Hour); r.clock.Now().Before(end); {
		pause := check.Value(r.pass(context.Background()))(t)
		check.That(t, shortest <= pause && pause <= longest, "the next pass comes after %s", pause)
		r.clock.Step(pause)
	}
	check.That(t, r.reads > 60 && r.reads < 75, "%d reads in an hour, want one a minute", r.reads)
}

func TestALinkLocalAddressThatIsNewIsReadSoon(t *testing.T) {
	r := newRig(t)
	for range 20 { // the pause grows
		r.clock.Step(longest)
		r.applies()
	}
	r.clock.Step(shortest)
	r.reads = 0
	r.applies()
	check.That(t, r.reads == 0, "the interface was read before its time")
	r.report(bpf.Event{Type: bpf.EventSource, Token: 7, Mine: uint64(bpf.ResultDropLinkLocal)})
	check.That(t, len(r.wake) == 1, "no pass was asked for")
	r.applies()
	check.That(t, r.reads == 1, "%d reads after the frame, want 1", r.reads)
}

func TestTheMetricHasOnlyPodsWithSuchFrames(t *testing.T) {
	r := newRig(t)
	r.offences = map[bpf.Offence]uint64{
		{Slot: 7, Result: bpf.ResultDropUnleased}:              3,
		{Slot: 7, Result: bpf.ResultDropEther, Observed: true}: 2,
		{Slot: 0, Result: bpf.ResultDropStranger}:              1,
		{Slot: 9, Result: bpf.ResultDropUnleased}:              5, // its pod is gone
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.Keeper)
	families := check.Value(registry.Gather())(t)
	got := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetValue())
		}
		got[strings.Join(labels, " ")] = m.GetCounter().GetValue()
	}
	want := map[string]float64{"  stranger dropped": 1, "shop web-0 ether observed": 2, "shop web-0 unleased dropped": 3}
	check.Same(t, got, want, "frames")
	check.Equal(t, families[0].GetName(), "fenceline_source_guard_frames_total", "the metric")
}

const (
	podMAC  = "02:00:00:00:01:01"
	vrrpMAC = "00:00:5e:00:01:01"
)

func pool(mode v1alpha1.SourceGuardMode, allow *v1alpha1.SourceGuardAllow) *v1alpha1.IPPool {
	p := &v1alpha1.IPPool{}
	p.Spec.Subnet = "10.0.0.0/24"
	p.Name, p.Spec.SourceGuard, p.Spec.SourceGuardAllow = "v4", mode, allow
	return p
}

func mac(text string) net.HardwareAddr { m, _ := net.ParseMAC(text); return m }

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestPlanSaysWhatThePoolsSay(t *testing.T) {
	const own = "fe80::ff:fe00:101/128"
	router := &v1alpha1.SourceGuardAllow{
		CIDRs: []string{"10.0.0.60/32", "::/0"}, MACs: []string{"00:00:5E:00:01:01"}, Roles: []v1alpha1.SourceGuardRole{v1alpha1.RoleRouter},
	}
	guarded := bpf.Sources{Mode: bpf.SourcesEnforce, MAC: mac(podMAC), Prefixes: prefixes(own)}
	for name, tc := range map[string]struct {
		pools []*v1alpha1.IPPool
		local []netip.Addr
		want  bpf.Sources
		slaac bool
	}{
		"as the API server has none set": {[]*v1alpha1.IPPool{pool("", nil)}, nil, guarded, false},
		"Enforce":                        {[]*v1alpha1.IPPool{pool("Enforce", nil)}, nil, guarded, false},
		"Observe": {[]*v1alpha1.IPPool{pool("Observe", nil)}, nil,
			bpf.Sources{Mode: bpf.SourcesObserve, MAC: mac(podMAC), Prefixes: prefixes(own)}, true},
		"Off": {[]*v1alpha1.IPPool{pool("Off", router)}, nil, bpf.Sources{MAC: mac(podMAC)}, true},
		"the strictest of two counts, and what any allows": {[]*v1alpha1.IPPool{pool("Off", router), pool("Enforce", router)}, nil, bpf.Sources{
			Mode: bpf.SourcesEnforce, MAC: mac(podMAC), MACs: []net.HardwareAddr{mac(vrrpMAC)},
			Prefixes: prefixes("10.0.0.60/32", "::/0", own), Allow: bpf.AllowRouter,
		}, true},
		"an address of RFC 7217": {[]*v1alpha1.IPPool{pool("Enforce", nil)}, []netip.Addr{netip.MustParseAddr("fe80::7")},
			bpf.Sources{Mode: bpf.SourcesEnforce, MAC: mac(podMAC), Prefixes: prefixes("fe80::7/128", own)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := check.Value(Plan(&attachment.Entry{MAC: podMAC}, tc.pools, tc.local, nil))(t)
			check.SameBy(t, cmp.Options{cmpopts.EquateComparable(netip.Prefix{}), cmpopts.EquateEmpty()}, got, tc.want, "sources")
			check.Equal(t, mayAutoconfigure(got), tc.slaac, "may autoconfigure:")
		})
	}
}

func TestPlanRefusesWhatItCannotRead(t *testing.T) {
	for name, tc := range map[string]struct {
		mac   string
		allow v1alpha1.SourceGuardAllow
	}{
		"MAC of the journal": {"", v1alpha1.SourceGuardAllow{}},
		"CIDR":               {podMAC, v1alpha1.SourceGuardAllow{CIDRs: []string{"10.0.0.1"}}},
		"MAC":                {podMAC, v1alpha1.SourceGuardAllow{MACs: []string{"00:00"}}},
	} {
		t.Run(name, func(t *testing.T) {
			check.That(t, check.Err(Plan(&attachment.Entry{MAC: tc.mac}, []*v1alpha1.IPPool{pool("Enforce", &tc.allow)}, nil, nil)) != nil, "no error")
		})
	}
}
