// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Story prints what happens, while it happens. The zero value prints nothing. Safe for concurrent use.
type Story struct {
	mu      sync.Mutex
	out     io.Writer
	started time.Time
}

// NewStory returns a story that prints to out, with times from now on.
func NewStory(out io.Writer) *Story { return &Story{out: out, started: time.Now()} }

// Say prints one sentence with the time.
func (s *Story) Say(format string, args ...any) {
	s.write(fmt.Sprintf("%s  %s\n", s.clock(), fmt.Sprintf(format, args...)))
}

// Show prints a command and its output.
func (s *Story) Show(command, output string) {
	var b strings.Builder
	fmt.Fprintf(&b, "        $ %s\n", command)
	for line := range strings.Lines(strings.TrimRight(output, "\n") + "\n") {
		b.WriteString("        " + line)
	}
	s.write(b.String())
}

// clock returns the minutes and seconds since the start.
func (s *Story) clock() string {
	seconds := int(time.Since(s.started).Seconds())
	return fmt.Sprintf(" %2d:%02d", seconds/60, seconds%60)
}

func (s *Story) write(text string) {
	if s.out == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(s.out, text) // a scenario does not fail because its story cannot be printed
}

// round rounds a duration to what a reader can use.
func round(d time.Duration) time.Duration {
	switch magnitude := d.Abs(); {
	case magnitude >= 10*time.Second:
		return d.Round(100 * time.Millisecond)
	case magnitude >= 100*time.Millisecond:
		return d.Round(10 * time.Millisecond)
	case magnitude >= time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}
