package bpf

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// inNetNS runs fn in the network namespace at path, or where the calling thread is when path is empty.
func inNetNS(path string, fn func() error) error {
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
		// Never unlocked: the thread ends with the goroutine, and nobody else runs in a foreign namespace.
		runtime.LockOSThread()
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace %s: %w", path, err)
			return
		}
		done <- fn()
	}()
	return <-done
}
