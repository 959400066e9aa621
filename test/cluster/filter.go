// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
)

// filterTable is the table of packet filters in the switch's namespace that break the underlay.
const filterTable = "bridge underlay"

// SplitOff stops all frames to and from a node on the underlay, those of foreign hosts included. The
// node keeps its carrier, and the capture still sees all frames that it sends. JoinUnderlay undoes it.
func (c *Cluster) SplitOff(ctx context.Context, n *Node) error {
	port := underlayPort(n.Name())
	return c.filter(ctx, fmt.Sprintf("iifname %q drop", port), fmt.Sprintf("oifname %q drop", port))
}

// LoseFrames drops a percentage of the frames on the underlay cables of nodes, in both directions.
// JoinUnderlay undoes it.
func (c *Cluster) LoseFrames(ctx context.Context, percent map[*Node]int) error {
	var rules []string
	for n, p := range percent {
		for _, direction := range []string{"iifname", "oifname"} {
			rules = append(rules, fmt.Sprintf("%s %q numgen random mod 100 < %d drop", direction, underlayPort(n.Name()), p))
		}
	}
	return c.filter(ctx, rules...)
}

// filter replaces the rules for frames that the switches forward; each rule names
// ports of the underlay.
func (c *Cluster) filter(ctx context.Context, rules ...string) error {
	var script strings.Builder
	// A table is deleted only where it exists, so it is made first.
	fmt.Fprintf(&script, "table %s\ndelete table %s\n", filterTable, filterTable)
	if len(rules) > 0 {
		fmt.Fprintf(&script, "table %s {\nchain forward {\ntype filter hook forward priority 0\n", filterTable)
		for _, rule := range rules {
			script.WriteString(rule + "\n")
		}
		script.WriteString("}\n}\n")
	}
	cmd := c.wires.sw.Command(ctx, "nft", "--file", "-")
	cmd.Stdin = strings.NewReader(script.String())
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("filter the underlay by %q: %w: %s", rules, err, output)
	}
	return nil
}
