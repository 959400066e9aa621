package journal

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

const (
	entriesDir    = "journal"
	lockFile      = "agent.lock"
	rotationsFile = "rotations.json"
)

// Journal is the open journal of one agent. Safe for concurrent use.
type Journal struct {
	dir     string
	lock    *os.File
	corrupt []*CorruptError

	// writers order the writes to one file; files are spread over them, so
	// that those of several pods run side by side.
	writers [16]sync.Mutex
	seed    maphash.Seed
	spares  spares

	mu      sync.RWMutex
	entries map[key]*Entry
	// sorted are the entries in the order of All. It is replaced, never changed,
	// and so is an entry: an ADD, which writes several, copies none of the others.
	sorted []*Entry
	// extended counts the values that were added to a file.
	extended map[key]int
	// unnamed are the files, open still, of entries that began in a spare one.
	unnamed   map[key]*os.File
	rotations map[string]netip.Addr
	identity  Identity
	pairs     []Pair
}

type key struct{ containerID, ifname string }

// Open locks the agent's directory (agent.lock) and reads the entries
// (journal/), the rotations (rotations.json) and the node's identity
// (identity.json) below it. It returns ErrLocked while another process has it
// open. Corrupt files are set aside and do not fail Open; see Corrupt.
func Open(dir string) (*Journal, error) {
	if err := os.MkdirAll(filepath.Join(dir, entriesDir), 0o700); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	lock, err := acquire(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &Journal{dir: dir, lock: lock, seed: maphash.MakeSeed(), entries: map[key]*Entry{}, extended: map[key]int{}, unnamed: map[key]*os.File{}}
	if err := errors.Join(j.readEntries(), j.readRotations(), j.readIdentity(), j.readPairs()); err != nil {
		return nil, errors.Join(fmt.Errorf("open journal: %w", err), lock.Close())
	}
	return j, nil
}

// Close gives the lock up. The journal must not be used afterwards.
func (j *Journal) Close() error { return errors.Join(j.nameAll(), j.spares.close(), j.lock.Close()) }

// Prepare makes the files ahead that the next entries begin in, which takes
// longer than to write them, and names those that entries have begun in. What
// it has not made, Put makes.
func (j *Journal) Prepare() error {
	if err := j.nameAll(); err != nil {
		return fmt.Errorf("name files of the journal: %w", err)
	}
	if err := j.spares.fill(filepath.Join(j.dir, entriesDir)); err != nil {
		return fmt.Errorf("make files for the journal ahead: %w", err)
	}
	return nil
}

// Corrupt returns the files that Open set aside.
func (j *Journal) Corrupt() []*CorruptError { return j.corrupt }

// Put writes an entry, in place of an older one of the same container and
// interface. It outlives this process when Put returns without an error. It
// does not wait for the disk: after the end of the machine its pods have ended
// and their leases are another session's, with an entry or without.
func (j *Journal) Put(e Entry) error {
	k := key{e.ContainerID, e.Interface}
	path, err := j.path(k)
	if err != nil {
		return err
	}
	e.Addresses = slices.Clone(e.Addresses)
	// As it will be read: beside entries without a monotonic reading one with it has no
	// order once the clock was set, and is not found again.
	e.Created = e.Created.Round(0)

	w := j.writer(path)
	w.Lock()
	defer w.Unlock()
	if err := j.write(path, k, e); err != nil {
		return fmt.Errorf("journal %s of container %s: %w", e.Interface, e.ContainerID, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.remember(k, &e)
	return nil
}

// maxExtended is how many values are added to a file before it begins anew.
const maxExtended = 16

// write writes an entry to its file, which the caller has locked.
func (j *Journal) write(path string, k key, e Entry) error {
	j.mu.RLock()
	_, exists := j.entries[k]
	n := j.extended[k]
	unnamed := j.unnamed[k]
	j.mu.RUnlock()
	var err error
	switch n++; {
	case unnamed != nil && n <= maxExtended:
		err = add(unnamed, e)
	case exists && n <= maxExtended:
		err = extend(path, e)
	default:
		n = 0
		err = j.anew(path, k, e)
	}
	if err != nil {
		n = maxExtended // what it may have left is replaced by the next
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.extended[k] = n
	return err
}

// anew begins the file of an entry, or begins it again.
func (j *Journal) anew(path string, k key, e Entry) error {
	if err := j.name(k, path); err != nil {
		return err
	}
	if _, exists := j.Get(k.containerID, k.ifname); !exists {
		if spare := j.spares.take(); spare != nil {
			return j.begin(k, spare, e)
		}
	}
	return replace(path, e)
}

// Remove forgets an entry. An entry that does not exist is success.
func (j *Journal) Remove(containerID, ifname string) error {
	k := key{containerID, ifname}
	path, err := j.path(k)
	if err != nil {
		return err
	}
	w := j.writer(path)
	w.Lock()
	defer w.Unlock()
	if err := j.removeFile(k, path); err != nil {
		return fmt.Errorf("journal: forget %s of container %s: %w", ifname, containerID, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.forget(k)
	delete(j.extended, k)
	return nil
}

// removeFile removes an entry's file, whether or not it has its name.
func (j *Journal) removeFile(k key, path string) error {
	if err := j.name(k, path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Get returns an entry. The caller must not change its Addresses in place.
func (j *Journal) Get(containerID, ifname string) (Entry, bool) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	if e, ok := j.entries[key{containerID, ifname}]; ok {
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

// OfPod returns the entries of a pod's interfaces, oldest first. The caller must
// not change them.
func (j *Journal) OfPod(podUID string) []*Entry {
	var found []*Entry
	for _, e := range j.All() {
		if e.PodUID == podUID {
			found = append(found, e)
		}
	}
	return found
}

// remember and forget keep the entries and their order; the caller holds mu, or
// nobody else has the journal yet.
func (j *Journal) remember(k key, e *Entry) {
	others := j.without(k)
	at, _ := slices.BinarySearchFunc(others, e, byAge)
	j.sorted = slices.Insert(others, at, e)
	j.entries[k] = e
}

func (j *Journal) forget(k key) {
	j.sorted = j.without(k)
	delete(j.entries, k)
}

// without copies the others in their order, with room for one more.
func (j *Journal) without(k key) []*Entry {
	others := make([]*Entry, 0, len(j.sorted)+1)
	e, ok := j.entries[k]
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

// Rotations returns for each pool the address that this node handed out last.
func (j *Journal) Rotations() map[string]netip.Addr {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return maps.Clone(j.rotations)
}

// PutRotations writes what Rotations returns, also after a restart.
func (j *Journal) PutRotations(last map[string]netip.Addr) error {
	last = maps.Clone(last)
	path := filepath.Join(j.dir, rotationsFile)
	w := j.writer(path)
	w.Lock()
	defer w.Unlock()
	if err := store(path, last); err != nil {
		return fmt.Errorf("journal rotations: %w", err)
	}
	j.mu.Lock()
	j.rotations = last
	j.mu.Unlock()
	return nil
}

// path names the file of an entry. A container ID holds no "@" (CNI spec,
// section 2), so the name tells both parts.
func (j *Journal) path(k key) (string, error) {
	if !validName(k.containerID) || strings.Contains(k.containerID, "@") {
		return "", fmt.Errorf("journal: %q is no container ID", k.containerID)
	}
	if !validName(k.ifname) {
		return "", fmt.Errorf("journal: %q is no interface name", k.ifname)
	}
	return filepath.Join(j.dir, entriesDir, k.containerID+"@"+k.ifname+entrySuffix), nil
}

// validName refuses what would leave the directory or be taken for a temporary file.
func validName(s string) bool {
	return s != "" && !strings.HasPrefix(s, ".") && !strings.ContainsAny(s, "/\x00")
}

func (j *Journal) writer(path string) *sync.Mutex {
	return &j.writers[maphash.String(j.seed, path)%uint64(len(j.writers))]
}
