// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fenceline/fenceline/cni/agentapi"
)

const (
	entriesDir = "journal"
	lockFile   = "agent.lock"
)

// Disk keeps the entries in files. Only one call at a time is for a path.
type Disk interface {
	// Replace writes an entry to its file, without waiting for the disk.
	Replace(path string, e *Entry) error
	// Remove removes a file. It succeeds if there is none.
	Remove(path string) error
}

// Table has the attachments of this node: the entries of the journal on disk, the calls under way, and
// what recovery has to resume. Safe for concurrent use.
type Table struct {
	Identity  *Document[Identity]
	Rotations *Document[Rotations]
	Pairs     *Document[[]Pair]
	// Services are the service CIDRs of the cluster.
	Services *Document[[]netip.Prefix]

	Calls Calls
	// Pending are the attachments that recovery has to resume.
	Pending *Pending
	// Disk is the directory of the journal.
	Disk Disk

	dir     string
	lock    *os.File
	corrupt []*CorruptError
	// ensuring guards lock, and restored, the number of files written again since the last Ensure.
	ensuring sync.Mutex
	restored int

	// session is the present life of the node. Begin sets it.
	session string

	// mu guards all below.
	mu      sync.RWMutex
	entries map[agentapi.Attachment]*Entry
	// at has the entries by their addresses, oldest first.
	at map[place][]*Entry
	// sorted holds the entries in the order of All. The slice and its entries are replaced, never
	// changed: readers keep a consistent view, and an ADD copies no entry of another pod.
	sorted []*Entry
}

// Open locks the agent's directory (agent.lock) and reads the entries (journal/), the rotations
// (rotations.json), the node's identity (identity.json), the pairs (pairs.json) and the service CIDRs
// (services.json) below it. It returns ErrLocked while another process holds the lock. Corrupt files are
// renamed and do not fail Open; see Corrupt.
func Open(dir string) (*Table, error) {
	if err := os.MkdirAll(filepath.Join(dir, entriesDir), 0o700); err != nil {
		return nil, fmt.Errorf("open the journal in %s: %w", dir, err)
	}
	lock, err := acquire(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("open the journal in %s: %w", dir, err)
	}
	t := &Table{
		Calls: Calls{locks: map[any]*keyLock{}, adds: map[agentapi.Attachment]bool{}}, Pending: NewPending(), Disk: files{},
		dir: dir, lock: lock, entries: map[agentapi.Attachment]*Entry{}, at: map[place][]*Entry{},
	}
	// Without their files the documents begin anew: the agent asks the API server for the identity, and
	// the next ADDs record the pairs again.
	var errs [4]error
	t.Identity, errs[0] = readDocument[Identity](t, identityFile, "the identity of the node")
	t.Rotations, errs[1] = readDocument[Rotations](t, rotationsFile, "the rotations of the pools")
	t.Pairs, errs[2] = readDocument[[]Pair](t, pairsFile, "the pairs of pool and parent")
	t.Services, errs[3] = readDocument[[]netip.Prefix](t, servicesFile, "the service CIDRs")
	if err := errors.Join(t.readEntries(), sweep(dir), errs[0], errs[1], errs[2], errs[3]); err != nil {
		return nil, errors.Join(fmt.Errorf("open the journal in %s: %w", dir, err), lock.Close())
	}
	return t, nil
}

// Begin tells the table the present life of the node, before any call: Bound, Holder and MAC only know
// entries of it.
func (t *Table) Begin(session string) { t.session = session }

// Close releases the lock. The table must not be used afterwards.
func (t *Table) Close() error { return t.lock.Close() }

// Corrupt returns the files that Open renamed because it could not read them.
func (t *Table) Corrupt() []*CorruptError { return t.corrupt }

// Put writes an entry. It replaces an older entry of the same container and interface. Once Put has
// returned without an error, the entry survives the end of this process.
//
// Put does not wait for the disk, so a loss of power may take the entry. The pod of the entry ends
// with the machine, and its leases then belong to an earlier session, with or without an entry.
func (t *Table) Put(e Entry) error {
	path, err := t.path(e.Attachment())
	if err != nil {
		return err
	}
	e.Addresses = slices.Clone(e.Addresses)
	// Files hold no monotonic clock reading. Without this, entries from before a restart and entries
	// of this process have no common order after someone has set the clock.
	e.Created = e.Created.Round(0)
	err = t.put(path, &e)
	if errors.Is(err, fs.ErrNotExist) { // somebody has emptied the directory
		err = t.putAgain(path, &e)
	}
	if err != nil {
		return fmt.Errorf("write the journal entry of %s in container %s: %w", e.Interface, e.ContainerID, err)
	}
	return nil
}

