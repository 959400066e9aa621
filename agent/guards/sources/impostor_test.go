// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
)

const own, gateway, virtual = "02:00:00:00:00:01", "02:00:00:00:00:fe", "00:00:5e:00:01:01"

func macOf(text string) net.HardwareAddr { m, _ := net.ParseMAC(text); return m }

// impostorRig is one pod with an interface on the parent 7.
type impostorRig struct {
	entry    *attachment.Entry
	children []pod.Interface
	sources  bpf.Sources
	killed   int
	removed  []string
	fault    error
	heard    string             // the MAC that last used the address of the gateway
	answers  []net.HardwareAddr // of the gateway
	asked    int
	counted  []string
	watch    *Impostors
	recorder *events.FakeRecorder
	clock    *clocktesting.FakeClock
	asking   time.Duration // how long it takes to ask for a number
}

func (r *impostorRig) Children(string) ([]pod.Interface, error) { return r.children, nil }
func (r *impostorRig) ID(string) (int, error) {
	r.clock.Step(r.asking)
	return 3, nil
}
func (r *impostorRig) Remove(_ string, parent, index int) error {
	if r.fault == nil {
		r.children = slices.DeleteFunc(r.children, func(i pod.Interface) bool {
			gone := i.Parent.Index == parent && (index == 0 || i.Index == index)
			if gone {
				r.removed = append(r.removed, i.Name)
			}
			return gone
		})
	}
	return r.fault
}

// look looks at all pods until no question is left.
func (r *impostorRig) look() {
	for r.watch.Look(nil); len(r.watch.questions) > 0; r.watch.Look(nil) {
		r.asked++
		r.watch.take(answer{<-r.watch.questions, r.answers})
	}
}

func newImpostorRig(t *testing.T) *impostorRig {
	r := &impostorRig{
		entry: &attachment.Entry{
			ContainerID: "c", Interface: "eth0", NetNS: "/pod", PodNamespace: "shop", PodName: "web", PodUID: "u", Phase: attachment.Bound,
			Session: "s", MAC: own, Parent: "bond0", ParentIndex: 7, Slot: 1, Settled: true,
		},
		sources: bpf.Sources{Mode: bpf.SourcesEnforce, MAC: macOf(own), MACs: []net.HardwareAddr{macOf(virtual)}},
		heard:   gateway, answers: []net.HardwareAddr{macOf(gateway)},
		recorder: events.NewFakeRecorder(10), clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)),
	}
	r.entry.Created = r.clock.Now()
	r.watch = NewImpostors(ImpostorOptions{
		Session: "s", Entries: func() []*attachment.Entry { return []*attachment.Entry{r.entry} }, Links: r,
		SourcesOf: func(uint32) bpf.Sources { return r.sources },
		Gateways: func(*attachment.Entry) map[netip.Addr]net.HardwareAddr {
			return map[netip.Addr]net.HardwareAddr{netip.MustParseAddr("10.9.0.1"): macOf(r.heard)}
		},
		Kill:     func(*attachment.Entry) error { r.killed++; return nil },
		Removed:  func(reason string) { r.counted = append(r.counted, reason) },
		Reporter: event.Reporter{Events: r.recorder, Log: testr.New(t), Clock: r.clock},
	})
	return r
}

const other = "02:00:00:00:00:77"

func eth0(mac string) pod.Interface {
	return pod.Interface{Name: "eth0", Index: 2, MAC: macOf(mac), Kind: pod.MACVLAN, Parent: pod.Parent{Index: 7}}
}

// second is an interface of the pod that no plugin of Fenceline has made.
func second(mac string, change ...func(*pod.Interface)) pod.Interface {
	i := eth0(mac)
	i.Name, i.Index = "x", 3
	for _, c := range change {
		c(&i)
	}
	return i
}

