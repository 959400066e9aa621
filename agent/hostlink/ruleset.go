// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// ErrIncomplete is returned by Check if a part is missing or was changed. Ensure repairs it.
var ErrIncomplete = errors.New("the rules of host links are not complete")

// Ruleset is a table with one base chain and its rules.
type Ruleset struct {
	Table *nftables.Table
	Chain *nftables.Chain
	Rules []NFTRule
}

// NFTRule is a rule of the chain, with the comment that names it.
type NFTRule struct {
	Comment string
	Exprs   []expr.Any
}

// Do carries out a step in the network namespace of the calling thread.
func (r Ruleset) Do(step func(Ruleset, *nftables.Conn) error) error {
	c, err := nftables.New(nftables.AsLasting())
	if err == nil {
		err = errors.Join(step(r, c), c.CloseLasting())
	}
	if err != nil {
		word := map[nftables.TableFamily]string{nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet"}
		return fmt.Errorf("table %s %s of nftables: %w", word[r.Table.Family], r.Table.Name, err)
	}
	return nil
}

// IsUnsupported reports whether an error says that the kernel lacks a part of nftables. Without
// nf_tables the answer to a request is EINVAL, and without a type of chain or expression ENOENT.
func IsUnsupported(err error) bool {
	return !errors.Is(err, ErrIncomplete) && slices.ContainsFunc([]error{
		unix.EINVAL, unix.ENOENT, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT,
	}, func(e error) bool { return errors.Is(err, e) })
}

// Ensure makes the table, unless it is complete.
func (r Ruleset) Ensure(c *nftables.Conn) error {
	if err := r.Check(c); !errors.Is(err, ErrIncomplete) {
		return err
	}
	return r.Write(c)
}

// Write makes the table. One transaction replaces an earlier one, so each packet meets one of them.
func (r Ruleset) Write(c *nftables.Conn) error {
	present, err := r.find(c)
	if err != nil {
		return err
	}
	if present != nil {
		c.DelTable(r.Table)
	}
	c.AddTable(r.Table)
	c.AddChain(r.Chain)
	for _, rule := range r.Rules {
		comment := userdata.AppendString(nil, userdata.TypeComment, rule.Comment) // as nft prints it
		c.AddRule(&nftables.Rule{Table: r.Table, Chain: r.Chain, Exprs: rule.Exprs, UserData: comment})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write the rules: %w", err)
	}
	return nil
}

// Check returns an error that names the first missing or changed part.
func (r Ruleset) Check(c *nftables.Conn) error {
	present, err := r.find(c)
	switch {
	case err != nil:
		return err
	case present == nil:
		return fmt.Errorf("%w: there is no table", ErrIncomplete)
	case present.Flags != 0:
		return fmt.Errorf("%w: the table has flags %#x, so its rules are off", ErrIncomplete, present.Flags)
	}
	is, err := c.ListChain(r.Table, r.Chain.Name)
	switch {
	case err != nil:
		return fmt.Errorf("%w: read chain %s: %w", ErrIncomplete, r.Chain.Name, err)
	case is.Type != r.Chain.Type || is.Hooknum == nil || *is.Hooknum != *r.Chain.Hooknum || is.Priority == nil || *is.Priority != *r.Chain.Priority:
		return fmt.Errorf("%w: chain %s is not of type %s at its hook with priority %d", ErrIncomplete, r.Chain.Name, r.Chain.Type, *r.Chain.Priority)
	}
	have, err := c.GetRules(r.Table, r.Chain)
	if err != nil {
		return fmt.Errorf("%w: read the rules of chain %s: %w", ErrIncomplete, r.Chain.Name, err)
	}
	for i, rule := range r.Rules {
		if i >= len(have) || !reflect.DeepEqual(have[i].Exprs, rule.Exprs) {
			return fmt.Errorf("%w: rule %q is missing or was changed", ErrIncomplete, rule.Comment)
		}
	}
	if len(have) > len(r.Rules) {
		return fmt.Errorf("%w: chain %s has %d rules, not %d", ErrIncomplete, r.Chain.Name, len(have), len(r.Rules))
	}
	return nil
}

// Remove removes the table. It may be called again.
func (r Ruleset) Remove(c *nftables.Conn) error {
	present, err := r.find(c)
	if err != nil || present == nil {
		return err
	}
	c.DelTable(r.Table)
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete the table: %w", err)
	}
	return nil
}

// find returns the table, or nil if there is none.
func (r Ruleset) find(c *nftables.Conn) (*nftables.Table, error) {
	tables, err := c.ListTablesOfFamily(r.Table.Family)
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	i := slices.IndexFunc(tables, func(t *nftables.Table) bool { return t.Name == r.Table.Name })
	if i < 0 {
		return nil, nil
	}
	return tables[i], nil
}
