// SPDX-License-Identifier: Apache-2.0

//go:build kernel && machine && !guest

package nodes_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/guest"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/programs"
	"github.com/fenceline/fenceline/test/thirdparty"
)

var migrations = flag.Int("migrations", 50, "how often the machine migrates")

const (
	// echoPort of the machine's only program. pingPause is the time between two bytes to it, and between two pings.
	echoPort  = 7000
	pingPause = 5 * time.Millisecond
	// mostAdded is what Fenceline may add to the pause of a machine, also while this one does something else.
	mostAdded = time.Second
	// testLimit is the time for all migrations, moveLimit that for one until the machine runs at the target.
	testLimit = 30 * time.Minute
	moveLimit = time.Minute
)

// machine is a virtual machine in QEMU, behind a bridge in the pod that has its address, as with the bridge binding
// of KubeVirt.
type machine struct {
	*projects
	guest guest.Guest
	// source is where it runs, beside are other pods of its nodes.
	source *launcher
	beside map[*nodes.Node]*nodes.Sandbox
}

// launcher is a pod with a QEMU, which runs the machine or waits for it.
type launcher struct {
	*nodes.Sandbox
	qemu  *monitor
	kill  context.CancelFunc
	ended chan error
}

// newMachine starts a machine. Without a MAC, it has that of its first pod.
func newMachine(t *testing.T, count int, mac string) *machine {
	t.Helper()
	p := newProjects(t, count, "Always")
	p.ctx = within(t, testLimit)
	m := &machine{projects: p}
	build := check.Value(thirdparty.NewBuilder(os.Stderr))(t)
	app := filepath.Join(t.TempDir(), "app")
	check.OK(t, programs.Build(p.ctx, "test/cmd/app", app))
	m.guest = guest.Guest{
		Arch: "amd64", QEMU: check.Value(build.Dir(p.ctx, thirdparty.QEMU))(t), Kernel: check.Value(build.Dir(p.ctx, "linux-newest"))(t),
		Init: app, Modules: []string{"virtio_pci", "virtio_net"}, Files: []string{app}, Program: app, Args: []string{"serve"}, Dir: "/",
		Memory: 192, Output: io.Discard, Console: os.Stderr,
	}
	for _, n := range p.Nodes[:2] {
		onABridge(t, n)
		n.Make = func(pod *corev1.Pod) (*nodes.Sandbox, error) {
			list := fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"underlay","plugins":[{%s,"capabilities":{"mac":true},"ipam":%s}]}`, n.Plugin, n.IPAM())
			if mac == "" {
				return n.NewSandboxOf(pod, list, nil)
			}
			return n.NewSandboxOf(pod, list, map[string]any{"mac": mac})
		}
	}
	m.source = m.launch(p.Nodes[0])
	m.runs()
	return m
}

// runs waits until the guest answers.
func (m *machine) runs() {
	m.t.Helper()
	m.Eventually(m.t, "the machine runs", func() error {
		return m.host.Command(m.ctx, "ping", "-q", "-c", "1", "-W", "1", m.source.Addr.String()).Run()
	})
}

// launch makes a pod of the machine and starts its QEMU.
func (m *machine) launch(n *nodes.Node, devices ...string) *launcher {
	m.t.Helper()
	l := &launcher{Sandbox: m.projects.launch(n, func(pod *corev1.Pod) {
		if len(devices) > 0 {
			pod.Labels[owner.LabelMigration] = "m"
		}
	}), ended: make(chan error, 1)}
	out, err := l.Command(m.ctx, "ip", "tuntap", "add", "dev", "tap0", "mode", "tap").CombinedOutput()
	check.Must(m.t, err == nil, "add a tap: %v: %s", err, out)
	bind(m.ctx, m.t, l.Sandbox)
	socket := filepath.Join(m.t.TempDir(), "qmp")
	g := m.guest
	g.Interface = guest.Interface{MAC: l.MAC.String(), Addr: netip.PrefixFrom(l.Addr, 24)}
	g.Devices = append([]string{
		"-netdev", "tap,id=net,ifname=tap0,script=no,downscript=no", "-device", "virtio-net-pci,netdev=net,romfile=,mac=" + g.Interface.MAC,
		"-qmp", "unix:" + socket + ",server=on,wait=off",
	}, devices...)
	var ctx context.Context
	ctx, l.kill = context.WithCancel(m.ctx)
	m.t.Cleanup(l.kill)
	go func() {
		l.ended <- l.Do(func() error {
			// The processors of a real machine take no time from the agents, but emulated ones take all that they get.
			// For a measurement, the rest of the test also runs by chrt.
			if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil {
				return fmt.Errorf("set the priority of QEMU: %w", err)
			}
			_, err := g.Run(ctx)
			return err
		})
	}()
	m.Eventually(m.t, "QEMU listens", func() (err error) {
		select {
		case err := <-l.ended:
			m.t.Fatal(err)
		default:
		}
		l.qemu, err = dialMonitor(socket)
		return err
	})
	m.t.Cleanup(l.qemu.close)
	return l
}

// end ends the QEMU and the pod.
func (m *machine) end(l *launcher) {
	m.t.Helper()
	l.kill()
	<-l.ended // it gives no verdict
	check.OK(m.t, l.Finish(m.ctx))
}

// cable is between source and target, in place of KubeVirt's proxies on the nodes.
const cable = "mig0"

// move is one migration. Stored is the time at which the API server has stored that the machine runs at the target.
type move struct {
	began, stored time.Time
	wrote         time.Duration // the write of this report
	from, to      string        // ports of the switch
	downtime      time.Duration
}

// prepare starts a launcher that waits for the machine, and returns what KubeVirt reports then.
func (m *machine) prepare(to *nodes.Node) (target *launcher, state map[string]any) {
	m.t.Helper()
	target = m.launch(to, "-incoming", "defer")
	check.Must(m.t, target.Addr == m.source.Addr && target.MAC.String() == m.source.MAC.String(),
		"the target has %s and %s, the source %s and %s", target.Addr, target.MAC, m.source.Addr, m.source.MAC)
	check.OK(m.t, m.source.AddPair(cable, target.Namespace, cable))
	for at, s := range map[string]*launcher{"192.0.2.1/30": m.source, "192.0.2.2/30": target} {
		check.OK(m.t, errors.Join(s.SetUp(cable, true), s.AddAddr(cable, netip.MustParsePrefix(at))))
	}
	state = map[string]any{"sourcePod": m.source.Pod.Name, "targetPod": target.Pod.Name, "mode": "PreCopy"}
	m.report(state)
	return target, state
}

// copy begins to copy the machine's memory, so many bytes a second.
func (m *machine) copy(target *launcher, bandwidth int64) {
	m.t.Helper()
	const uri = "tcp:192.0.2.2:4444"
	check.OK(m.t, target.qemu.do("migrate-incoming", map[string]any{"uri": uri}, nil))
	check.OK(m.t, m.source.qemu.do("migrate-set-parameters", map[string]any{"max-bandwidth": bandwidth}, nil))
	check.OK(m.t, m.source.qemu.do("migrate", map[string]any{"uri": uri}, nil))
}

// migrate moves the machine to a node, as KubeVirt does and reports.
func (m *machine) migrate(to *nodes.Node) move {
	m.t.Helper()
	v := move{began: time.Now(), from: network.Port(m.source.Node().Name), to: network.Port(to.Name)}
	target, state := m.prepare(to)
	m.copy(target, 1<<33)
	ctx, cancel := context.WithTimeout(m.ctx, moveLimit)
	defer cancel()
	check.OK(m.t, target.qemu.await(ctx, "RESUME", func() error {
		var info struct{ Status string }
		err := m.source.qemu.do("query-migrate", nil, &info)
		if err == nil && (info.Status == "failed" || info.Status == "cancelled") {
			err = fmt.Errorf("the migration is %s", info.Status)
		}
		return err
	}))
	state["targetNodeDomainReadyTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	asked := time.Now()
	m.report(state)
	v.stored = time.Now()
	v.wrote = v.stored.Sub(asked)
	_, err := m.Frames.Wait(m.ctx, v.isNew(m.source.Addr)) // first, so that no reads of the lease delay it
	check.OK(m.t, err)
	m.Eventually(m.t, "the target has the address", func() error { return m.boundTo(target.Sandbox) })
	var info struct {
		Status   string
		Downtime int
	}
	m.Eventually(m.t, "the migration is completed", func() error {
		if err := m.source.qemu.do("query-migrate", nil, &info); err != nil || info.Status != "completed" {
			return fmt.Errorf("it is %s: %w", info.Status, err)
		}
		return nil
	})
	if s := m.beside[m.source.Node()]; s != nil { // the pod of the source is there as well
		out, err := s.Command(m.ctx, "ping", "-c", "1", "-w", "10", m.source.Addr.String()).CombinedOutput()
		check.That(m.t, err == nil, "a pod of the source's node does not reach the machine at the target: %v: %s", err, out)
	}
	v.downtime = time.Duration(info.Downtime) * time.Millisecond
	m.t.Logf("moved from %s to %s, paused %s", v.from, v.to, v.downtime) // the rest comes at the end
	state["completed"] = true
	m.report(state)
	m.end(m.source)
	check.OK(m.t, target.DeleteLink(cable))
	m.source = target
	return v
}

func (v move) isNew(addr netip.Addr) func(capture.Frame) bool {
	return func(f capture.Frame) bool {
		return f.Port == v.to && f.Time.After(v.began) && slices.Contains(f.Speaks, addr)
	}
}

// report writes the state of a migration as KubeVirt does.
func (m *machine) report(state map[string]any) {
	m.t.Helper()
	check.OK(m.t, unstructured.SetNestedMap(m.instance.Object, state, "status", "migrationState"))
	check.OK(m.t, m.Update(m.ctx, m.instance))
}

// A machine migrates back and forth while a host pings it every 5 ms and holds a connection. Each address has one
// speaker at a time, the connection survives, and what Fenceline adds to the pause is short.
func TestAMachineMigrates(t *testing.T) {
	m := newMachine(t, 2, "")
	m.beside = map[*nodes.Node]*nodes.Sandbox{}
	for _, n := range m.Nodes {
		m.beside[n] = started(m.ctx, t, n, "beside-"+n.Name, func(*corev1.Pod) {})
	}
	addr := m.source.Addr
	ping := m.host.Command(m.ctx, "ping", "-q", "-i", fmt.Sprint(pingPause.Seconds()), addr.String())
	check.OK(t, ping.Start())
	t.Cleanup(func() { _ = ping.Process.Kill(); _ = ping.Wait() })
	talk := m.talk(addr)
	var moves []move
	for i := range *migrations {
		moves = append(moves, m.migrate(m.Nodes[(i+1)%2]))
	}
	talk()
	var pauses, added, silences, writes []time.Duration
	frames := capture.SpokenFor(m.Frames.Frames(), addr)
	for i, v := range moves {
		end := time.Now()
		if i+1 < len(moves) {
			end = moves[i+1].began
		}
		var last, first time.Time
		for _, f := range frames {
			switch {
			case f.Time.Before(v.began) || f.Time.After(end):
			case f.Port == v.from:
				last = f.Time
			case f.Port == v.to && first.IsZero():
				first = f.Time
			}
		}
		check.That(t, last.Before(first), "migration %d: the source spoke at %s, the target since %s", i, last, first)
		pauses, added, silences = append(pauses, v.downtime), append(added, first.Sub(v.stored)), append(silences, first.Sub(last))
		writes = append(writes, v.wrote)
		t.Logf("migration %d: stored at %s, paused %s, added %s, silent %s", i, v.stored.UTC().Format("15:04:05.000"), v.downtime, first.Sub(v.stored), first.Sub(last))
	}
	t.Logf("the machine's own pause: %s; from the stored report to the target's first frame: %s; silence on the segment: %s; one write of the API server: %s",
		spread(pauses), spread(added), spread(silences), spread(writes))
	check.That(t, slices.Max(added) <= mostAdded, "Fenceline adds up to %s", slices.Max(added))
	m.end(m.source)
	m.stop()
}

// talk holds a connection to the machine's echo until stop is called. Each byte must come back.
func (m *machine) talk(addr netip.Addr) (stop func()) {
	m.t.Helper()
	var c net.Conn
	m.Eventually(m.t, "the echo of the machine", func() (err error) {
		c, err = m.host.Connect(netip.Addr{}, "tcp", netip.AddrPortFrom(addr, echoPort), nodes.Limit)
		return err
	})
	m.t.Cleanup(func() { _ = c.Close() })
	var over atomic.Bool
	sent, came := make(chan int64, 1), make(chan int64, 1)
	go func() {
		n, _ := io.Copy(io.Discard, c)
		came <- n
	}()
	go func() {
		n := int64(0)
		for ; !over.Load(); time.Sleep(pingPause) {
			if _, err := c.Write([]byte("x")); err != nil {
				break
			}
			n++
		}
		_ = c.(*net.TCPConn).CloseWrite()
		sent <- n
	}()
	return func() {
		m.t.Helper()
		over.Store(true)
		n := <-sent
		got := <-came // with a greeting
		check.That(m.t, n > 0 && got > n, "of %d bytes, %d came back", n, got)
	}
}

func percentile(all []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

func spread(all []time.Duration) string {
	return fmt.Sprintf("p50 %s, p99 %s", percentile(all, 50).Round(time.Millisecond/10), percentile(all, 99).Round(time.Millisecond/10))
}

// monitor is QEMU's own protocol, QMP.
type monitor struct {
	conn   net.Conn
	events chan string
	answer chan json.RawMessage
}

func dialMonitor(socket string) (*monitor, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	m := &monitor{conn: conn, events: make(chan string, 100), answer: make(chan json.RawMessage)}
	go m.read()
	return m, m.do("qmp_capabilities", nil, nil)
}

func (m *monitor) close() { _ = m.conn.Close() }

// read passes on answers and events until QEMU ends.
func (m *monitor) read() {
	defer close(m.answer)
	defer close(m.events)
	for d := json.NewDecoder(m.conn); ; {
		var line struct {
			Event         string
			Return, Error json.RawMessage
		}
		if err := d.Decode(&line); err != nil {
			return
		}
		switch {
		case line.Event != "":
			select {
			case m.events <- line.Event:
			default: // nobody waits for so many; an answer must not wait behind them
			}
		case line.Error != nil:
			m.answer <- line.Error
		case line.Return != nil:
			m.answer <- line.Return
		}
	}
}

// do runs a command. The answer goes to result, unless that is nil.
func (m *monitor) do(command string, arguments map[string]any, result any) error {
	line := map[string]any{"execute": command}
	if arguments != nil {
		line["arguments"] = arguments
	}
	if err := json.NewEncoder(m.conn).Encode(line); err != nil {
		return fmt.Errorf("tell QEMU to %s: %w", command, err)
	}
	answer, ok := <-m.answer
	var failed struct{ Class, Desc string }
	if err := json.Unmarshal(answer, &failed); !ok || err != nil || failed.Class != "" {
		return fmt.Errorf("QEMU answers %s: %s %w", command, answer, err)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer, result)
}

// await waits for an event, or for an error of ask, which it calls each second.
func (m *monitor) await(ctx context.Context, name string, ask func() error) error {
	for {
		select {
		case event, ok := <-m.events:
			if !ok {
				return fmt.Errorf("QEMU has ended before its event %s", name)
			}
			if event == name {
				return nil
			}
		case <-time.After(time.Second):
			if err := ask(); err != nil {
				return fmt.Errorf("wait for QEMU's event %s: %w", name, err)
			}
		case <-ctx.Done():
			return fmt.Errorf("wait for QEMU's event %s: %w", name, ctx.Err())
		}
	}
}
