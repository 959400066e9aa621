// SPDX-License-Identifier: Apache-2.0

package masquerade

import (
	"errors"
	"fmt"
	"os"

	"github.com/google/nftables"

	"github.com/fenceline/fenceline/agent/hostlink/ruleset"
)

// ErrUnsupported is returned if the kernel lacks a part of nftables.
var ErrUnsupported = errors.New("load the kernel modules nf_tables, nft_chain_nat, nft_masq, nft_ct and nft_fib_ipv4, nft_fib_ipv6 on the node, or use a kernel that has them")

// Ensure makes the rules in the network namespace of the calling thread, unless they are complete.
func Ensure() error { return each(ruleset.Ruleset.Ensure) }

// Check returns an error that names the first missing or changed rule.
func Check() error { return each(ruleset.Ruleset.Check) }

// Remove removes the rules. Existing connections go on. It may be called again.
func Remove() error {
	err := each(ruleset.Ruleset.Remove)
	if errors.Is(err, ErrUnsupported) {
		return nil // so there are none
	}
	return err
}

// each carries out a step for the families that the kernel has.
func each(step func(ruleset.Ruleset, *nftables.Conn) error) error {
	var all error
	for _, f := range families() {
		all = errors.Join(all, f.do(step))
	}
	return all
}

// do carries out a step, if the kernel has the family.
func (f Family) do(step func(ruleset.Ruleset, *nftables.Conn) error) error {
	if !f.exists() {
		return nil
	}
	err := rulesetOf(f).Do(step)
	if ruleset.IsUnsupported(err) {
		return fmt.Errorf("%w: %w", err, ErrUnsupported)
	}
	return err
}

// exists reports whether the kernel has the family. An IPv6 that is compiled out or switched off at
// boot has no settings.
func (f Family) exists() bool {
	_, err := os.Stat("/proc/sys/" + f.forwarding)
	return err == nil
}
