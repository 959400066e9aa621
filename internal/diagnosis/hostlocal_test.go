// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

// directory is a directory of host-local with files of two containers, and one that is empty.
func directory(t *testing.T) (data string, asked HostLocal) {
	data = t.TempDir()
	check.OK(t, os.Mkdir(filepath.Join(data, "vlan100"), 0o755))
	for name, text := range map[string]string{
		"10.0.0.10": "c1\r\nnet1", "10.0.0.11": "c2", "10.0.0.12": "", "lock": "", "last_reserved_ip.0": "10.0.0.12", "2001:db8::5": "c3\r\nnet1",
	} {
		check.OK(t, os.WriteFile(filepath.Join(data, "vlan100", name), []byte(text), 0o600))
	}
	return data, HostLocal{DataDir: data, Networks: []string{"vlan100"}, Mark: "fenceline-move/shop.vlan100"}
}

// contents returns all files of a directory.
func contents(t *testing.T, path string) map[string]string {
	t.Helper()
	all := map[string]string{}
	names := check.Value(os.ReadDir(path))(t)
	for _, n := range names {
		all[n.Name()] = string(check.Value(os.ReadFile(filepath.Join(path, n.Name())))(t))
	}
	return all
}

func ends(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func TestFilesOfHostLocalAreRead(t *testing.T) {
	data, asked := directory(t)
	old := filepath.Join(data, "vlan100", "10.0.0.11")
	check.OK(t, os.Chtimes(old, time.Time{}, time.Now().Add(-time.Hour)))
	for name, text := range map[string]string{"10.0.0.13": strings.Repeat("long", 400), "10.0.0.14": "c4\r\nnet1\r\nmore"} {
		check.OK(t, os.WriteFile(filepath.Join(data, "vlan100", name), []byte(text), 0o600))
	}
	check.OK(t, os.Symlink("lock", filepath.Join(data, "vlan100", "10.0.0.15")))
	got := check.Value(asked.Answer(time.Now().Add(-time.Minute)))(t)
	want := []HostLocalFile{
		{Network: "vlan100", Address: netip.MustParseAddr("10.0.0.10"), Container: "c1", Interface: "net1"},
		{Network: "vlan100", Address: netip.MustParseAddr("10.0.0.11"), Container: "c2", Old: true},
		{Network: "vlan100", Address: netip.MustParseAddr("10.0.0.12")},
		{Network: "vlan100", Address: netip.MustParseAddr("10.0.0.13"), Problem: "it is too long"},
		{Network: "vlan100", Address: netip.MustParseAddr("10.0.0.14"), Container: "c4", Problem: "its second line is no name of an interface"},
		{Network: "vlan100", Address: netip.MustParseAddr("10.0.0.15"), Problem: "it is no regular file"},
		{Network: "vlan100", Address: netip.MustParseAddr("2001:db8::5"), Container: "c3", Interface: "net1"},
	}
	check.That(t, slices.Equal(got.Files, want) && got.Marked == 0, "the files are %+v", got)
	asked.Networks = []string{"other"}
	check.Equal(t, len(check.Value(asked.Answer(time.Now()))(t).Files), 0, "files of a network without a directory")
	for _, name := range []string{"", ".", "..", "a/b", "../etc"} {
		asked.Networks = []string{name}
		check.Says(t, check.Err(asked.Answer(time.Now())), "is no name of a directory")
	}
}

// The files of a move fill what is free, and leave with it. No other file changes.
func TestFilesOfAMoveComeAndGo(t *testing.T) {
	data, asked := directory(t)
	at, before := filepath.Join(data, "vlan100"), contents(t, filepath.Join(data, "vlan100"))
	asked.Write, asked.Ends = true, ends("10.0.0.9", "10.0.0.20", "2001:db8::5", "2001:db8::6")
	for range 2 {
		got := check.Value(asked.Answer(time.Now()))(t)
		check.That(t, got.Marked == 10 && len(got.Files) == 4, "written: %+v", got)
	}
	all := contents(t, at)
	check.That(t, all["10.0.0.9"] == asked.Mark && all["2001:db8::6"] == asked.Mark && all["10.0.0.10"] == "c1\r\nnet1" && len(all) == 16, "the directory has %v", all)

	// Host-local gives an address just before its file is written.
	dir := check.Value(os.OpenRoot(at))(t)
	check.OK(t, asked.link(dir, map[netip.Addr]bool{netip.MustParseAddr("10.0.0.10"): true}))
	check.OK(t, dir.Close())
	check.Equal(t, contents(t, at)["10.0.0.10"], "c1\r\nnet1", "the file of a container")

	// A crash has left the temporary file, and another command one of its files.
	check.OK(t, os.WriteFile(filepath.Join(at, temporary+"9"), []byte(asked.Mark), 0o600))
	check.OK(t, os.WriteFile(filepath.Join(at, "10.0.0.21"), []byte("fenceline-move/other"), 0o600))
	before["10.0.0.21"] = "fenceline-move/other"
	asked.Ends = ends("10.0.0.20", "10.0.0.20")
	check.Equal(t, check.Value(asked.Answer(time.Now()))(t).Marked, 1, "files that are kept")
	asked.Ends = nil
	check.Equal(t, check.Value(asked.Answer(time.Now()))(t).Marked, 0, "files that are left")
	check.That(t, maps.Equal(contents(t, at), before), "the directory has %v, and had %v", contents(t, at), before)

	// A network that host-local has never served on this node.
	asked.Networks, asked.Ends = []string{"other"}, ends("10.0.0.9", "10.0.0.10")
	check.Equal(t, check.Value(asked.Answer(time.Now()))(t).Marked, 2, "files in a new directory")
	asked.Ends = nil
	check.OK(t, check.Err(asked.Answer(time.Now())))
	check.Equal(t, len(check.Value(os.ReadDir(data))(t)), 1, "directories")
	asked.Mark = ""
	check.Says(t, check.Err(asked.Answer(time.Now())), "it has no mark")
}

// The greatest freeze has more files than a file may have names.
func TestManyFilesOfAMove(t *testing.T) {
	data, asked := directory(t)
	asked.Write, asked.Ends = true, ends("10.1.0.0", "10.1.255.255")
	began := time.Now()
	check.Equal(t, check.Value(asked.Answer(began))(t).Marked, 1<<16, "files")
	t.Logf("%d files took %s", 1<<16, time.Since(began))
	asked.Ends = nil
	check.OK(t, check.Err(asked.Answer(began)))
	check.Equal(t, len(contents(t, filepath.Join(data, "vlan100"))), 6, "files that are left")
}
