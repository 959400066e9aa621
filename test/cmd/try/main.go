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
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bin, err := build(ctx, dir)
	if err != nil {
		return 0, err
	}
	l, err := newLAN(bin, dir)
	defer func() { err = errors.Join(err, l.remove()) }()
	if err != nil {
		return 0, err
	}
	fmt.Printf("\nOne switch, the hosts a and b, and a printer. It has %s, and nobody told the hosts.\n"+
		"Both hosts give their containers addresses from %s to %s, on macvlan.\n", taken, taken, last)

	s := &show{}
	if err := l.showReference(ctx, s); err != nil {
		return 0, err
	}
	if err := l.showFenceline(ctx, s); err != nil {
		return 0, err
	}
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
func (l *lan) showReference(ctx context.Context, s *show) error {
	fmt.Print("\nhost-local, \"ipam\": {\"type\": \"host-local\"}:\n")
	c, err := l.a.start(ctx, "host-local", "web")
	if err != nil {
		return err
	}
	fmt.Printf("  container %-4s on host a got %s\n", c.name, c.addr)
	var speakers []string
	for range 10 { // on a busy machine the second answer comes after the end of the probe
		if speakers, err = l.speakers(ctx); err != nil || len(speakers) > 1 {
			break
		}
	}
	if err != nil {
		return err
	}
	s.check(len(speakers) == 2, "the duplicate is there: %s is used by %s", taken, strings.Join(speakers, " and "))
	return c.stop(ctx)
}

// showFenceline has Fenceline give addresses on both hosts at the same time.
func (l *lan) showFenceline(ctx context.Context, s *show) error {
	fmt.Print("\nFenceline, the same with \"type\": \"fenceline\":\n")
	all, err := l.startAll(ctx, 3)
	if err != nil {
		return err
	}
	holders := map[string]int{}
	for _, c := range all {
		fmt.Printf("  container %-4s on host %s got %s\n", c.name, c.host.name, c.addr)
		holders[c.addr.String()]++
	}
	s.check(len(holders) == len(all), "%d containers on two hosts have %d addresses", len(all), len(holders))
	s.check(holders[taken.String()] == 0, "the printer's address was passed over")
	speakers, err := l.speakers(ctx)
	if err != nil {
		return err
	}
	s.check(len(speakers) == 1 && speakers[0] == l.printerMAC, "%s is used by %s alone", taken, strings.Join(speakers, " and "))
	for _, h := range []*host{l.a, l.b} {
		text, err := os.ReadFile(h.memory())
		s.check(err == nil && strings.Contains(string(text), l.printerMAC), "host %s remembers the printer's MAC and the time", h.name)
	}
	if err := l.draw(os.Stdout, all); err != nil {
		return err
	}
	for _, c := range all {
		if err := c.stop(ctx); err != nil {
			return err
		}
	}
	return nil
}
