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
)

// ProbeMark is the SO_MARK of this node's own probes: the observer sends them back to the parent's own children,
// which would not hear them otherwise, and counts them as nobody's. Keep in sync with probe.h.
const ProbeMark uint32 = 0x464c5031

// Options say where the kernel's part lives.
type Options struct {
	// Dir holds the pins. It is created when missing and must be on a bpffs, which must outlive the process.
	Dir string
	// NoTCX leaves guards and observers on a clsact qdisc, as on kernels before 6.6, which have no tcx.
	NoTCX bool
}

// Kernel is the open set of maps and attached programs of this node. Its methods may be called concurrently, but
// only one process at a time may have a directory open: the kernel orders frames, not agents.
type Kernel struct {
	dir  pinDir
	maps *observerMaps
	code *code

	reading sync.Mutex // the ring buffer has one reader
	// guards order what is done to the guard of one slot, which may wait for the kernel. They are taken before mu.
	guards slotLocks
	noTCX  atomic.Bool

	mu     sync.Mutex // writes to maps of user space, to the pins of observers, and what follows
	staged map[uint32]stagedGuard
	stock  map[uint32]preparedGuard
	// untold are the slots that were in use before this process, were killed, or have lost their stage, until they are
	// detached: it may be that nothing else tells of them.
	untold map[uint32]bool
	closed bool
}

// Open creates the maps, or takes up the pins of a process before: then it also puts this version's programs into
// every living link, without a frame unguarded, and carries the maps over where their layout has changed.
//
// It returns ErrNotBPFFS when the directory would not keep a pin, ErrSchema when a map cannot be carried over.
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
	k := &Kernel{
		dir: pinDir(o.Dir), code: c,
		staged: map[uint32]stagedGuard{}, stock: map[uint32]preparedGuard{}, untold: map[uint32]bool{},
	}
	k.noTCX.Store(o.NoTCX)
	set, err := openMaps(k.dir, c.maps())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			set.close()
		}
	}()
	if err := set.carry(); err != nil {
		return nil, err
	}
	k.maps = set.typed()
	if err := k.inherit(); err != nil {
		return nil, err
	}
	if err := k.reload(); err != nil {
		return nil, err
	}
	// The old programs have raised the old maxima until this moment.
	if err := set.finish(k); err != nil {
		return nil, err
	}
	if err := k.tellMACs(); err != nil {
		return nil, err
	}
	return k, nil
}

// Close closes the file descriptors. Pins and enforcement stay.
func (k *Kernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closePrograms()
	return k.maps.Close()
}

// closePrograms forgets what was loaded ahead or is staged. Filters keep their programs.
func (k *Kernel) closePrograms() {
	for slot, p := range k.stock {
		p.programs.close()
		delete(k.stock, slot)
	}
	for slot, s := range k.staged {
		s.programs.close()
		delete(k.staged, slot)
	}
	k.closed = true
}

// Remove detaches every guard and observer, forgets all leases, and closes k: for uninstalling.
func (k *Kernel) Remove() error {
	staged := k.removeStages()
	k.mu.Lock()
	defer k.mu.Unlock()
	errs := []error{staged, k.removePins(), k.maps.Close()}
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
		if err := pins.remove(); err != nil {
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
