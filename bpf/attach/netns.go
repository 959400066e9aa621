// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// InNetNS runs fn in the network namespace at path; "" is the calling thread's.
func InNetNS(path string, fn func() error) error {
	if path == "" {
		return fn()
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer f.Close()
	done := make(chan error)
	go func() {
		// The thread stays locked and ends with the goroutine, so no other one runs there.
		runtime.LockOSThread()
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace %s: %w", path, err)
			return
		}
		done <- fn()
	}()
	return <-done
}
