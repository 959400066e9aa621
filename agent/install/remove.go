// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/hostlink/masquerade"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/bpf/attach"
)

// RemoveOptions are the places where an agent of this node keeps its files.
type RemoveOptions struct {
	// StateDir holds the journal, BPFDir the pins.
	StateDir, BPFDir string
	// Conflist is the file name of the network configuration in ConfDir, or empty.
	Conflist, ConfDir string
}

// RemoveNode removes the files that agents have left on the node: the network configuration, the pins,
// the rules of host links and the journal. Running pods keep their interfaces without a guard. The
// plugin and its spool stay, since the DEL of these pods needs them. RemoveNode may be called again, and
// returns attachment.ErrLocked while an agent runs.
func RemoveNode(o RemoveOptions) error {
	book, err := attachment.Open(o.StateDir)
	if err != nil {
		return err
	}
	defer book.Close()
	if o.Conflist != "" {
		if _, err := RemoveConflist(o.ConfDir, o.Conflist); err != nil {
			return err
		}
	}
	if err := programs(o.BPFDir); err != nil {
		return err
	}
	if err := masquerade.Remove(); err != nil {
		return err
	}
	return book.Erase()
}

// programs detaches every program. Without a BPF file system there are no pins.
func programs(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	kernel, err := bpf.Open(bpf.Options{Dir: dir})
	if errors.Is(err, attach.ErrNotBPFFS) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the maps and programs in %s: %w", dir, err)
	}
	return errors.Join(kernel.Remove(), os.Remove(dir))
}