func TestAnInterfaceThatGetsFramesOfOthersIsRemoved(t *testing.T) {
	for _, row := range []struct {
		name   string
		is     pod.Interface
		change func(*impostorRig)
		want   string
	}{
		{"the MAC of the lease", eth0(own), nil, ""},
		{"another MAC", eth0(other), nil, "mac"},
		{"the MAC of the gateway", eth0(gateway), nil, "mac"},
		{"a MAC that the pool allows", eth0(virtual), nil, ""},
		{"mode source", eth0(own), func(r *impostorRig) { r.children[0].Source = true }, "source"},
		{"a second macvlan with the gateway's MAC", second(gateway), nil, "mac"},
		{"a second macvtap with the gateway's MAC", second(gateway, func(i *pod.Interface) { i.Kind = pod.MACVTAP }), nil, "mac"},
		{"a second macvlan of another plugin", second(other), nil, ""},
		{"a second macvlan in mode source", second(other, func(i *pod.Interface) { i.Source = true }), nil, "source"},
		{"a macvlan of another parent", second(gateway, func(i *pod.Interface) { i.Parent.Index = 8 }), nil, ""},
		{"an ipvlan", second(gateway, func(i *pod.Interface) { i.Kind = pod.IPVLAN }), nil, ""},
		{"an ADD is under way", eth0(other), func(r *impostorRig) { r.entry.Phase = attachment.Intent }, ""},
		{"a DEL is under way", eth0(other), func(r *impostorRig) { r.entry.Phase = attachment.Releasing }, ""},
		{"an earlier boot", eth0(other), func(r *impostorRig) { r.entry.Session = "r" }, ""},
		{"a plugin after IPAM may set the MAC", eth0(other), func(r *impostorRig) { r.entry.Settled = false }, ""},
		{"no plugin sets it any more", eth0(other), func(r *impostorRig) { r.entry.Settled = false; r.clock.Step(young) }, "mac"},
		{"sourceGuard Off", eth0(gateway), func(r *impostorRig) { r.sources.Mode = bpf.SourcesOff }, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newImpostorRig(t)
			r.children = []pod.Interface{eth0(own)}
			for range 2 { // the gateway is known
				r.look()
				r.clock.Step(settled)
				r.watch.take(answer{r.key(), r.answers})
			}
			r.children = []pod.Interface{row.is}
			if row.is.Name != "eth0" {
				r.children = append(r.children, eth0(own))
			}
			if row.change != nil {
				row.change(r)
			}
			r.watch.Look(map[int]bool{4: true})
			check.That(t, len(r.removed) == 0, "a change in another namespace made the agent look")
			r.watch.Look(map[int]bool{3: true})
			r.watch.Look(nil)
			var removed []string
			killed := 0
			if row.want != "" {
				removed = []string{row.is.Name}
			}
			if row.want != "" && row.is.Name == "eth0" {
				killed = 1
			}
			check.List(t, r.removed, removed, "removed")
			check.Equal(t, [...]int{r.killed, len(r.recorder.Events)}, [...]int{killed, len(removed)}, "killed, events:")
			check.Equal(t, strings.Join(r.counted, " "), row.want, "counted")
		})
	}
}

// key is the key of the pod's gateway.
func (r *impostorRig) key() bpf.Key {
	return bpf.Key{Segment: 7, Addr: netip.MustParseAddr("10.9.0.1")}
}

// Any host of the segment can forge the frame that says who the gateway is.
func TestAFrameAloneRemovesNothing(t *testing.T) {
	const forger = "02:00:00:00:00:66"
	for _, row := range []struct {
		name    string
		before  string   // the MAC that answered for the gateway when the pod came
		answers []string // for the gateway, now
		want    string   // the interface that is removed
		after   time.Duration
		asked   int
		told    string
	}{
		{"the gateway answers, by another MAC", gateway, []string{gateway}, "", time.Minute, 13, ""},
		{"the gateway is silent", gateway, nil, "", time.Minute, 13, ""},
		{"the forger answers as well", gateway, []string{gateway, other}, "", time.Minute, 13, "answers by the MAC " + other + " of interface x of the pod, and by others (" + gateway + ", " + other + ")"},
		{"two others answer", gateway, []string{gateway, forger}, "", time.Minute, 13, ""},
		{"no other host answers any more", gateway, []string{other}, "x", 2 * period, 2, "interface x of the pod has the MAC " + other},
		{"it has been the gateway's MAC all the time", other, []string{other}, "x", period, 1, "the agent has removed it;"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newImpostorRig(t)
			r.children = []pod.Interface{eth0(own)}
			r.answers = []net.HardwareAddr{macOf(row.before)}
			r.look()
			r.clock.Step(period)
			r.answers, r.asked, r.heard = nil, 0, other
			for _, mac := range row.answers {
				r.answers = append(r.answers, macOf(mac))
			}
			r.children = append(r.children, second(other))
			start := r.clock.Now()
			for r.look(); len(r.removed) == 0 && r.clock.Since(start) < row.after; r.look() {
				r.clock.Step(period)
			}
			check.Equal(t, strings.Join(r.removed, " "), row.want, "removed")
			check.That(t, r.clock.Since(start) <= row.after, "removed after %s", r.clock.Since(start))
			check.Equal(t, r.killed, 0, "killed:")
			check.Equal(t, r.asked, row.asked, "questions:")
			if row.told == "" {
				check.Equal(t, len(r.recorder.Events), 0, "events:")
			} else {
				check.Says(t, check.Receive(t, time.Second, "an event", r.recorder.Events), row.told)
			}
		})
	}
}

