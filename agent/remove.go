package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fenceline/fenceline/agent/install"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/bpf"
)

// remover is the run of an agent's image that takes Fenceline off a node and
// answers liveness probes from then on, which tells that the node is done.
func remover(ctx context.Context, s settings) error {
	if err := removeFrom(s); err != nil {
		return err
	}
	stop, err := answerAlive(s.healthAddress, newLogger(s.logLevel))
	if err != nil {
		return err
	}
	defer stop()
	<-ctx.Done()
	return nil
}

// removeFrom takes from the node what agents have put there: the network
// configuration, what is pinned, and the journal. Pods that run keep their
// interfaces without a guard; their DEL finds the plugin and its spool. It may be
// repeated, and fails while an agent runs.
func removeFrom(s settings) error {
	book, err := journal.Open(s.stateDir)
	if err != nil {
		return err
	}
	defer book.Close()
	if s.conflist != "" {
		if _, err := install.RemoveConflist(s.confDir, filepath.Base(s.conflist)); err != nil {
			return err
		}
	}
	if err := removePins(s.bpfDir); err != nil {
		return err
	}
	return book.Erase()
}

// removePins detaches every program. Without a BPF file system nothing is pinned.
func removePins(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	kernel, err := bpf.Open(bpf.Options{Dir: dir})
	if errors.Is(err, bpf.ErrNotBPFFS) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the kernel's part: %w", err)
	}
	return errors.Join(kernel.Remove(), os.Remove(dir))
}
