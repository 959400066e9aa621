// SPDX-License-Identifier: Apache-2.0

package conflicts

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

func read(t *testing.T, dir string, now time.Time) *Memory {
	t.Helper()
	return check.Value(Read(dir, now))(t)
}

func meet(t *testing.T, m *Memory, addr netip.Addr, mac string) foreignhost.Action {
	t.Helper()
	return check.Value(m.Meet(addr, mac))(t)
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
		{"before the time", Retry - time.Second, true},
		{"at the time", Retry, false},
		{"after a step of the clock back", -time.Second, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, known := read(t, dir, start.Add(row.after)).Find(addr)
			check.Must(t, known == row.known, "known: %v, want %v", known, row.known)
			check.That(t, !known || c.MAC == mac && c.Time.Equal(start), "got %+v", c)
		})
	}
}

func TestAnAddressThatCameFreeIsForgotten(t *testing.T) {
	dir := t.TempDir()
	m := read(t, dir, start)
	meet(t, m, addr, mac)
	check.OK(t, m.Forget(addr))
	_, known := read(t, dir, start).Find(addr)
	check.That(t, !known, "it is still known")
}

func TestForgettingAnUnknownAddressWritesNothing(t *testing.T) {
	dir := t.TempDir()
	check.OK(t, read(t, dir, start).Forget(addr))
	_, err := os.Stat(filepath.Join(dir, FileName))
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
	check.OK(t, os.WriteFile(filepath.Join(dir, FileName), []byte(`{"conflicts":[{"addr`), 0o600))
	m := read(t, dir, start)
	_, known := m.Find(addr)
	check.That(t, !known, "known")
	meet(t, m, addr, mac)
	_, known = read(t, dir, start).Find(addr)
	check.That(t, known, "the file was not replaced")
}

func TestAnErrorNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	check.OK(t, os.Mkdir(filepath.Join(dir, FileName), 0o700))
	_, err := Read(dir, start)
	pathErr, ok := errors.AsType[*fs.PathError](err)
	check.That(t, ok && pathErr.Path == filepath.Join(dir, FileName), "got %v", err)
}
