// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/cli/cluster"
)

// print writes an answer as JSON or YAML, or as text for people.
func (s *session) print(answer any, text func(paper)) error {
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
		p := paper{Writer: s.Out}
		if s.isTerminal() {
			p.width, _, _ = term.GetSize(int(s.Out.(*os.File).Fd()))
		}
		text(p)
		return nil
	}
	return fmt.Errorf("--output is %q, want json, yaml or wide", s.output)
}

// sayUnread tells which objects the reader may not read, and what did not answer.
func (s *session) sayUnread(c *cluster.Cluster) {
	for _, objects := range c.Unread() {
		fmt.Fprintf(s.ErrOut, "You have no right to read %s: the answer lacks them.\n", objects)
	}
	for _, what := range c.Silent() {
		fmt.Fprintf(s.ErrOut, "There was no answer from the %s: the history lacks it.\n", what)
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
