// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fenceline/fenceline/internal/foreignhost"
	"github.com/fenceline/fenceline/test/check"
)

var (
	start = time.Unix(1e9, 0)
	addr  = netip.MustParseAddr("10.0.0.7")
)

const mac = "02:00:00:00:00:01"

func read(t *testing.T, dir string, now time.Time) *memory {
	t.Helper()
	return check.Value(readMemory(dir, now))(t)
}

func meet(t *testing.T, m *memory, addr netip.Addr, mac string) foreignhost.Action {
	t.Helper()
	return check.Value(m.meet(addr, mac))(t)
}

func TestAConflictIsRememberedAndTriedAgainLater(t *testing.T) {
	dir := t.TempDir()
	meet(t, read(t, dir, start), addr, mac)
	for _, row := range []struct {
		name  string
		after time.Duration
		known bool
	}{
		{"at once", 0, true},
		{"before the time", retryAfter - time.Second, true},
		{"at the time", retryAfter, false},
		{"after a step of the clock back", -time.Second, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := read(t, dir, start.Add(row.after))
			check.Must(t, m.knows(addr) == row.known, "known: %v, want %v", !row.known, row.known)
			check.That(t, !row.known || m.Conflicts[0].MAC == mac && m.Conflicts[0].Time.Equal(start), "got %+v", m.Conflicts)
		})
	}
}

func TestAnAddressThatCameFreeIsForgotten(t *testing.T) {
	dir := t.TempDir()
	m := read(t, dir, start)
	meet(t, m, addr, mac)
	check.OK(t, m.forget(addr))
	check.That(t, !read(t, dir, start).knows(addr), "it is still known")
}

func TestForgettingAnUnknownAddressWritesNothing(t *testing.T) {
	dir := t.TempDir()
	check.OK(t, read(t, dir, start).forget(addr))
	_, err := os.Stat(filepath.Join(dir, conflictsFile))
	check.That(t, errors.Is(err, fs.ErrNotExist), "there is a file: %v", err)
}

func TestAHostOfManyAddressesIsBounded(t *testing.T) {
	dir, n := t.TempDir(), map[foreignhost.Action]int{}
	for i := range foreignhost.MaxConflicts + 5 {
		n[meet(t, read(t, dir, start), netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", i+1)), mac)]++
	}
	if n[foreignhost.Quarantine] != foreignhost.ManyAddresses ||
		n[foreignhost.PassOver] != foreignhost.MaxConflicts-foreignhost.ManyAddresses || n[foreignhost.Stop] != 5 {
		t.Errorf("got %v", n)
	}
	check.Equal(t, meet(t, read(t, dir, start), netip.MustParseAddr("10.0.0.98"), "02:00:00:00:00:02"), foreignhost.Quarantine, "another host:")
	later := read(t, dir, start.Add(foreignhost.Interval))
	check.Equal(t, meet(t, later, netip.MustParseAddr("10.0.0.99"), mac), foreignhost.PassOver, "after the interval:")
}

func TestADamagedFileIsAnEmptyMemory(t *testing.T) {
	dir := t.TempDir()
	check.OK(t, os.WriteFile(filepath.Join(dir, conflictsFile), []byte(`{"conflicts":[{"addr`), 0o600))
	m := read(t, dir, start)
	check.That(t, !m.knows(addr), "known")
	meet(t, m, addr, mac)
	check.That(t, read(t, dir, start).knows(addr), "the file was not replaced")
}

func TestAnErrorNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	check.OK(t, os.Mkdir(filepath.Join(dir, conflictsFile), 0o700))
	_, err := readMemory(dir, start)
	pathErr, ok := errors.AsType[*fs.PathError](err)
	check.That(t, ok && pathErr.Path == filepath.Join(dir, conflictsFile), "got %v", err)
}
