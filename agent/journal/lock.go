package journal

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrLocked says that another agent runs in the same directory.
var ErrLocked = errors.New("another agent holds the lock")

// acquire takes an exclusive lock that ends with the process, however it ends.
func acquire(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}
