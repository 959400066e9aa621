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

// netnsInode tells the calling thread's network namespace from others that live at the same time.
func netnsInode() (uint32, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return 0, fmt.Errorf("identify network namespace: %w", err)
	}
	return uint32(st.Ino), nil
}
