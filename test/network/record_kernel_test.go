// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package network

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/wireshark"
)

// A bridge records ARP and neighbour discovery of hosts, and no pings.
func TestABridgeRecordsItsFrames(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(RecordVariable, dir)
	lan := NewLAN(t)
	var hosts []*Namespace
	for _, role := range []string{"1", "2"} {
		hosts = append(hosts, lan.Host(t, role, "eth0", netip.MustParsePrefix("10.66.9."+role+"/24"), netip.MustParsePrefix("fd66::9:"+role+"/64")))
	}
	for _, addr := range []string{"10.66.9.2", "fd66::9:2"} {
		out, err := hosts[0].Command(t.Context(), "ping", "-c1", "-w30", addr).CombinedOutput()
		check.Must(t, err == nil, "ping %s: %v: %s", addr, err, out)
	}
	check.OK(t, lan.Switch.Delete())
	files, err := filepath.Glob(filepath.Join(dir, "network.test-*.pcap"))
	check.Must(t, err == nil && len(files) == 1, "records %v, %v, want one", files, err)
	file := check.Value(os.Open(files[0]))(t)
	defer file.Close()
	frames := check.Value(wireshark.Read(file))(t)
	kinds := map[string]int{}
	for _, f := range frames {
		switch binary.BigEndian.Uint16(f.Data[12:]) {
		case 0x0806:
			kinds[fmt.Sprint("ARP ", f.Data[21])]++
		case 0x86dd:
			kinds[fmt.Sprint("ICMPv6 ", f.Data[54])]++
		default:
			t.Errorf("a frame %x is recorded", f.Data)
		}
	}
	for _, kind := range []string{"ARP 1", "ARP 2", "ICMPv6 135", "ICMPv6 136"} {
		check.That(t, kinds[kind] != 0, "no %s is recorded: %v", kind, kinds)
	}
	for _, kind := range []string{"ICMPv6 128", "ICMPv6 129"} {
		check.That(t, kinds[kind] <= 0, "%d frames of %s are recorded", kinds[kind], kind)
	}
}

// TestANamespaceOutlivesTheFirstOneOfIproute2 runs once more in a mount namespace
// with a /run of its own, where nobody has added a namespace yet.
func TestANamespaceOutlivesTheFirstOneOfIproute2(t *testing.T) {
	const inside = "FENCELINE_TEST_OWN_RUN"
	if os.Getenv(inside) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		output, err := cmd.CombinedOutput()
		check.Must(t, err == nil, "%v\n%s", err, output)
		return
	}
	check.OK(t, unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	check.OK(t, unix.Mount("none", "/run", "tmpfs", 0, ""))
	ours := check.Value(Create("ours"))(t)
	for _, verb := range []string{"add", "del"} {
		output, err := exec.Command("ip", "netns", verb, "theirs").CombinedOutput()
		check.Must(t, err == nil, "ip netns %s: %v\n%s", verb, err, output)
	}
	reopened := check.Value(Open("ours"))(t)
	check.Is(t, reopened.up("lo"), nil, "the namespace is not to be entered any more:")
	check.Is(t, reopened.Close(), nil, "got")
	check.Is(t, ours.Delete(), nil, "got")
}
