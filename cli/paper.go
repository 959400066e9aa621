// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

const (
	// gap is the space between two columns.
	gap = 2
	// leastRoom is the width that a column of sentences has at least.
	leastRoom = 60
)

// paper is where people read an answer. With a width, sentences are wrapped at it. Without one, as in a
// file, each has one line.
type paper struct {
	io.Writer
	width int
}

// wrap breaks text into lines of at most width characters, or not at all if width is 0.
func wrap(text string, width int) []string {
	if width <= 0 {
		return []string{text}
	}
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case length(line)+1+length(word) > width:
			lines, line = append(lines, line), word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

func length(text string) int { return utf8.RuneCountInString(text) }

// say writes a sentence after a head of indent characters. Its further lines are indented as much.
func (p paper) say(head string, indent int, text string) {
	room := 0
	if p.width > 0 {
		room = max(p.width-indent, leastRoom)
	}
	fmt.Fprintf(p, "%s%s\n", head, strings.Join(wrap(text, room), "\n"+strings.Repeat(" ", indent)))
}

// measure returns the widths of columns, and the width of all but the last one.
func measure(rows [][]string) (widths []int, before int) {
	widths = make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], length(cell))
		}
	}
	for _, w := range widths[:len(widths)-1] {
		before += w + gap
	}
	return widths, before
}

// table writes rows in columns. Sentences in the last column are wrapped, or stand below their rows if
// the other columns leave too little room for them.
func (p paper) table(head []string, rows [][]string) {
	rows = append([][]string{head}, rows...)
	widths, before := measure(rows)
	last := len(widths) - 1
	isNarrow := p.width > 0 && before+widths[last] > p.width && widths[last] > leastRoom
	for i, row := range rows {
		var line strings.Builder
		for j, cell := range row[:last] {
			fmt.Fprintf(&line, "%-*s", widths[j]+gap, cell)
		}
		switch {
		case !isNarrow:
			fmt.Fprintln(p, strings.TrimRight(line.String()+row[last], " "))
		case p.width-before >= leastRoom:
			p.say(line.String(), before, row[last])
		default:
			fmt.Fprintln(p, strings.TrimRight(line.String(), " "))
			if i > 0 && row[last] != "" {
				p.say("      ", 6, row[last])
			}
		}
	}
}
