// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package network

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

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
		if out, err := hosts[0].Command(t.Context(), "ping", "-c1", "-w30", addr).CombinedOutput(); err != nil {
			t.Fatalf("ping %s: %v: %s", addr, err, out)
		}
	}
	check.OK(t, lan.Switch.Delete())
	files, err := filepath.Glob(filepath.Join(dir, "network.test-*.pcap"))
	if err != nil || len(files) != 1 {
		t.Fatalf("records %v, %v, want one", files, err)
	}
	file, err := os.Open(files[0])
	check.OK(t, err)
	defer file.Close()
	frames, err := wireshark.Read(file)
	check.OK(t, err)
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
		if kinds[kind] == 0 {
			t.Errorf("no %s is recorded: %v", kind, kinds)
		}
	}
	for _, kind := range []string{"ICMPv6 128", "ICMPv6 129"} {
		if kinds[kind] > 0 {
			t.Errorf("%d frames of %s are recorded", kinds[kind], kind)
		}
	}
}
