// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/rivals"
)

// loneConf is a configuration without a plugin of an interface.
func loneConf(dir, ipam string) string {
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":"net","type":"macvlan","cni.dev/valid-attachments":[],"ipam":{"type":"fenceline","standalone":true,"dataDir":%q,%s}}`, dir, ipam)
}

// wantPrinted checks the error that a plugin printed.
func wantPrinted(t *testing.T, out []byte, err error, code uint, says string) {
	t.Helper()
	var printed types.Error
	right := err != nil && json.Unmarshal(out, &printed) == nil && printed.Code == code && strings.Contains(printed.Msg, says)
	check.That(t, right, "got %v, %s; want code %d and %q", err, out, code, says)
}

// addressFiles returns the data files of addresses with their contents.
func addressFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for name, text := range filesOf(t, filepath.Join(dir, "net")) {
		if _, err := netip.ParseAddr(name); err == nil {
			found[name] = text
		}
	}
	return found
}

func TestParallelADDsShareARange(t *testing.T) {
	const calls, addrs, atOnce = 300, 60, 64
	bin, dir := binaries(t), t.TempDir()
	conf := loneConf(dir, fmt.Sprintf(`"ranges":[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.1","rangeEnd":"10.1.2.%d","gateway":"10.1.2.254"}]]`, addrs))
	var mu sync.Mutex
	var all sync.WaitGroup
	holders, refused, room := map[string]string{}, 0, make(chan struct{}, atOnce)
	for i := range calls {
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			id := fmt.Sprintf("c%d", i)
			out, err := callPlugin(t, bin, pluginType, referenceCall{verb: "ADD", container: id}, conf)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				wantPrinted(t, out, err, agentapi.CodeExhausted, fmt.Sprintf("no IP addresses available in range set: 10.1.2.1-10.1.2.%d", addrs))
				refused++
				return
			}
			var r types100.Result
			if err := json.Unmarshal(out, &r); err != nil || len(r.IPs) != 1 {
				t.Errorf("%v: %s", err, out)
				return
			}
			addr := r.IPs[0].Address.IP.String()
			other, taken := holders[addr]
			check.That(t, !taken, "%s was given to %s and %s", addr, other, id)
			holders[addr] = id
		})
	}
	all.Wait()
	check.That(t, len(holders) == addrs && refused == calls-addrs, "%d succeeded and %d were refused", len(holders), refused)
	for addr, text := range addressFiles(t, dir) {
		check.That(t, text == holders[addr]+"\r\neth0", "the file of %s says %q, want %s", addr, text, holders[addr])
	}
}

// A plugin that is killed leaves at most what DEL or GC frees, wherever it was.
func TestWhatAKilledADDLeavesIsFreed(t *testing.T) {
	l := newLAN(t)
	l.plug(t, "foreign", "192.0.2.10/24", "2001:db8::10/64")
	h, pod := l.host(t, "host"), network.New(t, "pod")
	l.Plug(t, pod, "eth0", nil, "pod")
	conf := loneConf(h.data, dual+`,"conflictDetection":{"interval":"10ms"}`)
	left := map[string]int{}
	// Later and later, until kills met two states and a call ended before its kill.
	whole := false
	for after := time.Duration(0); !whole || len(left) < 2; after += max(time.Millisecond, after/16) {
		check.Must(t, after < 10*time.Second, "the kills met only one state: %v", left)
		plugin := pluginCall(t, l.bin, pluginType, referenceCall{verb: "ADD", netns: pod.Path()}, conf)
		check.OK(t, plugin.Start())
		time.Sleep(after) // the step at which it is killed
		_ = plugin.Process.Kill()
		whole = plugin.Wait() == nil
		if !whole {
			left[fmt.Sprintf("%d files", len(addressFiles(t, h.data)))]++
		}
		out, err := callPlugin(t, l.bin, pluginType, referenceCall{verb: "DEL"}, conf)
		check.Must(t, err == nil, "DEL: %v %s", err, out)
		for addr, text := range addressFiles(t, h.data) {
			check.Equal(t, text, "", "killed after %s, after DEL: %s is held by", after, addr)
		}
		out, err = callPlugin(t, l.bin, pluginType, referenceCall{verb: "GC"}, conf)
		check.Must(t, err == nil, "GC: %v %s", err, out)
		check.None(t, addressFiles(t, h.data), "killed after %s, after GC:", after)
	}
	out, err := callPlugin(t, l.bin, pluginType, referenceCall{verb: "ADD", netns: pod.Path()}, conf)
	check.That(t, err == nil, "ADD after all: %v %s", err, out)
}