func TestAnInterfaceBesideTwoEntriesIsRemovedOnce(t *testing.T) {
	r := newImpostorRig(t)
	more := *r.entry
	more.Interface, more.MAC, more.Slot = "eth1", "02:00:00:00:00:02", 2
	r.watch.Entries = func() []*attachment.Entry { return []*attachment.Entry{r.entry, &more} }
	r.children = []pod.Interface{eth0(own), second(other, func(i *pod.Interface) { i.Source = true })}
	r.look()
	check.List(t, r.counted, []string{"source"}, "counted")
	check.Equal(t, r.killed, 0, "killed:")
}

// Each interface that is left lets the pod make another.
func TestAPodThatGoesOnLosesAllItsInterfacesOnTheParent(t *testing.T) {
	r := newImpostorRig(t)
	for range impostorPatience + 1 {
		check.Equal(t, r.killed, 0, "killed:")
		r.children = []pod.Interface{eth0(own), second(other, func(i *pod.Interface) { i.Source = true })}
		r.look()
	}
	check.Equal(t, r.killed, 1, "killed:")
	check.List(t, r.removed, []string{"x", "x", "x", "eth0", "x"}, "removed")
	check.Equal(t, len(r.counted), impostorPatience+1, "counted:")
}

func TestInModeObserveAnImpostorIsReportedOnly(t *testing.T) {
	r := newImpostorRig(t)
	r.sources.Mode = bpf.SourcesObserve
	r.children = []pod.Interface{{Name: "eth0", MAC: macOf(gateway), Kind: pod.MACVLAN, Parent: pod.Parent{Index: 7}}}
	for range 3 {
		r.watch.Look(nil)
	}
	n := len(r.recorder.Events)
	check.That(t, len(r.removed)+r.killed == 0 && n == 1, "%d removed, %d killed, %d events", len(r.removed), r.killed, n)
	r.clock.Step(tellInterval)
	r.watch.Look(nil)
	r.watch.Look(nil)
	check.Equal(t, len(r.recorder.Events), 2, "events after the interval:")
}

func TestARemovalThatFailsIsTriedAgain(t *testing.T) {
	r := newImpostorRig(t)
	r.children = []pod.Interface{{Name: "eth0", MAC: macOf(gateway), Kind: pod.MACVLAN, Parent: pod.Parent{Index: 7}}}
	r.fault = errors.New("busy")
	r.watch.Look(nil)
	check.That(t, r.killed == 1 && len(r.counted) == 0, "%d killed, counted %v", r.killed, r.counted)
	r.fault = nil
	r.watch.Look(nil)
	check.Equal(t, len(r.removed), 1, "removals after another try:")
}

// pauses is a clock that ends each timer at once, and tells how long it would have run.
type pauses struct {
	*clocktesting.FakeClock
	all chan time.Duration
}

func (p pauses) NewTimer(d time.Duration) clock.Timer {
	timer := p.FakeClock.NewTimer(d)
	p.Step(d)
	p.all <- d
	return timer
}

func TestAPodThatChangesItsInterfaceInALoopCostsHalfACoreAtMost(t *testing.T) {
	for name, row := range map[string]struct{ look, want time.Duration }{
		"a short look": {time.Microsecond, calm},
		"a long look":  {30 * time.Millisecond, 30 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			r := newImpostorRig(t)
			r.asking = row.look
			changed, all := make(chan int), make(chan time.Duration)
			r.watch.changed, r.watch.Clock = changed, pauses{r.clock, all}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { check.OK(t, r.watch.Run(ctx)) })
			for range 3 {
				changed <- 3
				check.Equal(t, check.Receive(t, time.Minute, "a pause", all), row.want, "pause after the look:")
			}
			cancel()
			running.Wait()
		})
	}
}

func TestChangesThatFindNoRoomMakeALookAtAllPods(t *testing.T) {
	r := newImpostorRig(t)
	for id := range changesAhead {
		r.watch.Changed(id)
	}
	check.Equal(t, len(r.watch.missed), 0, "looks at all pods:")
	r.watch.Changed(changesAhead)
	check.Equal(t, len(r.watch.missed), 1, "looks at all pods after one more:")
	r.watch.changed = nil
	looks := make(chan struct{}, 2) // the first of Run, and that at what was missed
	entries := r.watch.Entries
	r.watch.Entries = func() []*attachment.Entry { looks <- struct{}{}; return entries() }
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { check.OK(t, r.watch.Run(ctx)) })
	for range 2 {
		check.Receive(t, time.Minute, "a look", looks)
	}
	cancel()
	running.Wait()
}
