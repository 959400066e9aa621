// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/internal/poolset"
)

// symbol is the letter of a state on the map, with its colour on an ANSI terminal.
type symbol struct {
	state  State
	letter string
	colour string
}

// symbols returns all symbols, in the order of the key.
func symbols() []symbol {
	return []symbol{
		{Free, ".", "2"},
		{Bound, "B", "32"},
		{Warm, "w", "36"},
		{Retained, "R", "34"},
		{Quarantined, "Q", "33"},
		{Conflict, "!", "1;31"},
		{CoolingDown, ",", "2"},
		{Gateway, "G", "35"},
		{Reserved, "#", "35"},
		{Withheld, "x", "2"},
		{Outside, " ", ""},
	}
}

// rowBits is the number of bits of an address that a row of the map spans: 32 addresses.
const rowBits = 5

// Grid is the map of a pool.
type Grid struct {
	Pool *Pool
	// Paint returns a letter in a colour.
	Paint func(colour, letter string) string
}

// Write draws rows of 32 addresses. It folds rows without a lease.
func (g Grid) Write(w io.Writer) {
	rows := g.rows()
	var last netip.Prefix // that was drawn
	for i, row := range rows {
		states, says := g.row(row)
		if !says && i > 0 && i < len(rows)-1 {
			continue
		}
		if n := g.between(last, row); n > 0 {
			fmt.Fprintf(w, "%*s  … %s without a lease\n", g.width(), "", Count(n, "row"))
		}
		fmt.Fprintf(w, "%*s  %s\n", g.width(), row.Addr(), g.letters(states))
		last = row
	}
	count := g.Pool.Count()
	var key []string
	for _, s := range symbols() {
		if n := count[s.state]; n > 0 {
			key = append(key, fmt.Sprintf("%s %s %d", g.Paint(s.colour, s.letter), s.state, n))
		}
	}
	fmt.Fprintf(w, "\n%s\n", strings.Join(key, "   "))
}

// between returns the number of rows between two rows, or 0 if the pool has no address there.
func (g Grid) between(last, row netip.Prefix) int {
	if !last.IsValid() {
		return 0
	}
	from := last.Addr()
	for last.Contains(from) {
		from = from.Next()
	}
	if from == row.Addr() {
		return 0
	}
	gap, err := poolset.Parse([]string{from.String() + "-" + row.Addr().Prev().String()})
	if err != nil || !gap.Overlaps(g.Pool.Set) {
		return 0
	}
	return int(gap.Len() >> rowBits)
}

// Count returns a number of things in words.
func Count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

func (g Grid) width() int { return len(g.Pool.Subnet.Addr().String()) + 4 }

// rows returns the rows in which states change, in ascending order.
func (g Grid) rows() []netip.Prefix {
	bits := max(g.Pool.Subnet.Addr().BitLen()-rowBits, g.Pool.Subnet.Bits())
	seen := map[netip.Prefix]bool{}
	for _, a := range g.Pool.Marks() {
		if row, err := a.Prefix(bits); err == nil {
			seen[row] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), netip.Prefix.Compare)
}

// row returns the states of the addresses of a row. says is false if none of them has more to say than
// its neighbours: they are free or not in the pool.
func (g Grid) row(row netip.Prefix) (states []State, says bool) {
	for a := row.Addr(); row.Contains(a); a = a.Next() {
		s := g.Pool.State(a)
		states = append(states, s)
		says = says || s != Free && s != Outside
	}
	return states, says
}

func (g Grid) letters(states []State) string {
	var b strings.Builder
	all := symbols()
	for i, s := range states {
		if i > 0 && i%8 == 0 {
			b.WriteByte(' ')
		}
		at := slices.IndexFunc(all, func(known symbol) bool { return known.state == s })
		b.WriteString(g.Paint(all[at].colour, all[at].letter))
	}
	return strings.TrimRight(b.String(), " ")
}