// Each verb names the path that it cannot use, and ADD leaves no address file.
func TestAnUnusableDirectoryIsNamed(t *testing.T) {
	bin := binaries(t)
	write := func(t *testing.T, path string) {
		t.Helper()
		check.OK(t, os.WriteFile(path, []byte("x"), 0o600))
	}
	for _, row := range []struct {
		name    string
		user    uint32
		prepare func(t *testing.T, dir string)
		says    string
	}{
		{"a file in place of the directory of the data", 0, func(t *testing.T, dir string) {
			check.OK(t, os.Remove(dir))
			write(t, dir)
		}, "not a directory"},
		{"a file in place of the directory of the network", 0, func(t *testing.T, dir string) { write(t, filepath.Join(dir, "net")) }, "not a directory"},
		{"a user without rights", 65534, func(t *testing.T, dir string) { check.OK(t, os.Chmod(dir, 0o700)) }, "permission denied"},
		{"a file system that is read-only", 0, func(t *testing.T, dir string) {
			check.OK(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, ""))
			t.Cleanup(func() { check.Is(t, unix.Unmount(dir, 0), nil, "got") })
		}, "read-only file system"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			// Other users may enter the test's directories.
			check.OK(t, errors.Join(os.Mkdir(dir, 0o755), os.Chmod(filepath.Dir(bin), 0o755), os.Chmod(filepath.Dir(filepath.Dir(dir)), 0o755)))
			row.prepare(t, dir)
			for verb, code := range map[string]uint{"ADD": agentapi.CodeIOFailure, "STATUS": agentapi.CodeNotAvailable, "GC": agentapi.CodeIOFailure} {
				plugin := pluginCall(t, bin, pluginType, referenceCall{verb: verb}, loneConf(dir, small))
				plugin.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: row.user, Gid: row.user}}
				out, err := plugin.Output()
				wantPrinted(t, out, err, code, dir)
				wantPrinted(t, out, err, code, row.says)
			}
			left, err := filepath.Glob(filepath.Join(dir, "net", "*"))
			check.That(t, err == nil && len(left) == 0, "left %v, %v", left, err)
		})
	}
}

func TestAFullDiskLeavesNothingHalfWritten(t *testing.T) {
	bin := binaries(t)
	for room, succeeds := range map[int]bool{0: false, 1: false, 2: true} {
		t.Run(fmt.Sprintf("room for %d files", room), func(t *testing.T) {
			dir := t.TempDir()
			const pages = 8
			check.OK(t, unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", pages*os.Getpagesize())))
			t.Cleanup(func() { check.Is(t, unix.Unmount(dir, 0), nil, "got") })
			fill(t, dir, room)
			out, err := callPlugin(t, bin, pluginType, referenceCall{verb: "ADD"}, loneConf(dir, small))
			if succeeds {
				check.Must(t, err == nil, "%v %s", err, out)
				return
			}
			wantPrinted(t, out, err, agentapi.CodeIOFailure, "no space left on device")
			check.None(t, addressFiles(t, dir), "left")
		})
	}
}

// fill fills a file system until it has room for that many small files.
func fill(t *testing.T, dir string, room int) {
	t.Helper()
	var fillers []string
	for i := 0; ; i++ {
		path := filepath.Join(dir, fmt.Sprintf("filler%d", i))
		err := os.WriteFile(path, []byte("x"), 0o600)
		if errors.Is(err, unix.ENOSPC) {
			check.OK(t, os.Remove(path))
			break
		}
		check.OK(t, err)
		fillers = append(fillers, path)
	}
	for _, path := range fillers[:room] {
		check.OK(t, os.Remove(path))
	}
}

// serveDHCP offers two addresses on p0 of a host, from the first on. It does not ask who has them.
func serveDHCP(t *testing.T, host *network.Namespace, first, last string) {
	t.Helper()
	cmd := host.Command(t.Context(), "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--user=root",
		"--pid-file=", "--log-facility=-", "--no-ping", "--interface=p0", "--bind-interfaces", "--dhcp-authoritative",
		"--dhcp-sequential-ip", "--dhcp-range="+first+","+last, "--dhcp-leasefile="+filepath.Join(t.TempDir(), "leases"))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	check.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // the end of the test ended it
}

// A DHCP server and the plugin hand out the same two addresses, and know nothing of each other. The
// DHCP client has the first one, and the container the second one. A second client is offered that
// of the container and declines.
func TestDHCPClientsAndContainersShareARange(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	serveDHCP(t, l.plug(t, "server", "192.0.2.1/24"), "192.0.2.10", "192.0.2.11")
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	t.Cleanup(cancel)
	client := func(role, want string, wins bool) {
		t.Helper()
		host := rivals.Host{Namespace: l.plug(t, role), Interface: "p0"}
		addr, has, release, err := rivals.DHCP(ctx, host)
		check.OK(t, err)
		t.Cleanup(func() { check.Is(t, release(), nil, "got") })
		check.That(t, addr == netip.MustParseAddr(want) && has == wins, "%s was offered %s and has it: %t; want %s, %t", role, addr, has, want, wins)
	}
	client("client1", "192.0.2.10", true)
	h := l.host(t, "host")
	check.List(t, h.mustAdd(t, h.macvlanConf(t, small), container("one", network.New(t, "one"))), []string{"192.0.2.11/24"}, "the container got")
	client("client2", "192.0.2.11", false)
}

// dhcpcd with a static address refuses that of a container.
func TestDhcpcdRefusesTheAddressOfAContainer(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	h := l.host(t, "host")
	h.mustAdd(t, h.macvlanConf(t, small), container("one", network.New(t, "one"))) // 192.0.2.10
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	for _, row := range []struct {
		addr string
		has  bool
	}{{"192.0.2.10/24", false}, {"192.0.2.11/24", true}} {
		host := rivals.Host{Namespace: l.plug(t, "rival"+row.addr[8:10]), Interface: "p0"}
		has, release, err := rivals.Static(ctx, host, netip.MustParsePrefix(row.addr))
		check.OK(t, err)
		check.Equal(t, has, row.has, "dhcpcd has %s:", row.addr)
		check.Is(t, release(), nil, "got")
	}
}
