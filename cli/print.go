// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/cli/cluster"
)

// print writes an answer as JSON or YAML, or as text for people.
func (s *session) print(answer any, text func(w io.Writer)) error {
	switch s.output {
	case "json":
		e := json.NewEncoder(s.Out)
		e.SetIndent("", "  ")
		return e.Encode(answer)
	case "yaml":
		out, err := yaml.Marshal(answer)
		if err != nil {
			return fmt.Errorf("write the answer as YAML: %w", err)
		}
		_, err = s.Out.Write(out)
		return err
	case "", "wide":
		text(s.Out)
		return nil
	}
	return fmt.Errorf("--output is %q, want json, yaml or wide", s.output)
}

// sayUnread tells which objects the reader may not read.
func (s *session) sayUnread(c *cluster.Cluster) {
	for _, objects := range c.Unread() {
		fmt.Fprintf(s.ErrOut, "You have no right to read %s: the answer lacks them.\n", objects)
	}
}

// table writes rows in columns.
func table(w io.Writer, head []string, rows [][]string) {
	t := printers.GetNewTabWriter(w)
	defer t.Flush()
	for _, row := range append([][]string{head}, rows...) {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
}

// colour returns text in a colour of ANSI terminals, if the output is one.
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
