// SPDX-License-Identifier: Apache-2.0

// Try shows the stand-alone plugin in network namespaces: two hosts share a range with a host that knows nothing of
// it. It closes with "N passed, N failed". It needs Go and root, and removes all that it made.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/prober"
	"github.com/fenceline/fenceline/internal/inventory"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/programs"
	"github.com/fenceline/fenceline/test/thirdparty"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed, err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "try:", err)
		os.Exit(2)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// run plays the show and returns the number of failed promises.
func run(ctx context.Context) (failed int, err error) {
	started := time.Now()
	fmt.Println("Building the plugin and the reference plugins.")
	dir, err := os.MkdirTemp("", "fenceline-try-")
	if err != nil {
		return 0, err
	}
	l := &lan{dir: dir}
	defer func() { err = errors.Join(err, l.remove(), os.RemoveAll(dir)) }()
	defer must.Catch(&err)
	l.bin = must.Value(build(ctx, dir))
	l.plugAll()
	fmt.Printf("\nOne switch, the hosts a and b, and a printer. It has %s, and nobody told the hosts.\n"+
		"Both hosts give their containers addresses from %s to %s, on macvlan.\n", taken, taken, last)

	s := &show{}
	l.showReference(ctx, s)
	l.showFenceline(ctx, s)
	fmt.Printf("\n%d passed, %d failed, %s\n", s.passed, s.failed, time.Since(started).Round(time.Second))
	return s.failed, nil
}

// show counts promises.
type show struct{ passed, failed int }

func (s *show) check(holds bool, format string, args ...any) {
	mark := "ok    "
	if holds {
		s.passed++
	} else {
		mark = "FAILED"
		s.failed++
	}
	fmt.Printf("  %s %s\n", mark, fmt.Sprintf(format, args...))
}

// showReference has host-local give an address on host a.
func (l *lan) showReference(ctx context.Context, s *show) {
	fmt.Print("\nhost-local, \"ipam\": {\"type\": \"host-local\"}:\n")
	c := must.Value(l.a.start(ctx, "host-local", "web"))
	fmt.Printf("  container %-4s on host a got %s\n", c.name, c.addr)
	var speakers []string
	for range 10 { // on a busy machine the second answer comes after the end of the probe
		if speakers = l.speakers(ctx); len(speakers) > 1 {
			break
		}
	}
	s.check(len(speakers) == 2, "the duplicate is there: %s is used by %s", taken, strings.Join(speakers, " and "))
	must.OK(c.stop(ctx))
}

// showFenceline has Fenceline give addresses on both hosts at the same time.
func (l *lan) showFenceline(ctx context.Context, s *show) {
	fmt.Print("\nFenceline, the same with \"type\": \"fenceline\":\n")
	all := must.Value(l.startAll(ctx, 3))
	holders := map[string]int{}
	for _, c := range all {
		fmt.Printf("  container %-4s on host %s got %s\n", c.name, c.host.name, c.addr)
		holders[c.addr.String()]++
	}
	s.check(len(holders) == len(all), "%d containers on two hosts have %d addresses", len(all), len(holders))
	s.check(holders[taken.String()] == 0, "the printer's address was passed over")
	speakers := l.speakers(ctx)
	s.check(len(speakers) == 1 && speakers[0] == l.printerMAC, "%s is used by %s alone", taken, strings.Join(speakers, " and "))
	for _, h := range []*host{l.a, l.b} {
		text, err := os.ReadFile(h.memory())
		s.check(err == nil && strings.Contains(string(text), l.printerMAC), "host %s remembers the printer's MAC and the time", h.name)
	}
	l.draw(os.Stdout, all)
	for _, c := range all {
		must.OK(c.stop(ctx))
	}
}

// The range of both hosts. The printer has its first address.
var (
	taken = netip.MustParseAddr("192.0.2.10")
	last  = netip.MustParseAddr("192.0.2.30")
)

const subnet = "192.0.2.0/24"

// build returns a directory with the plugin and the reference plugins.
func build(ctx context.Context, dir string) (_ string, err error) {
	defer must.Catch(&err)
	reference := must.Value(must.Value(thirdparty.NewBuilder(os.Stdout)).Dir(ctx, thirdparty.CNIPlugins))
	bin := filepath.Join(dir, "bin")
	must.OK(os.Mkdir(bin, 0o755))
	for _, name := range []string{"macvlan", "host-local"} {
		must.OK(os.Symlink(filepath.Join(reference, name), filepath.Join(bin, name)))
	}
	return bin, programs.Build(ctx, "cni", filepath.Join(bin, "fenceline"))
}

// lan is a switch with all that is plugged into it.
type lan struct {
	sw, observer *network.Namespace
	a, b         *host
	printerMAC   string
	bin, dir     string

	mu   sync.Mutex
	made []*network.Namespace
}

// host is a machine with a runtime.
type host struct {
	*network.Namespace
	name string
	lan  *lan
}

// plugAll makes the switch and what is plugged into it.
func (l *lan) plugAll() {
	l.sw = l.namespace("switch")
	must.OK(errors.Join(l.sw.AddBridge("sw"), l.sw.SetUp("sw", true)))
	printer := l.plug("printer")
	l.printerMAC = must.Value(printer.MAC("eth0")).String()
	must.OK(printer.AddAddr("eth0", netip.PrefixFrom(taken, 24)))
	l.observer = l.plug("observer")
	l.a, l.b = &host{l.plug("a"), "a", l}, &host{l.plug("b"), "b", l}
}

