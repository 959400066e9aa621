package journal

import (
	"fmt"
	"os"
	"path/filepath"
)

// Erase removes what the journal has written, for uninstalling. The lock stays,
// and so does what others keep beside the journal. Nothing but Close may follow.
func (j *Journal) Erase() error {
	for _, name := range []string{entriesDir, rotationsFile, pairsFile, identityFile} {
		if err := os.RemoveAll(filepath.Join(j.dir, name)); err != nil {
			return fmt.Errorf("erase the journal: %w", err)
		}
	}
	return nil
}
