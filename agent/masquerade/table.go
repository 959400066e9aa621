// SPDX-License-Identifier: Apache-2.0

package masquerade

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

var (
	// ErrIncomplete is returned by Check if a rule is missing or was changed. Ensure repairs it.
	ErrIncomplete = errors.New("the rules of host links are not complete")
	// ErrUnsupported is returned if the kernel lacks a part of nftables.
	ErrUnsupported = errors.New("load the kernel modules nf_tables, nft_chain_nat, nft_masq, nft_ct and nft_fib_ipv4, nft_fib_ipv6 on the node, or use a kernel that has them")
)

// Ensure makes the rules in the network namespace of the calling thread, unless they are complete.
// Other rules take the place of wrong ones in one transaction, so no packet meets neither.
func Ensure() error { return each(Family.ensure) }

// Check returns an error that names the first missing or changed rule.
func Check() error { return each(Family.check) }

// Remove removes the rules. Existing connections go on. It may be called again.
func Remove() error {
	err := each(Family.remove)
	if errors.Is(err, ErrUnsupported) {
		return nil // so there are none
	}
	return err
}

// each carries out a step for the families that the kernel has.
func each(step func(Family, *nftables.Conn) error) error {
	var all error
	for _, f := range families() {
		all = errors.Join(all, f.do(step))
	}
	return all
}

// do carries out a step, if the kernel has the family.
func (f Family) do(step func(Family, *nftables.Conn) error) error {
	if !f.exists() {
		return nil
	}
	c, err := nftables.New(nftables.AsLasting())
	if err == nil {
		err = errors.Join(step(f, c), c.CloseLasting())
	}
	if err != nil && !errors.Is(err, ErrIncomplete) && isUnsupported(err) {
		err = fmt.Errorf("%w: %w", err, ErrUnsupported)
	}
	if err != nil {
		return fmt.Errorf("table %s %s of nftables: %w", f.word, tableName, err)
	}
	return nil
}

// exists reports whether the kernel has the family. An IPv6 that is compiled out or switched off at
// boot has no settings.
func (f Family) exists() bool {
	_, err := os.Stat("/proc/sys/" + f.forwarding)
	return err == nil
}

// isUnsupported reports whether a part of nftables is absent. Without nf_tables the answer to a request
// is EINVAL, and without a type of chain or expression ENOENT.
func isUnsupported(err error) bool {
	return slices.ContainsFunc([]error{
		unix.EINVAL, unix.ENOENT, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT,
	}, func(e error) bool { return errors.Is(err, e) })
}

func (f Family) ensure(c *nftables.Conn) error {
	if err := f.check(c); !errors.Is(err, ErrIncomplete) {
		return err
	}
	return f.write(c)
}

// write replaces the table in one transaction.
func (f Family) write(c *nftables.Conn) error {
	t, chain := table(f)
	// A table that is deleted must exist.
	c.AddTable(t)
	c.DelTable(t)
	c.AddTable(t)
	c.AddChain(chain)
	for _, r := range rules(f) {
		c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: r.exprs, UserData: r.userData()})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write the rules: %w", err)
	}
	return nil
}

func (f Family) check(c *nftables.Conn) error {
	present, err := f.find(c)
	switch {
	case err != nil:
		return err
	case present == nil:
		return fmt.Errorf("%w: there is no table", ErrIncomplete)
	case present.Flags != 0:
		return fmt.Errorf("%w: the table has flags %#x, so its rules are off", ErrIncomplete, present.Flags)
	}
	t, chain := table(f)
	is, err := c.ListChain(t, chainName)
	switch {
	case err != nil:
		return fmt.Errorf("%w: read chain %s: %w", ErrIncomplete, chainName, err)
	case is.Type != chain.Type || is.Hooknum == nil || *is.Hooknum != *chain.Hooknum || is.Priority == nil || *is.Priority != priority:
		return fmt.Errorf("%w: chain %s is not of type nat at hook postrouting with priority %d", ErrIncomplete, chainName, priority)
	}
	have, err := c.GetRules(t, chain)
	if err != nil {
		return fmt.Errorf("%w: read the rules of chain %s: %w", ErrIncomplete, chainName, err)
	}
	want := rules(f)
	for i, r := range want {
		if i >= len(have) || !reflect.DeepEqual(have[i].Exprs, r.exprs) {
			return fmt.Errorf("%w: rule %q is missing or was changed", ErrIncomplete, r.comment)
		}
	}
	if len(have) > len(want) {
		return fmt.Errorf("%w: chain %s has %d rules, not %d", ErrIncomplete, chainName, len(have), len(want))
	}
	return nil
}

// find returns the table, or nil if there is none.
func (f Family) find(c *nftables.Conn) (*nftables.Table, error) {
	tables, err := c.ListTablesOfFamily(f.nft)
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	for _, t := range tables {
		if t.Name == tableName {
			return t, nil
		}
	}
	return nil, nil
}

func (f Family) remove(c *nftables.Conn) error {
	present, err := f.find(c)
	if err != nil || present == nil {
		return err
	}
	t, _ := table(f)
	c.DelTable(t)
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete the table: %w", err)
	}
	return nil
}
