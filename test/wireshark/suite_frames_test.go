// SPDX-License-Identifier: Apache-2.0

//go:build frames

package wireshark_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/wireshark"
)

// The networks of earlier runs have recorded their frames, in a directory for each suite.
func TestTsharkFindsNoFaultInTheFramesOfASuite(t *testing.T) {
	dir := os.Getenv(network.RecordVariable)
	suites, err := os.ReadDir(dir)
	suites = slices.DeleteFunc(suites, func(e os.DirEntry) bool { return !e.IsDir() })
	check.Must(t, err == nil && len(suites) != 0, "no suite has recorded frames in %q: run test-kernel or test-cluster before: %v", dir, err)
	for _, suite := range suites {
		t.Run(suite.Name(), func(t *testing.T) {
			v := check.Value(wireshark.Judge(t.Context(), filepath.Join(dir, suite.Name())))(t)
			t.Log(v)
			for _, kind := range []uint16{unix.ETH_P_ARP, unix.ETH_P_IPV6, claim.EtherType} {
				check.That(t, v.Types[kind] > 0, "no frame has the Ethernet type %#04x", kind)
			}
			if len(v.Faults) > 0 {
				t.Fail()
			}
		})
	}
}
