package journal

import (
	"errors"
	"net/netip"
)

// ErrLocked says that another agent runs in the same directory.
var ErrLocked = errors.New("another agent holds the lock")

// CorruptError names a file that could not be read. It was set aside under
// the name in Kept for people to look at.
type CorruptError struct {
	File, Kept string
	Err        error
}

func (e *CorruptError) Error() string {
	return "journal file " + e.File + " is corrupt, kept as " + e.Kept + ": " + e.Err.Error()
}

// Unwrap returns what is wrong with the file.
func (e *CorruptError) Unwrap() error { return e.Err }

// Journal is the open journal of one agent. Safe for concurrent use.
type Journal struct{}

// Open locks the agent's directory (agent.lock) and reads the entries
// (journal/) and the rotations (rotations.json) below it. It returns
// ErrLocked while another process has it open. Corrupt files are set aside
// and do not fail Open; see Corrupt.
func Open(dir string) (*Journal, error) { return nil, errors.ErrUnsupported }

// Close gives the lock up.
func (j *Journal) Close() error { return errors.ErrUnsupported }

// Corrupt returns the files that Open set aside.
func (j *Journal) Corrupt() []*CorruptError { return nil }

// Put writes an entry, in place of an older one of the same container and
// interface. It is on disk when Put returns.
func (j *Journal) Put(e Entry) error { return errors.ErrUnsupported }

// Remove forgets an entry. An entry that does not exist is success.
func (j *Journal) Remove(containerID, ifname string) error { return errors.ErrUnsupported }

// Get returns an entry. The caller must not change its Addresses.
func (j *Journal) Get(containerID, ifname string) (Entry, bool) { return Entry{}, false }

// All returns all entries, oldest first. The caller must not change their Addresses.
func (j *Journal) All() []Entry { return nil }

// Rotations returns for each pool the address that this node handed out last.
func (j *Journal) Rotations() map[string]netip.Addr { return nil }

// PutRotations writes what Rotations returns after a restart.
func (j *Journal) PutRotations(last map[string]netip.Addr) error { return errors.ErrUnsupported }
