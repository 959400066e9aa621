// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
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

// Journal is the open journal of one agent. Safe for concurrent use.
type Journal struct {
	Identity  *Document[Identity]
	Rotations *Document[Rotations]
	Pairs     *Document[[]Pair]

	dir     string
	lock    *os.File
	corrupt []*CorruptError
	// ensuring guards lock, and restored, the number of files written again since the last Ensure.
	ensuring sync.Mutex
	restored int

	// writers serialise the writes to one file. Files are spread over them by a hash, so that
	// the files of several pods are written at the same time.
	writers [16]sync.Mutex
	seed    maphash.Seed

	mu      sync.RWMutex
	entries map[agentapi.Attachment]*Entry
	// sorted holds the entries in the order of All. The slice and its entries are replaced, never
	// changed: readers keep a consistent view, and an ADD copies no entry of another pod.
	sorted []*Entry
}

// Open locks the agent's directory (agent.lock) and reads the entries (journal/), the rotations
// (rotations.json), the node's identity (identity.json) and the pairs (pairs.json) below it. It
// returns ErrLocked while another process holds the lock. Corrupt files are renamed and do not fail
// Open; see Corrupt.
func Open(dir string) (*Journal, error) {
	if err := os.MkdirAll(filepath.Join(dir, entriesDir), 0o700); err != nil {
		return nil, fmt.Errorf("open the journal in %s: %w", dir, err)
	}
	lock, err := acquire(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("open the journal in %s: %w", dir, err)
	}
	j := &Journal{dir: dir, lock: lock, seed: maphash.MakeSeed(), entries: map[agentapi.Attachment]*Entry{}}
	if err := j.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("open the journal in %s: %w", dir, err), lock.Close())
	}
	return j, nil
}

// read reads the entries and the documents. Without their files the documents begin anew: the agent
// asks the API server for the identity, and the next ADDs record the pairs again.
func (j *Journal) read() error {
	err := errors.Join(j.readEntries(), sweep(j.dir))
	var errs [3]error
	j.Identity, errs[0] = readDocument[Identity](j, identityFile, "the identity of the node")
	j.Rotations, errs[1] = readDocument[Rotations](j, rotationsFile, "the rotations of the pools")
	j.Pairs, errs[2] = readDocument[[]Pair](j, pairsFile, "the pairs of pool and parent")
	return errors.Join(append(errs[:], err)...)
}

// Close releases the lock. The journal must not be used afterwards.
func (j *Journal) Close() error { return j.lock.Close() }

// Corrupt returns the files that Open renamed because it could not read them.
func (j *Journal) Corrupt() []*CorruptError { return j.corrupt }

// Put writes an entry. It replaces an older entry of the same container and interface. Once Put has
// returned without an error, the entry survives the end of this process.
//
// Put does not wait for the disk, so a loss of power may take the entry. The pod of the entry ends
// with the machine, and its leases then belong to an earlier session, with or without an entry.
func (j *Journal) Put(e Entry) error {
	path, err := j.path(e.Attachment())
	if err != nil {
		return err
	}
	e.Addresses = slices.Clone(e.Addresses)
	// Files hold no monotonic clock reading. Without this, entries from before a restart and entries
	// of this process have no common order after someone has set the clock.
	e.Created = e.Created.Round(0)
	err = j.put(path, &e)
	if errors.Is(err, fs.ErrNotExist) { // somebody has emptied the directory
		err = j.putAgain(path, &e)
	}
	if err != nil {
		return fmt.Errorf("write the journal entry of %s in container %s: %w", e.Interface, e.ContainerID, err)
	}
	return nil
}

func (j *Journal) put(path string, e *Entry) error {
	w := j.writer(path)
	w.Lock()
	defer w.Unlock()
	if err := replace(path, e); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.remember(e)
	return nil
}

// Remove removes an entry. It succeeds if there is none.
func (j *Journal) Remove(containerID, ifname string) error {
	a := agentapi.Attachment{ContainerID: containerID, Interface: ifname}
	path, err := j.path(a)
	if err != nil {
		return err
	}
	w := j.writer(path)
	w.Lock()
	defer w.Unlock()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the journal entry of %s in container %s: %w", ifname, containerID, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.forget(a)
	return nil
}

// Get returns an entry. The caller must not change its Addresses in place.
func (j *Journal) Get(containerID, ifname string) (Entry, bool) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	if e, ok := j.entries[agentapi.Attachment{ContainerID: containerID, Interface: ifname}]; ok {
		return *e, true
	}
	return Entry{}, false
}

// All returns all entries, oldest first. The caller must not change them.
func (j *Journal) All() []*Entry {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.sorted
}

// OfPod returns the entries of a pod's interfaces, oldest first. The caller must not change them.
func (j *Journal) OfPod(podUID string) []*Entry {
	return slices.DeleteFunc(slices.Clone(j.All()), func(e *Entry) bool { return e.PodUID != podUID })
}

// remember adds or replaces an entry. The caller of remember or forget holds mu, or is Open.
func (j *Journal) remember(e *Entry) {
	others := j.without(e.Attachment())
	at, _ := slices.BinarySearchFunc(others, e, byAge)
	j.sorted = slices.Insert(others, at, e)
	j.entries[e.Attachment()] = e
}

func (j *Journal) forget(a agentapi.Attachment) {
	j.sorted = j.without(a)
	delete(j.entries, a)
}

// without returns a copy of sorted that lacks one entry and has room for one more.
func (j *Journal) without(a agentapi.Attachment) []*Entry {
	others := make([]*Entry, 0, len(j.sorted)+1)
	e, ok := j.entries[a]
	if !ok {
		return append(others, j.sorted...)
	}
	at, _ := slices.BinarySearchFunc(j.sorted, e, byAge)
	return append(append(others, j.sorted[:at]...), j.sorted[at+1:]...)
}

func byAge(a, b *Entry) int {
	return cmp.Or(a.Created.Compare(b.Created),
		strings.Compare(a.ContainerID, b.ContainerID), strings.Compare(a.Interface, b.Interface))
}

// Erase removes the files of the journal, for uninstalling. The lock file and files of others in
// the directory stay. Only Close may be called afterwards.
func (j *Journal) Erase() error {
	for _, name := range []string{entriesDir, rotationsFile, pairsFile, identityFile} {
		if err := os.RemoveAll(filepath.Join(j.dir, name)); err != nil {
			return fmt.Errorf("erase the journal in %s: %w", j.dir, err)
		}
	}
	return nil
}

// path returns the path of an entry's file. A container ID holds no "@" (CNI specification,
// section 2), so the name determines both parts.
func (j *Journal) path(a agentapi.Attachment) (string, error) {
	if !validName(a.ContainerID) || strings.Contains(a.ContainerID, "@") {
		return "", fmt.Errorf("find the journal entry of container %q: this is not a valid container ID", a.ContainerID)
	}
	if !validName(a.Interface) {
		return "", fmt.Errorf("find the journal entry of interface %q: this is not a valid interface name", a.Interface)
	}
	return filepath.Join(j.dir, entriesDir, a.ContainerID+"@"+a.Interface+entrySuffix), nil
}

// validName reports whether a file of that name is in the directory itself and not temporary.
func validName(s string) bool {
	return s != "" && !strings.HasPrefix(s, ".") && !strings.ContainsAny(s, "/\x00")
}

func (j *Journal) writer(path string) *sync.Mutex {
	return &j.writers[maphash.String(j.seed, path)%uint64(len(j.writers))]
}
