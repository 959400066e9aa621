// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/test/check"
)

// Verdicts as the kernel returns them.
const (
	pass     = ^uint32(0)
	drop     = uint32(2)
	redirect = uint32(7)
)

// testSegment is no ifindex of this machine: test runs need none.
const testSegment = 4711

// bpffs mounts a private one for the test.
func bpffs(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	err := unix.Mount("bpffs", dir, "bpf", 0, "mode=0700")
	check.Must(t, err == nil, "mount a bpffs (these tests need root): %v", err)
	t.Cleanup(func() { check.Is(t, unix.Unmount(dir, 0), nil, "unmount %s:", dir) })
	return dir
}

// hierarchy mounts the cgroup v2 hierarchy of the machine for the test.
func hierarchy(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	check.OK(t, unix.Mount("cgroup2", dir, "cgroup2", 0, ""))
	t.Cleanup(func() { check.OK(t, unix.Unmount(dir, 0)) })
	return dir
}

// newKernel opens a kernel with two keys and one network.
func newKernel(t testing.TB) *Kernel {
	t.Helper()
	return openKernel(t, bpffs(t))
}

func openKernel(t testing.TB, dir string) *Kernel {
	t.Helper()
	return openKernelWith(t, Options{Dir: dir})
}

func openKernelWith(t testing.TB, o Options) *Kernel {
	t.Helper()
	k := check.Value(Open(o))(t)
	t.Cleanup(func() {
		err := k.Remove()
		check.That(t, err == nil || errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EBADF), "remove: %v", err)
	})
	check.OK(t, k.SetKeys(&keyA, &keyB))
	check.OK(t, k.Leases.SetNetworks([]uint64{network}))
	return k
}

// reopen ends the agent and starts the next one, in the node's namespace.
func (r *rig) reopen(o Options) {
	r.t.Helper()
	check.OK(r.t, r.Close())
	o.Dir = r.dir
	r.node.do(func() (err error) {
		r.Kernel, err = Open(o)
		return err
	})
	r.t.Cleanup(func() { check.OK(r.t, r.Close()) })
}

// rudeProgram lets nobody behind it in a chain see a frame.
func rudeProgram(t testing.TB) *ebpf.Program { return newProgram(t, "rude", 0) }

// newProgram makes one that does nothing but return a verdict.
func newProgram(t testing.TB, name string, verdict int32) *ebpf.Program {
	t.Helper()
	p := check.Value(ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Name: name, Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()},
	}))(t)
	t.Cleanup(func() { check.OK(t, p.Close()) })
	return p
}

// has reports whether a look-up finds something: has(k.Leases.Lease(key))(t).
func has[T any](_ T, ok bool, err error) func(testing.TB) bool {
	return func(t testing.TB) bool {
		t.Helper()
		check.OK(t, err)
		return ok
	}
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	check.That(t, got == want, "%s: got %v, want %v", what, got, want)
}

// slotOf is the record of a slot whose guard was staged.
func slotOf(g Guard) (s observerSlot) {
	s.describe(g.record(0))
	return s
}

// guardOf loads the guard of slot 1.
func guardOf(t testing.TB, k *Kernel, g Guard) attach.Programs {
	t.Helper()
	return check.Value(k.programs.load(1, g.Verify))(t)
}

// attachGuard puts a guard on its interface to stay.
func attachGuard(k *Kernel, g Guard) error {
	if err := k.Guards.Stage(g); err != nil {
		return err
	}
	return k.Guards.Pin(g)
}

// bench is one kernel with the programs of one segment and of slot 1, run without any device.
type bench struct {
	*Kernel
	t        testing.TB
	observer attach.Programs
	guard    attach.Programs
	events   *eventLog
}

type setup struct {
	bridgePort, verify bool
	sources            Sources
}

// newBench makes a bench of a pod with some addresses.
func newBench(t testing.TB, s setup, addrs ...netip.Addr) *bench {
	t.Helper()
	k := newKernel(t)
	var p observerParent
	p.Mac.Part = macLayout(parentMAC)
	if s.bridgePort {
		p.Flags = parentBridgePort
	}
	check.OK(t, k.maps.Parents.Put(uint32(testSegment), p))
	check.OK(t, k.maps.Hearing.Put(uint32(testSegment), uint64(0)))
	g := Guard{Slot: 1, Segment: testSegment, Verify: s.verify}
	check.OK(t, k.Slots.write(1, slotOf(g)))
	check.OK(t, k.Sources.Set(1, s.sources))
	guard := guardOf(t, k, g)
	observer := check.Value(k.Observers.load(testSegment))(t)
	t.Cleanup(func() { guard.Close(); observer.Close() })
	b := &bench{Kernel: k, t: t, guard: guard, observer: observer, events: readEvents(t, k)}
	for _, addr := range addrs {
		b.bind(addr, 1)
	}
	return b
}