// Take marks an entry as Taken, if it is there. The caller need not have locked the attachment.
func (t *Table) Take(a agentapi.Attachment) error {
	path, err := t.path(a)
	if err != nil {
		return err
	}
	defer t.Calls.wait(file(path))()
	e, ok := t.Get(a.ContainerID, a.Interface)
	if !ok || e.Taken {
		return nil
	}
	e.Taken = true
	if err := keep(t, path, &e); err != nil {
		return fmt.Errorf("record that the addresses of %s in container %s were taken: %w", e.Interface, e.ContainerID, err)
	}
	return nil
}

func (t *Table) put(path string, e *Entry) error {
	defer t.Calls.wait(file(path))()
	if present, ok := t.Get(e.ContainerID, e.Interface); ok && present.Slot == e.Slot {
		e.Taken = e.Taken || present.Taken // the writer may have read the entry before
	}
	return keep(t, path, e)
}

// keep writes an entry and remembers it. The caller has locked its file.
func keep(t *Table, path string, e *Entry) error {
	if err := t.Disk.Replace(path, e); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remember(e)
	return nil
}

// Remove removes an entry. It succeeds if there is none.
func (t *Table) Remove(containerID, ifname string) error {
	a := agentapi.Attachment{ContainerID: containerID, Interface: ifname}
	path, err := t.path(a)
	if err != nil {
		return err
	}
	defer t.Calls.wait(file(path))()
	if err := t.Disk.Remove(path); err != nil {
		return fmt.Errorf("remove the journal entry of %s in container %s: %w", ifname, containerID, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(a)
	return nil
}

// Get returns an entry. The caller must not change its Addresses in place.
func (t *Table) Get(containerID, ifname string) (Entry, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if e, ok := t.entries[agentapi.Attachment{ContainerID: containerID, Interface: ifname}]; ok {
		return *e, true
	}
	return Entry{}, false
}

// All returns all entries, oldest first. The caller must not change them.
func (t *Table) All() []*Entry {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.sorted
}

// OfPod returns the entries of a pod's interfaces, oldest first. The caller must not change them.
func (t *Table) OfPod(podUID string) []*Entry {
	return slices.DeleteFunc(slices.Clone(t.All()), func(e *Entry) bool { return e.PodUID != podUID })
}

// remember adds or replaces an entry. The caller of remember or forget holds mu, or is Open.
func (t *Table) remember(e *Entry) {
	t.forget(e.Attachment())
	t.entries[e.Attachment()] = e
	t.sorted = inserted(t.sorted, e)
	for _, address := range e.Addresses {
		p := place{e.ParentIndex, address.Addr}
		t.at[p] = inserted(t.at[p], e)
	}
}

func (t *Table) forget(a agentapi.Attachment) {
	e, ok := t.entries[a]
	if !ok {
		return
	}
	delete(t.entries, a)
	t.sorted = without(t.sorted, e)
	for _, address := range e.Addresses {
		p := place{e.ParentIndex, address.Addr}
		if t.at[p] = without(t.at[p], e); len(t.at[p]) == 0 {
			delete(t.at, p)
		}
	}
}

// inserted returns a copy of entries by age, with one more.
func inserted(entries []*Entry, e *Entry) []*Entry {
	at, _ := slices.BinarySearchFunc(entries, e, byAge)
	return slices.Concat(entries[:at], []*Entry{e}, entries[at:])
}

// without returns a copy of entries by age that lacks one of them.
func without(entries []*Entry, e *Entry) []*Entry {
	at, _ := slices.BinarySearchFunc(entries, e, byAge)
	return slices.Concat(entries[:at], entries[at+1:])
}

func byAge(a, b *Entry) int {
	return cmp.Or(a.Created.Compare(b.Created),
		strings.Compare(a.ContainerID, b.ContainerID), strings.Compare(a.Interface, b.Interface))
}

// Erase removes the files of the journal, for uninstalling. The lock file and files of others in
// the directory stay. Only Close may be called afterwards.
func (t *Table) Erase() error {
	for _, name := range []string{entriesDir, rotationsFile, pairsFile, identityFile, servicesFile} {
		if err := os.RemoveAll(filepath.Join(t.dir, name)); err != nil {
			return fmt.Errorf("erase the journal in %s: %w", t.dir, err)
		}
	}
	return nil
}

// path returns the path of an entry's file. A container ID holds no "@" (CNI specification,
// section 2), so the name determines both parts.
func (t *Table) path(a agentapi.Attachment) (string, error) {
	if !validName(a.ContainerID) || strings.Contains(a.ContainerID, "@") {
		return "", fmt.Errorf("find the journal entry of container %q: this is not a valid container ID", a.ContainerID)
	}
	if !validName(a.Interface) {
		return "", fmt.Errorf("find the journal entry of interface %q: this is not a valid interface name", a.Interface)
	}
	return filepath.Join(t.dir, entriesDir, a.ContainerID+"@"+a.Interface+entrySuffix), nil
}

// validName reports whether a file of that name is in the directory itself and not temporary.
func validName(s string) bool {
	return s != "" && !strings.HasPrefix(s, ".") && !strings.ContainsAny(s, "/\x00")
}
