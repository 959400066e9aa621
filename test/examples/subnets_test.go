// SPDX-License-Identifier: Apache-2.0

package examples

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// A user may apply all examples to one cluster.
func TestNoTwoExamplesHaveAddressesInCommon(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	check.Must(t, err == nil && len(files) != 0, "no examples: %v", err)
	line := regexp.MustCompile(`(?m)^ +subnet: (\S+)$`)
	known := map[netip.Prefix]string{}
	for _, file := range files {
		text := check.Value(os.ReadFile(file))(t)
		for _, found := range line.FindAllSubmatch(text, -1) {
			subnet, err := netip.ParsePrefix(string(found[1]))
			check.That(t, err == nil, "%s: %v", file, err)
			for other, where := range known {
				check.That(t, !subnet.Overlaps(other), "%s has %s, and %s has %s", file, subnet, where, other)
			}
			known[subnet] = file
		}
	}
	check.That(t, len(known) >= len(files)/2, "%d subnets in %d files", len(known), len(files))
}