func (l *lan) namespace(role string) *network.Namespace {
	ns := must.Value(network.Create(fmt.Sprintf("fltry-%d-%s", os.Getpid(), role)))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made = append(l.made, ns)
	return ns
}

func (l *lan) plug(role string) *network.Namespace {
	ns := l.namespace(role)
	must.OK(ns.Plug("eth0", nil, l.sw, role, "sw"))
	return ns
}

func (l *lan) remove() error {
	var errs []error
	for _, ns := range l.made {
		errs = append(errs, ns.Delete())
	}
	return errors.Join(errs...)
}

// speakers asks for the printer's address and returns the MACs that answer.
func (l *lan) speakers(ctx context.Context) []string {
	c := must.Value(capture.Start(l.sw, "sw"))
	params := prober.Params{Rounds: 3, Interval: 50 * time.Millisecond}
	p := must.Value(prober.Open(ctx, l.observer.Path(), "eth0", []netip.Addr{taken}, params))
	_, err := p.Probe(ctx, []netip.Addr{taken})
	must.OK(errors.Join(err, p.Close()))
	return capture.Speakers(must.Value(c.Stop()), taken)
}

// container is a container with its address.
type container struct {
	name string
	addr netip.Addr
	host *host
	list *libcni.NetworkConfigList
	rt   *libcni.RuntimeConf
}

// data is the directory of the data files of an IPAM.
func (h *host) data(ipam string) string { return filepath.Join(h.lan.dir, ipam+"-"+h.name) }

func (h *host) memory() string { return filepath.Join(h.data("fenceline"), "lan", "conflicts.json") }

// start starts a container whose address comes from an IPAM of that type.
func (h *host) start(ctx context.Context, ipam, name string) (_ *container, err error) {
	defer must.Catch(&err)
	ns := h.lan.namespace(name)
	list := must.Value(libcni.ConfListFromBytes(fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"lan","plugins":[
		{"type":"macvlan","master":"eth0","ipam":{"type":%q,"dataDir":%q,
		 "ranges":[[{"subnet":%q,"rangeStart":%q,"rangeEnd":%q}]]}}]}`, ipam, h.data(ipam), subnet, taken, last)))
	c := &container{name: name, host: h, list: list, rt: &libcni.RuntimeConf{ContainerID: name, NetNS: ns.Path(), IfName: "eth0"}}
	must.Done(h.runtime(func(cni *libcni.CNIConfig) error {
		answer := must.Value(cni.AddNetworkList(ctx, list, c.rt))
		result := must.Value(types100.NewResultFromResult(answer))
		c.addr, _ = netip.AddrFromSlice(result.IPs[0].Address.IP)
		c.addr = c.addr.Unmap()
		return nil
	}), "start container %s on host %s", name, h.name)
	return c, nil
}

func (c *container) stop(ctx context.Context) error {
	return c.host.runtime(func(cni *libcni.CNIConfig) error { return cni.DelNetworkList(ctx, c.list, c.rt) })
}

func (h *host) runtime(fn func(*libcni.CNIConfig) error) error {
	cache := filepath.Join(h.lan.dir, "cache-"+h.name)
	return h.Do(func() error { return fn(libcni.NewCNIConfigWithCacheDir([]string{h.lan.bin}, cache, nil)) })
}

// startAll starts n containers on each host, all at the same time.
func (l *lan) startAll(ctx context.Context, n int) ([]*container, error) {
	all, errs := make([]*container, 2*n), make([]error, 2*n)
	var wait sync.WaitGroup
	for i := range 2 * n {
		h := []*host{l.a, l.b}[i/n]
		wait.Go(func() { all[i], errs[i] = h.start(ctx, "fenceline", fmt.Sprintf("%s%d", h.name, i%n)) })
	}
	wait.Wait()
	return all, errors.Join(errs...)
}

// draw draws the range as `kubectl fenceline map` draws a pool: the addresses of the containers, and those
// that a host remembers as used by others.
func (l *lan) draw(w io.Writer, containers []*container) {
	pool := &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{Subnet: subnet, IPs: []string{taken.String() + "-" + last.String()}}}
	var leases []v1alpha1.IPLease
	add := func(a netip.Addr, state v1alpha1.LeaseState, reason v1alpha1.LeaseReason) {
		leases = append(leases, v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{Address: a.String(), State: state, Reason: reason}})
	}
	var memory struct {
		Conflicts []struct {
			Address    netip.Addr
			PassedOver bool
		}
	}
	must.Done(json.Unmarshal(must.Value(os.ReadFile(l.a.memory())), &memory), "read the memory of conflicts")
	for _, c := range memory.Conflicts {
		if !c.PassedOver {
			add(c.Address, v1alpha1.StateQuarantined, v1alpha1.ReasonConflict)
		}
	}
	// A host remembers a container of the other host like any host, so the containers come last.
	for _, c := range containers {
		add(c.addr, v1alpha1.StateBound, "")
	}
	p, err := inventory.Of(pool, leases, nil)
	must.Done(err, "draw the range")
	fmt.Fprintf(w, "\nThe range from %s to %s, a letter for each address:\n\n", taken, last)
	inventory.Grid{Pool: p, Paint: func(_, letter string) string { return letter }}.Write(w)
}
