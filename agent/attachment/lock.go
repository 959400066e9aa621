// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrLocked means that another agent uses the same directory.
var ErrLocked = errors.New("another agent of this node holds the lock; this one can start after the other has ended")

// acquire takes an exclusive lock. The kernel releases it when the process ends, also by a kill.
func acquire(path string) (*os.File, error) {
	// Opened for reading: an agent must start on a read-only file system as well.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
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
