// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf/attach"
)

// ProbeMark is the SO_MARK of this node's own probes. The observer reflects them to the parent's
// own children, which would not receive them otherwise, and does not record them as sightings.
const ProbeMark = uint32(observerProbePROBE_MARK)

// Options of Open.
type Options struct {
	// Dir holds the pins. Open creates it if it is missing. It must be on a bpffs that outlives the
	// process.
	Dir string
	// NoTCX keeps guards and observers in filters of a clsact qdisc, as on kernels before 6.6,
	// which have no tcx.
	NoTCX bool
}

// Kernel is the open set of maps and attached programs of this node. Its methods may be called
// concurrently. Only one process at a time may have a directory open.
type Kernel struct {
	dir   pinDir
	code  *code
	noTCX atomic.Bool

	reading sync.Mutex // the ring buffer has one reader

	*tables
	*guards
	*observers
}

// Open creates the maps, or opens the pins of an earlier process. In that case it also replaces the
// programs of every attached link by this version's, with no frame unguarded in between. It looks
// for observers and host links in the calling thread's network namespace.
//
// It returns ErrNotBPFFS if the directory is not on a bpffs, ErrLayout if a map was made by a version
// with another layout.
func Open(o Options) (*Kernel, error) {
	c, err := loadCode()
	if err != nil {
		return nil, err
	}
	k, err := open(o, c)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", o.Dir, err)
	}
	return k, nil
}

// HasTCX reports whether guards and observers are in tcx.
func (k *Kernel) HasTCX() bool { return !k.noTCX.Load() }

func open(o Options, c *code) (_ *Kernel, err error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := checkBPFFS(o.Dir); err != nil {
		return nil, err
	}
	// Kernels before 5.11 count maps against RLIMIT_MEMLOCK.
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("lift the memlock limit: %w", err)
	}
	pinned, err := openMaps(pinDir(o.Dir).maps(), c.maps())
	if err != nil {
		return nil, err
	}
	k := assemble(pinDir(o.Dir), c, typed(pinned))
	k.noTCX.Store(o.NoTCX || !attach.HasTCX())
	defer func() {
		if err != nil {
			k.maps.Close()
		}
	}()
	if err := k.inherit(); err != nil {
		return nil, err
	}
	if err := k.reload(); err != nil {
		return nil, err
	}
	if err := k.tellMACs(); err != nil {
		return nil, err
	}
	return k, nil
}

func assemble(dir pinDir, c *code, m *observerMaps) *Kernel {
	k := &Kernel{dir: dir, code: c, tables: newTables(m)}
	k.guards = &guards{
		dir: dir, code: c, noTCX: &k.noTCX, tables: k.tables,
		stages: &stages{tables: k.tables, staged: map[uint32]stagedGuard{}, unrecorded: map[uint32]bool{}},
		stock:  map[uint32]preparedGuard{}, links: map[uint32]hostLink{},
	}
	k.observers = &observers{dir: dir, code: c, noTCX: &k.noTCX, tables: k.tables}
	k.tables.guardedSlots = k.guards.guarded
	return k
}

// Close closes all file descriptors. Pins stay and programs go on enforcing.
func (k *Kernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closePrograms()
	return k.maps.Close()
}

// closePrograms closes the programs that were loaded ahead or are staged. Filters hold their
// programs. It needs mu.
func (gs *guards) closePrograms() {
	for slot, p := range gs.stock {
		p.programs.Close()
		delete(gs.stock, slot)
	}
	for slot, s := range gs.stages.staged {
		s.programs.Close()
		delete(gs.stages.staged, slot)
	}
	gs.closed = true
}

// Remove detaches every guard and observer, removes all maps and closes k, for an uninstall.
func (k *Kernel) Remove() error {
	staged := k.stages.removeAll()
	k.mu.Lock()
	defer k.mu.Unlock()
	errs := []error{staged, k.removeHostLinks(), k.removePins(), k.maps.Close()}
	k.closePrograms()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove pins under %s: %w", k.dir, err)
	}
	return nil
}

func (k *Kernel) removePins() error {
	pairs, err := k.dir.pairs()
	if err != nil {
		return err
	}
	parents, err := k.dir.observers()
	if err != nil {
		return err
	}
	for _, parent := range parents {
		if err := k.removeObserverFilters(int(parent)); err != nil {
			return err
		}
	}
	for _, pins := range pairs {
		if err := pins.Remove(); err != nil {
			return err
		}
	}
	for _, kind := range []string{guardsDir, observersDir, mapsDir} {
		if err := os.RemoveAll(filepath.Join(string(k.dir), kind)); err != nil {
			return err
		}
	}
	return nil
}

func checkBPFFS(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	if uint32(fs.Type) != unix.BPF_FS_MAGIC {
		return ErrNotBPFFS
	}
	return nil
}
