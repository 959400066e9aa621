// SPDX-License-Identifier: Apache-2.0

// Try shows the stand-alone plugin in network namespaces: two hosts share a range with a host that
// knows nothing of it. It closes with "N passed, N failed". It needs Go and root, and removes all
// that it made.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/fenceline/fenceline/test/must"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed, err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "try:", err)
		os.Exit(2)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// run plays the show and returns the number of failed promises.
func run(ctx context.Context) (failed int, err error) {
	started := time.Now()
	fmt.Println("Building the plugin and the reference plugins.")
	dir, err := os.MkdirTemp("", "fenceline-try-")
	if err != nil {
		return 0, err
	}
	l := &lan{dir: dir}
	defer func() { err = errors.Join(err, l.remove(), os.RemoveAll(dir)) }()
	defer must.Catch(&err)
	l.bin = must.Value(build(ctx, dir))
	l.plugAll()
	fmt.Printf("\nOne switch, the hosts a and b, and a printer. It has %s, and nobody told the hosts.\n"+
		"Both hosts give their containers addresses from %s to %s, on macvlan.\n", taken, taken, last)

	s := &show{}
	l.showReference(ctx, s)
	l.showFenceline(ctx, s)
	fmt.Printf("\n%d passed, %d failed, %s\n", s.passed, s.failed, time.Since(started).Round(time.Second))
	return s.failed, nil
}

// show counts promises.
type show struct{ passed, failed int }

func (s *show) check(holds bool, format string, args ...any) {
	mark := "ok    "
	if holds {
		s.passed++
	} else {
		mark = "FAILED"
		s.failed++
	}
	fmt.Printf("  %s %s\n", mark, fmt.Sprintf(format, args...))
}

// showReference has host-local give an address on host a.
func (l *lan) showReference(ctx context.Context, s *show) {
	fmt.Print("\nhost-local, \"ipam\": {\"type\": \"host-local\"}:\n")
	c := must.Value(l.a.start(ctx, "host-local", "web"))
	fmt.Printf("  container %-4s on host a got %s\n", c.name, c.addr)
	var speakers []string
	for range 10 { // on a busy machine the second answer comes after the end of the probe
		if speakers = must.Value(l.speakers(ctx)); len(speakers) > 1 {
			break
		}
	}
	s.check(len(speakers) == 2, "the duplicate is there: %s is used by %s", taken, strings.Join(speakers, " and "))
	must.OK(c.stop(ctx))
}

// showFenceline has Fenceline give addresses on both hosts at the same time.
func (l *lan) showFenceline(ctx context.Context, s *show) {
	fmt.Print("\nFenceline, the same with \"type\": \"fenceline\":\n")
	all := must.Value(l.startAll(ctx, 3))
	holders := map[string]int{}
	for _, c := range all {
		fmt.Printf("  container %-4s on host %s got %s\n", c.name, c.host.name, c.addr)
		holders[c.addr.String()]++
	}
	s.check(len(holders) == len(all), "%d containers on two hosts have %d addresses", len(all), len(holders))
	s.check(holders[taken.String()] == 0, "the printer's address was passed over")
	speakers := must.Value(l.speakers(ctx))
	s.check(len(speakers) == 1 && speakers[0] == l.printerMAC, "%s is used by %s alone", taken, strings.Join(speakers, " and "))
	for _, h := range []*host{l.a, l.b} {
		text, err := os.ReadFile(h.memory())
		s.check(err == nil && strings.Contains(string(text), l.printerMAC), "host %s remembers the printer's MAC and the time", h.name)
	}
	l.draw(os.Stdout, all)
	for _, c := range all {
		must.OK(c.stop(ctx))
	}
}
