// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/cli/cluster"
)

// print writes an answer as JSON or YAML, or as text for people.
func (s *session) print(answer any, text func(paper)) error {
	switch s.output {
	case "json":
		e := json.NewEncoder(printable{s.Out})
		e.SetIndent("", "  ")
		return e.Encode(answer)
	case "yaml":
		out, err := yaml.Marshal(answer)
		if err != nil {
			return fmt.Errorf("write the answer as YAML: %w", err)
		}
		_, err = printable{s.Out}.Write(out)
		return err
	case "", "wide":
		var all bytes.Buffer
		p := paper{printable: printable{&all}, colour: s.colour}
		if s.isTerminal() {
			p.width, _, _ = term.GetSize(int(s.Out.(*os.File).Fd()))
		}
		text(p)
		_, err := s.Out.Write(all.Bytes())
		return err
	}
	return fmt.Errorf("--output is %q, want json, yaml or wide", s.output)
}

// sayUnread tells which objects the reader may not read, and which logs broke off.
func (s *session) sayUnread(c *cluster.Cluster) {
	for _, objects := range c.Unread() {
		fmt.Fprintf(s.ErrOut, "You have no right to read %s: the answer lacks them.\n", objects)
	}
	for _, what := range c.Missed() {
		fmt.Fprintf(s.ErrOut, "The history lacks %s.\n", what)
	}
}

// colour returns text in a colour, if the output is an ANSI terminal.
func (s *session) colour(code, text string) string {
	if !s.isTerminal() || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *session) isTerminal() bool {
	f, ok := s.Out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// age returns the time since then for people.
func age(now, then time.Time) string { return duration.HumanDuration(now.Sub(then)) }

const (
	// gap is the space between two columns.
	gap = 2
	// leastRoom is the width that a column of sentences has at least.
	leastRoom = 60
)

// paper is the output for people. Without a width, as in a file, each sentence has one line.
type paper struct {
	printable
	width  int
	colour func(code, text string) string
}

// oneLine replaces line breaks, so that a text cannot look like several rows.
func oneLine(text string) string {
	return strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ", "\t", " ").Replace(text)
}

// wrap breaks text into lines of at most width characters, or not at all if width is 0.
func wrap(text string, width int) []string {
	if width <= 0 {
		return []string{oneLine(text)}
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

// about says something about an object, whose name is in a colour.
func (p paper) about(code, object, what string) {
	var all strings.Builder
	paper{printable: printable{&all}, width: p.width}.say("", 4, object+": "+what)
	said, name := all.String(), shown(object+":")
	if rest, ok := strings.CutPrefix(said, name); ok {
		said = p.colour(code, name) + rest
	}
	fmt.Fprint(p.Writer, said)
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
	for _, row := range rows {
		for i := range row {
			row[i] = oneLine(row[i])
		}
	}
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

// printable writes characters that a terminal or an editor obeys, such as ESC and those that turn the
// direction of text, as \u001b. So an annotation or an event of a tenant cannot change what the reader
// sees. JSON stays JSON.
type printable struct{ io.Writer }

// Write writes whole characters: text must not end inside one.
func (p printable) Write(text []byte) (int, error) {
	if _, err := io.WriteString(p.Writer, shown(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// shown returns text without the characters that a terminal obeys, but for line breaks and tabs.
func shown(text string) string {
	var all []byte
	for _, r := range text {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			all = utf8.AppendRune(all, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			all = fmt.Appendf(all, `\u%04x`, unit)
		}
	}
	return string(all)
}