// bind installs a lease of token heldToken for a pod of this node.
func (b *bench) bind(addr netip.Addr, slot uint32) {
	b.t.Helper()
	m := podMAC
	if slot != 1 {
		m = otherMAC
	}
	check.OK(b.t, b.Leases.Install(key(addr), Lease{Token: heldToken, Network: network, Slot: slot, MAC: m}))
}

func key(addr netip.Addr) Key { return Key{Segment: testSegment, Addr: addr} }

// fence lets a newer claim come in.
func (b *bench) fence(addr netip.Addr) {
	b.t.Helper()
	verdict, _ := b.run(WhereObserverIngress, remoteClaim(b.t, addr, 200))
	equal(b.t, "verdict of the claim that fences", verdict, redirect)
}

// run puts one frame through one program.
func (b *bench) run(where Where, frame []byte) (verdict uint32, out []byte) {
	b.t.Helper()
	verdict, out, _ = b.runMarked(where, frame, 0)
	return verdict, out
}

// counted runs fn and returns the counters that moved.
func (b *bench) counted(fn func()) map[Counter]uint64 {
	b.t.Helper()
	before := check.Value(b.Counters())(b.t)
	fn()
	after := check.Value(b.Counters())(b.t)
	for c := range after {
		after[c] -= before[c]
	}
	maps.DeleteFunc(after, func(_ Counter, n uint64) bool { return n == 0 })
	return after
}

// expect runs one frame and checks verdict and, beside CLAIM and SIGHTING, the only counter that may move.
func (b *bench) expect(where Where, frame []byte, verdict uint32, result ...Result) {
	b.t.Helper()
	var got uint32
	moved := b.counted(func() { got, _ = b.run(where, frame) })
	equal(b.t, "verdict", got, verdict)
	for _, r := range result {
		equal(b.t, "count of "+r.String(), moved[Counter{where, r}], 1)
		delete(moved, Counter{where, r})
	}
	delete(moved, Counter{where, ResultClaim})
	delete(moved, Counter{where, ResultSighting})
	check.That(b.t, len(moved) == 0, "other counters moved: %v", moved)
}

func (b *bench) state(addr netip.Addr) State {
	b.t.Helper()
	s, ok, err := b.Leases.State(key(addr))
	check.OK(b.t, err)
	equal(b.t, "state exists", ok, true)
	return s
}

func (b *bench) fenced(addr netip.Addr) bool {
	b.t.Helper()
	return check.Value(b.Leases.Fenced(key(addr)))(b.t)
}

// eventLog has the events in their order.
type eventLog struct {
	t      testing.TB
	events chan Event
}

func readEvents(t testing.TB, k *Kernel) *eventLog {
	l := &eventLog{t, make(chan Event, 1024)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- k.ReadEvents(ctx, func(e Event) {
			select {
			case l.events <- e:
			case <-ctx.Done(): // a test that makes many events reads few
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		check.Is(t, <-done, context.Canceled, "read events:")
	})
	return l
}

// next waits for the next event and takes it.
func (l *eventLog) next() Event {
	l.t.Helper()
	return check.Receive(l.t, time.Minute, "an event", l.events)
}

// skb is struct __sk_buff, as far as a test run sets or reads it; the kernel wants room for all of it.
type skb struct {
	Len, PacketType, Mark uint32
	Rest                  [45]uint32
}

func (b *bench) program(where Where) *ebpf.Program {
	switch where {
	case WhereGuardIngress:
		return b.guard["ingress"]
	case WhereGuardEgress:
		return b.guard["egress"]
	case WhereObserverIngress:
		return b.observer["ingress"]
	case WhereObserverEgress:
		return b.observer["egress"]
	}
	panic(fmt.Sprintf("no program %s", where))
}

// runMarked puts one frame with a mark through one program and returns the mark it leaves with.
func (b *bench) runMarked(where Where, frame []byte, mark uint32) (verdict uint32, out []byte, left uint32) {
	b.t.Helper()
	in, after := skb{Mark: mark}, skb{}
	opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: in, ContextOut: &after}
	verdict, err := b.program(where).Run(opts)
	check.Must(b.t, err == nil, "run %s over %d bytes: %v", where, len(frame), err)
	return verdict, opts.DataOut, after.Mark
}
