// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// HostLocal asks an agent for the files of host-local on its node. With a mark it also has the agent write files of its own.
type HostLocal struct {
	// DataDir is the directory of the host in which host-local keeps a directory for each network.
	DataDir  string   `json:"dataDir"`
	Networks []string `json:"networks"`
	// Mark is what files of a move contain. They are no files of host-local, which takes their addresses as given.
	Mark string `json:"mark"`
	// Write: the addresses of Ends without a file get one with the mark, and other files with the mark are removed.
	Write bool `json:"write,omitempty"`
	// Ends are the first and the last address of ranges, in turn.
	Ends []netip.Addr `json:"ends,omitempty"`
}

// HostLocalFiles is the answer: the files of host-local, and the number of those with the mark.
type HostLocalFiles struct {
	Files  []HostLocalFile `json:"files,omitempty"`
	Marked int             `json:"marked,omitempty"`
}

// HostLocalFile is one file: host-local has given an address.
type HostLocalFile struct {
	Network   string     `json:"network"`
	Address   netip.Addr `json:"address"`
	Container string     `json:"container,omitempty"`
	Interface string     `json:"interface,omitempty"`
	// Old: it was written before the node booted.
	Old bool `json:"old,omitempty"`
	// Problem is why it cannot be read, or empty.
	Problem string `json:"problem,omitempty"`
}

// longestInterface is the length of the longest name of an interface.
const longestInterface = 15

// mostContent is the greatest length of a file that is read.
const mostContent = 1024

// temporary is the prefix of the file whose links are the files of a move. A crash may leave one.
const temporary = ".fenceline-move."

// mostLinks is how many links of one temporary file are made: ext4 allows 65000.
const mostLinks = 30000

// Answer reads and writes the files. Booted is when the node did. It can be repeated, and killed at any point: each file of
// a move appears whole, and never in the place of another one.
func (h HostLocal) Answer(booted time.Time) (files HostLocalFiles, err error) {
	if h.Write && h.Mark == "" {
		return files, errors.New("write files of a move: it has no mark")
	}
	for _, network := range h.Networks {
		if network == "" || network != filepath.Base(network) || strings.Trim(network, ".") == "" {
			return files, fmt.Errorf("network %q is no name of a directory", network)
		}
		if h.Write {
			if err := h.write(filepath.Join(h.DataDir, network)); err != nil {
				return files, fmt.Errorf("write the files of a move for network %s: %w", network, err)
			}
		}
		err := h.each(filepath.Join(h.DataDir, network), func(dir *os.Root, addr netip.Addr, text string, problem error) error {
			if text == h.Mark && problem == nil {
				files.Marked++
				return nil
			}
			f := HostLocalFile{Network: network, Address: addr}
			if problem != nil {
				f.Problem = problem.Error()
			}
			f.Container, f.Interface, _ = strings.Cut(strings.TrimSpace(text), "\n")
			f.Container = strings.TrimSpace(f.Container)
			if len(f.Interface) > longestInterface || strings.ContainsAny(f.Interface, "\r\n") {
				f.Interface, f.Problem = "", "its second line is no name of an interface"
			}
			if info, err := dir.Lstat(addr.String()); err == nil {
				f.Old = info.ModTime().Before(booted)
			}
			files.Files = append(files.Files, f)
			return nil
		})
		if err != nil {
			return files, fmt.Errorf("read the files of host-local for network %s: %w", network, err)
		}
	}
	return files, nil
}

// each calls do for each file of an address. A directory that does not exist has none.
func (h HostLocal) each(path string, do func(dir *os.Root, addr netip.Addr, text string, problem error) error) error {
	dir, err := os.OpenRoot(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := namesIn(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		addr, err := netip.ParseAddr(name)
		if err != nil || addr.String() != name {
			continue // lock, last_reserved_ip.0
		}
		text, err := contentOf(dir, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a DEL meanwhile
		}
		if err := do(dir, addr, text, err); err != nil {
			return err
		}
	}
	return nil
}

func namesIn(dir *os.Root) ([]string, error) {
	all, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer all.Close()
	names, err := all.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func contentOf(dir *os.Root, name string) (string, error) {
	info, err := dir.Lstat(name)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("it is no regular file")
	}
	file, err := dir.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, mostContent+1))
	if err == nil && len(text) > mostContent {
		return "", errors.New("it is too long")
	}
	return string(text), err
}

// write makes the files of a move in a directory those that are wanted.
func (h HostLocal) write(path string) error {
	if len(h.Ends)%2 != 0 {
		return errors.New("a range has no end")
	}
	wanted := map[netip.Addr]bool{}
	for ends := range slices.Chunk(h.Ends, 2) {
		for a := ends[0]; a.IsValid() && !ends[1].Less(a); a = a.Next() {
			wanted[a] = true
		}
	}
	if len(wanted) > 0 {
		if err := os.MkdirAll(path, 0o755); err != nil { // as host-local makes it
			return err
		}
	}
	err := h.each(path, func(dir *os.Root, addr netip.Addr, text string, problem error) error {
		isMarked := problem == nil && text == h.Mark
		if isMarked && !wanted[addr] {
			return dir.Remove(addr.String()) // host-local neither changes nor removes it
		}
		delete(wanted, addr)
		return nil
	})
	if err != nil {
		return err
	}
	dir, err := os.OpenRoot(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := sweep(dir); err != nil {
		return err
	}
	if err := h.link(dir, wanted); err != nil {
		return errors.Join(err, sweep(dir))
	}
	if err := sweep(dir); err != nil {
		return err
	}
	if err := synced(dir); err != nil { // a file that came back after a crash would be nobody's
		return err
	}
	if len(h.Ends) == 0 {
		_ = os.Remove(path) // fails unless it is empty, so that host-local has not used it
	}
	return nil
}

// link gives each address a file, unless it has one by now.
func (h HostLocal) link(dir *os.Root, wanted map[netip.Addr]bool) error {
	name, links := "", mostLinks
	for addr := range wanted {
		if links == mostLinks {
			name, links = fmt.Sprintf("%s%d", temporary, len(wanted)), 0
			if err := sweep(dir); err != nil {
				return err
			}
			if err := h.temporary(dir, name); err != nil {
				return err
			}
		}
		if err := dir.Link(name, addr.String()); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		links++
	}
	return nil
}

// temporary writes a file with the mark.
func (h HostLocal) temporary(dir *os.Root, name string) error {
	file, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(h.Mark)
	return errors.Join(err, file.Sync(), file.Close())
}

// sweep removes temporary files. Their links stay.
func sweep(dir *os.Root) error {
	names, err := namesIn(dir)
	for _, name := range names {
		if strings.HasPrefix(name, temporary) {
			err = errors.Join(err, dir.Remove(name))
		}
	}
	return err
}

// synced waits until the names in a directory are on its disk.
func synced(dir *os.Root) error {
	file, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
