// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

// world is a directory of data files in one boot of a machine. There is no namespace, so nothing is probed.
type world struct {
	dir, host, boot, ipam string
	// booted is the time of the boot.
	booted time.Time
}

func newWorld(t *testing.T, ranges string) *world {
	t.Helper()
	return &world{t.TempDir(), "here", "boot-1", `"ranges":` + ranges, time.Now().Add(-time.Hour)}
}

func (w *world) call(container string) Call {
	return Call{
		Attachment: agentapi.Attachment{ContainerID: container, Interface: "eth0"}, NetNS: "/run/netns/none",
		Conf:   fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"net","ipam":{"type":"fenceline","dataDir":%q,%s}}`, w.dir, w.ipam),
		Stderr: io.Discard, Host: w.host, Boot: w.boot, Booted: w.booted, Now: time.Now,
	}
}

func (w *world) add(t *testing.T, container string) (string, error) {
	t.Helper()
	r, err := Add(t.Context(), w.call(container))
	if err != nil {
		return "", err
	}
	return r.IPs[0].Address.IP.String(), nil
}

func (w *world) mustAdd(t *testing.T, containers ...string) {
	t.Helper()
	for _, c := range containers {
		check.Value(w.add(t, c))(t)
	}
}

// files returns the names of the address files, sorted.
func (w *world) files(t *testing.T) (names []string) {
	t.Helper()
	s := check.Value(w.call("").open())(t)
	defer s.Close()
	found := check.Value(s.entries())(t)
	for _, e := range found {
		names = append(names, e.addr.String())
	}
	slices.Sort(names)
	return names
}

func (w *world) write(t *testing.T, name, text string) {
	t.Helper()
	dir := filepath.Join(w.dir, "net")
	check.OK(t, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)))
}

func wantCode(t *testing.T, err error, code uint) {
	t.Helper()
	e, ok := errors.AsType[*agentapi.Error](err)
	check.That(t, ok && e.Code == code, "got %v, want code %d", err, code)
}

const four = `[[{"subnet":"10.0.0.0/29","rangeStart":"10.0.0.2","rangeEnd":"10.0.0.5"}]]`

func TestGCFreesWhatTheRuntimeNoLongerHas(t *testing.T) {
	w := newWorld(t, `[[{"subnet":"10.0.0.0/28"}]]`)
	w.mustAdd(t, "kept", "gone")
	w.write(t, "10.0.0.9", "")             // a plugin was killed before it wrote the holder
	w.write(t, "10.0.0.10", "kept")        // an old version wrote no interface
	w.write(t, "10.0.0.11", "foreign\r\n") // half a holder
	w.write(t, "notes", "gone\r\neth0")
	valid := []agentapi.Attachment{{ContainerID: "kept", Interface: "eth0"}}
	check.OK(t, GC(w.call(""), valid))
	check.List(t, w.files(t), []string{"10.0.0.10", "10.0.0.2"}, "files of")
	_, err := os.Stat(filepath.Join(w.dir, "net", "notes"))
	check.That(t, err == nil, "a file that is no address: %v", err)
}

func TestAddressesOfAnEarlierBootComeBack(t *testing.T) {
	for _, row := range []struct {
		name string
		do   func(*testing.T, *world)
		want []string
	}{
		{"a full range", func(t *testing.T, w *world) { w.mustAdd(t, "new") }, []string{"10.0.0.2", "10.0.0.5"}},
		{"the same container again", func(t *testing.T, w *world) { w.mustAdd(t, "a") }, []string{"10.0.0.2", "10.0.0.5"}},
		{"GC", func(t *testing.T, w *world) {
			check.OK(t, GC(w.call(""), []agentapi.Attachment{{ContainerID: "a", Interface: "eth0"}, {ContainerID: "reference", Interface: "eth0"}}))
		}, []string{"10.0.0.5"}},
		{"STATUS knows that they are free", func(t *testing.T, w *world) {
			check.OK(t, Status(w.call("")))
		}, []string{"10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, four)
			w.mustAdd(t, "a", "b", "c")
			w.write(t, "10.0.0.5", "reference\r\neth0") // by the reference, in the second boot
			w.boot = "boot-2"
			row.do(t, w)
			check.List(t, w.files(t), row.want, "files of")
		})
	}
}

// The reference marks no file, but the time of a file of an earlier boot is before this boot.
func TestFilesOfTheReferenceThatAreOlderThanTheBootComeBack(t *testing.T) {
	for _, row := range []struct {
		name string
		// before is how long before the boot the files were written.
		before time.Duration
		do     func(*testing.T, *world) error
		want   []string
	}{
		{"a full range", time.Second, func(t *testing.T, w *world) error { return check.Err(w.add(t, "new")) }, []string{"10.0.0.2"}},
		{"the same container again", time.Second, func(t *testing.T, w *world) error { return check.Err(w.add(t, "c3")) }, []string{"10.0.0.2"}},
		{"one is requested", time.Second, func(t *testing.T, w *world) error {
			c := w.call("new")
			c.Args = "IP=10.0.0.4"
			return check.Err(Add(t.Context(), c))
		}, []string{"10.0.0.4"}},
		{"STATUS knows that they are free", time.Second, func(t *testing.T, w *world) error { return Status(w.call("")) },
			[]string{"10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"}},
		{"of this boot they stay", 0, func(t *testing.T, w *world) error {
			wantCode(t, check.Err(w.add(t, "new")), agentapi.CodeExhausted)
			return nil
		}, []string{"10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"}},
		{"without a time of the boot too", time.Second, func(t *testing.T, w *world) error {
			w.booted = time.Time{}
			wantCode(t, check.Err(w.add(t, "new")), agentapi.CodeExhausted)
			return nil
		}, []string{"10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, four)
			for i := 2; i <= 5; i++ {
				name := fmt.Sprintf("10.0.0.%d", i)
				w.write(t, name, fmt.Sprintf("c%d\r\neth0", i))
				at := w.booted.Add(-row.before)
				check.OK(t, os.Chtimes(filepath.Join(w.dir, "net", name), at, at))
			}
			check.OK(t, row.do(t, w))
			check.List(t, w.files(t), row.want, "files of")
		})
	}
}

// The clocks of other machines differ, and they have other boots.
func TestTheTimeOfAFileCountsOnDisksOfTheMachineOnly(t *testing.T) {
	for magic, want := range map[int64]bool{
		unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true,
		unix.NFS_SUPER_MAGIC: false, unix.FUSE_SUPER_MAGIC: false, unix.V9FS_MAGIC: false, unix.CEPH_SUPER_MAGIC: false, unix.SMB2_SUPER_MAGIC: false,
	} {
		check.Equal(t, isLocal(magic), want, "%#x:", magic)
	}
}

// host-local gives the addresses of the network and of broadcasts if a range names them.
func TestNoContainerGetsTheAddressOfTheNetworkOrOfBroadcasts(t *testing.T) {
	w := newWorld(t, `[[{"subnet":"10.0.0.0/29","rangeStart":"10.0.0.0","rangeEnd":"10.0.0.7","gateway":"10.0.0.2"}]]`)
	w.mustAdd(t, "a", "b", "c", "d", "e")
	check.List(t, w.files(t), []string{"10.0.0.1", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"}, "files of")
	wantCode(t, Status(w.call("")), agentapi.CodeNotAvailable)
	_, err := w.add(t, "f")
	wantCode(t, err, agentapi.CodeExhausted)
	requested := w.call("f")
	requested.Args = "IP=10.0.0.7"
	_, err = Add(t.Context(), requested)
	wantCode(t, err, agentapi.CodeAddressRefused)
}

// Machines may share the directory, such as by NFS.
func TestAMachineFreesNoAddressOfAnother(t *testing.T) {
	w := newWorld(t, four)
	w.mustAdd(t, "a", "b")
	w.write(t, "10.0.0.3", "") // machine "here" has lost power
	w.host, w.boot = "there", "boot-2"
	w.mustAdd(t, "c", "d")
	check.That(t, check.Err(w.add(t, "e")) != nil, "an ADD in a full directory got an address")
	wantCode(t, Status(w.call("")), agentapi.CodeNotAvailable)
	check.OK(t, GC(w.call(""), []agentapi.Attachment{{ContainerID: "c", Interface: "eth0"}}))
	check.List(t, w.files(t), []string{"10.0.0.2", "10.0.0.3", "10.0.0.4"}, "after a full range and GC there: files of")
	w.host, w.boot = "here", "boot-3"
	w.mustAdd(t, "f", "g", "h")
}

// A power loss empties files, or fills them with zeros. Runtimes do not pass GC on, so ADD frees them.
func TestDamagedFilesComeBack(t *testing.T) {
	for _, row := range []struct {
		name, content, boot string
		free                bool
	}{
		{"empty, and the mark is lost too", "", "", true},
		{"empty, of an earlier boot", "", "boot-0", true},
		{"zeros", "\x00\x00\x00\x00", "", true},
		{"emptied in this boot: its container may live", "", "boot-1", false},
		{"whole, by the reference", "reference\r\neth0", "", false},
		{"whole, by an old reference", "reference", "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, four)
			for _, addr := range []string{"10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"} {
				w.write(t, addr, row.content)
				if row.boot != "" {
					check.OK(t, unix.Setxattr(filepath.Join(w.dir, "net", addr), bootAttribute, []byte(row.boot), 0))
				}
			}
			_, err := w.add(t, "new")
			check.That(t, (err == nil) == row.free, "an ADD: %v", err)
		})
	}
}

func TestInTheSameBootNothingIsSwept(t *testing.T) {
	w := newWorld(t, four)
	w.mustAdd(t, "a", "b", "c", "d")
	_, err := w.add(t, "e")
	wantCode(t, err, agentapi.CodeExhausted)
	_, err = w.add(t, "a")
	wantCode(t, err, agentapi.CodeInvalidEnvironment)
	check.Says(t, err, "container a has [10.0.0.2] for eth0 already")
	check.Equal(t, len(w.files(t)), 4, "files after a second ADD:")
}

func TestARefusalNamesItsReasonAndTheRemedy(t *testing.T) {
	for _, row := range []struct {
		name, asks string
		code       uint
		says       string
	}{
		{"held", "10.0.0.2", agentapi.CodeAddressRefused, "reserve 10.0.0.2: container a on here has it; request another address, or end that container"},
		{"the gateway", "10.0.0.1", agentapi.CodeAddressRefused, "10.0.0.1 is subnet's gateway"},
		{"the network", "10.0.0.0", agentapi.CodeAddressRefused, "reserve 10.0.0.0: it is the address of a network"},
		{"in no range", "10.0.0.5", agentapi.CodeAddressRefused, "10.0.0.5 is in no range set, or the second one of its set; request an address of 10.0.0.0-10.0.0.4"},
		{"full", "", agentapi.CodeExhausted, "no IP addresses available in range set: 10.0.0.0-10.0.0.4; 10.0.0.1 is the gateway; delete containers, widen the range, or run GC"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, `[[{"subnet":"10.0.0.0/29","rangeStart":"10.0.0.0","rangeEnd":"10.0.0.4"}]]`)
			w.mustAdd(t, "a", "b")
			c := w.call("c")
			if c.Args = "IP=" + row.asks; row.asks == "" {
				w.mustAdd(t, "d")
				c.Args = ""
			}
			_, err := Add(t.Context(), c)
			wantCode(t, err, row.code)
			check.Says(t, err, row.says)
		})
	}
}

func TestStatusTellsWhatAnADDWouldMeet(t *testing.T) {
	for _, row := range []struct {
		name    string
		prepare func(*testing.T, *world)
		says    string
	}{
		{"one is free", func(t *testing.T, w *world) { w.mustAdd(t, "a", "b", "c") }, ""},
		{"full", func(t *testing.T, w *world) { w.mustAdd(t, "a", "b", "c", "d") }, "range set 0 (10.0.0.2-10.0.0.5) has none"},
		{"the gateway is no address", func(t *testing.T, w *world) {
			w.ipam = `"ranges":[[{"subnet":"10.0.0.0/29","rangeStart":"10.0.0.1","rangeEnd":"10.0.0.2"}]]`
			w.mustAdd(t, "a")
		}, "has none"},
		{"IPv6 has no end", func(t *testing.T, w *world) {
			w.ipam = `"ranges":[[{"subnet":"2001:db8::/32"}]]`
			w.mustAdd(t, "a")
		}, ""},
		{"the directory is a file", func(t *testing.T, w *world) {
			check.OK(t, os.WriteFile(filepath.Join(w.dir, "net"), nil, 0o600))
		}, "not a directory"},
		{"a data file cannot be read", func(t *testing.T, w *world) {
			check.OK(t, errors.Join(os.MkdirAll(filepath.Join(w.dir, "net"), 0o755), os.Symlink("10.0.0.2", filepath.Join(w.dir, "net", "10.0.0.2"))))
		}, "read the data file of 10.0.0.2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, four)
			row.prepare(t, w)
			err := Status(w.call(""))
			if row.says == "" {
				check.That(t, err == nil, "%v", err)
				return
			}
			wantCode(t, err, agentapi.CodeNotAvailable)
			check.Says(t, err, row.says)
		})
	}
}

func TestBadInputIsNamedAndLeavesNothing(t *testing.T) {
	for _, row := range []struct {
		name, ipam string
		code       uint
		says       string
	}{
		{"overlapping sets", `"ranges":[[{"subnet":"10.0.0.0/24"}],[{"subnet":"10.0.0.0/28"}]]`, agentapi.CodeInvalidNetworkConfig, "range set 0 overlaps with 1"},
		{"overlapping ranges", `"ranges":[[{"subnet":"10.0.0.0/24"},{"subnet":"10.0.0.0/28"}]]`, agentapi.CodeInvalidNetworkConfig, "subnets 10.0.0.1-10.0.0.254 and 10.0.0.1-10.0.0.14 overlap"},
		{"end before start", `"ranges":[[{"subnet":"10.0.0.0/24"}],[{"subnet":"10.0.1.0/24","rangeStart":"10.0.1.9","rangeEnd":"10.0.1.8"}]]`, agentapi.CodeInvalidNetworkConfig, `"ipam.ranges[1][0].rangeEnd" is "10.0.1.8", before "rangeStart" "10.0.1.9"`},
		{"start outside", `"subnet":"10.0.0.0/24","rangeStart":"10.0.1.9"`, agentapi.CodeInvalidNetworkConfig, `"ipam.rangeStart" is "10.0.1.9", outside "subnet" "10.0.0.0/24"`},
		{"gateway outside", `"ranges":[[{"subnet":"10.0.0.0/24","gateway":"10.9.0.1"}]]`, agentapi.CodeInvalidNetworkConfig, `is 10.9.0.1, outside "subnet" 10.0.0.0/24`},
		{"start after the last address", `"subnet":"10.0.0.0/24","rangeStart":"10.0.0.255"`, agentapi.CodeInvalidNetworkConfig, `"rangeStart" of range 0 in range set 0 is 10.0.0.255, after "rangeEnd" 10.0.0.254`},
		{"start at the end of all addresses", `"subnet":"255.255.255.252/30","rangeStart":"255.255.255.255","gateway":"255.255.255.255"`, agentapi.CodeInvalidNetworkConfig, `after "rangeEnd" 255.255.255.254`},
		{"no address", `"ranges":[[{"subnet":"10.0.0.0/24","gateway":"10.0.0.256"}]]`, agentapi.CodeInvalidNetworkConfig, `"ipam.ranges[0][0].gateway" is "10.0.0.256": write an address`},
		{"no subnet", `"ranges":[[{"subnet":"10.0.0.0"}]]`, agentapi.CodeInvalidNetworkConfig, `"ipam.ranges[0][0].subnet" is "10.0.0.0": write a subnet`},
		{"host bits", `"ranges":[[{"subnet":"10.0.0.7/24"}]]`, agentapi.CodeInvalidNetworkConfig, `write "10.0.0.0/24"`},
		{"too small", `"ranges":[[{"subnet":"10.0.0.0/31"}]]`, agentapi.CodeInvalidNetworkConfig, "the largest prefix length is 30"},
		{"an empty set", `"ranges":[[]]`, agentapi.CodeInvalidNetworkConfig, `"ipam.ranges[0]" is empty`},
		{"resolvConf", `"subnet":"10.0.0.0/24","resolvConf":"/none"`, agentapi.CodeIOFailure, `read "ipam.resolvConf": open /none`},
		{"mode", `"subnet":"10.0.0.0/24","conflictDetection":{"mode":"on"}`, agentapi.CodeInvalidNetworkConfig, `"ipam.conflictDetection.mode" holds "on": write "Enforce", "Observe" or "Off"`},
		{"probes", `"subnet":"10.0.0.0/24","conflictDetection":{"probes":2}`, agentapi.CodeInvalidNetworkConfig, `probes" holds "2": write a number from 3 to 10`},
		{"interval", `"subnet":"10.0.0.0/24","conflictDetection":{"interval":"1ms"}`, agentapi.CodeInvalidNetworkConfig, `interval" holds "1ms": write a duration from 10ms to 2s`},
		{"ignoreMACs", `"subnet":"10.0.0.0/24","conflictDetection":{"ignoreMACs":["x"]}`, agentapi.CodeInvalidNetworkConfig, `ignoreMACs" holds "x"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, "")
			w.ipam = row.ipam
			_, err := w.add(t, "a")
			wantCode(t, err, row.code)
			check.Says(t, err, row.says)
			check.None(t, check.Value(os.ReadDir(w.dir))(t), "left")
		})
	}
}

// DEL must succeed whatever became of the ranges.
func TestDELNeedsNoValidRanges(t *testing.T) {
	w := newWorld(t, four)
	w.mustAdd(t, "a")
	w.ipam = `"ranges":[[{"subnet":"nonsense"}]]`
	for range 2 {
		check.OK(t, Del(w.call("a")))
	}
	check.None(t, w.files(t), "files of")
}

func TestTheMarkOfTheBootIsAnAttribute(t *testing.T) {
	w := newWorld(t, four)
	w.mustAdd(t, "a")
	path := filepath.Join(w.dir, "net", "10.0.0.2")
	if got := markOf(path, bootAttribute); got != "boot-1" {
		check.OK(t, unix.Setxattr(path, bootAttribute, []byte("x"), 0)) // the file system has attributes
		t.Errorf("got %q", got)
	}
	text, err := os.ReadFile(path)
	check.That(t, err == nil && string(text) == "a\r\neth0", "content %q, %v", text, err)
	check.Is(t, check.Err(os.Stat(filepath.Join(w.dir, "net", "conflicts.json"))), fs.ErrNotExist, "a memory without a conflict:")
}

// FuzzDetection: a detection within its bounds, or a CNI error.
func FuzzDetection(f *testing.F) {
	for _, block := range []string{
		`null`, `{}`, `{"mode":"Enforce"}`, `{"mode":"off"}`, `{"probes":3}`, `{"probes":1e1}`, `{"probes":11}`, `{"interval":"50ms"}`,
		`{"interval":"1ns"}`, `{"interval":""}`, `{"ignoreMACs":["02:00:00:00:00:01","0200.0000.0001"]}`, `{"ignoreMACs":["02:00:00:00:00:00:00:01"]}`,
	} {
		f.Add([]byte(`{"ipam":{"conflictDetection":` + block + `}}`))
	}
	f.Fuzz(func(t *testing.T, stdin []byte) {
		d, err := parseDetection(stdin)
		if err != nil {
			e, ok := errors.AsType[*agentapi.Error](err)
			check.That(t, ok && e.Code == agentapi.CodeInvalidNetworkConfig, "%s: %T %v", stdin, err, err)
			return
		}
		p := d.params
		if d.mode != enforce && d.mode != observe && d.mode != off ||
			p.Rounds < leastRounds || p.Rounds > mostRounds || p.Interval < leastInterval || p.Interval > mostInterval {
			t.Errorf("%s: %+v", stdin, d)
		}
		for _, mac := range p.Ignore {
			check.That(t, len(mac) == 6, "%s: ignores %q", stdin, mac)
		}
	})
}
