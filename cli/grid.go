// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/internal/inventory"
)

// symbol is the letter of a state on the map, with its colour on an ANSI terminal.
type symbol struct {
	state  inventory.State
	letter string
	colour string
}

// symbols returns all symbols, in the order of the key.
func symbols() []symbol {
	return []symbol{
		{inventory.Free, ".", "2"},
		{inventory.Bound, "B", "32"},
		{inventory.Warm, "w", "36"},
		{inventory.Retained, "R", "34"},
		{inventory.Quarantined, "Q", "33"},
		{inventory.Conflict, "!", "1;31"},
		{inventory.CoolingDown, ",", "2"},
		{inventory.Gateway, "G", "35"},
		{inventory.Reserved, "#", "35"},
		{inventory.Withheld, "x", "2"},
		{inventory.Outside, " ", ""},
	}
}

const (
	// rowBits is the number of bits of an address that a row of the map spans: 32 addresses.
	rowBits = 5
	// mostRows is the greatest number of rows that are looked at without a lease in them.
	mostRows = 1 << 16
)

// grid is the map of a pool.
type grid struct {
	pool *inventory.Pool
	// paint returns a letter in a colour.
	paint func(colour, letter string) string
}

// write draws rows of 32 addresses. It folds rows that say nothing.
func (g grid) write(w io.Writer) {
	count := map[inventory.State]int{}
	folded := 0
	unfold := func() {
		if folded > 0 {
			fmt.Fprintf(w, "%*s  … %d rows without a lease\n", g.width(), "", folded)
		}
		folded = 0
	}
	rows := g.rows()
	for i, row := range rows {
		states, says := g.row(row)
		for _, s := range states {
			count[s]++
		}
		if !says && i > 0 && i < len(rows)-1 {
			folded++
			continue
		}
		unfold()
		fmt.Fprintf(w, "%*s  %s\n", g.width(), row.Addr(), g.letters(states))
	}
	unfold()
	fmt.Fprintln(w)
	for _, s := range symbols() {
		if n := count[s.state]; n > 0 && s.state != inventory.Outside {
			fmt.Fprintf(w, "%s %s %d   ", g.paint(s.colour, s.letter), s.state, n)
		}
	}
	fmt.Fprintln(w)
}

func (g grid) width() int { return len(g.pool.Subnet.Addr().String()) + 4 }

// rows returns the beginnings of all rows that are drawn, in ascending order.
func (g grid) rows() []netip.Prefix {
	bits := max(g.pool.Subnet.Addr().BitLen()-rowBits, g.pool.Subnet.Bits())
	seen := map[netip.Prefix]bool{}
	add := func(a netip.Addr) {
		row, err := a.Prefix(bits)
		if err == nil {
			seen[row] = true
		}
	}
	for _, a := range g.pool.Leased() {
		add(a)
	}
	for i := uint64(0); i < min(g.pool.Set.Len(), mostRows<<rowBits); i += 1 << rowBits {
		add(g.pool.Set.At(i))
	}
	if n := g.pool.Set.Len(); n > 0 && n <= mostRows<<rowBits {
		add(g.pool.Set.At(n - 1))
	}
	var rows []netip.Prefix
	for row := range seen {
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return rows
}

// row returns the states of the addresses of a row. says is false if all of them are free.
func (g grid) row(row netip.Prefix) (states []inventory.State, says bool) {
	for a := row.Addr(); row.Contains(a); a = a.Next() {
		s := g.pool.State(a)
		states = append(states, s)
		says = says || s != inventory.Free && s != inventory.Outside
	}
	return states, says
}

func (g grid) letters(states []inventory.State) string {
	var b strings.Builder
	all := symbols()
	for i, s := range states {
		if i > 0 && i%8 == 0 {
			b.WriteByte(' ')
		}
		at := slices.IndexFunc(all, func(known symbol) bool { return known.state == s })
		b.WriteString(g.paint(all[at].colour, all[at].letter))
	}
	return strings.TrimRight(b.String(), " ")
}
