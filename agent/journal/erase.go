// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"
	"os"
	"path/filepath"
)

// Erase removes the files of the journal, for uninstalling. The lock file and files of others in
// the directory stay. Only Close may be called afterwards.
func (j *Journal) Erase() error {
	for _, name := range []string{entriesDir, rotationsFile, pairsFile, identityFile} {
		if err := os.RemoveAll(filepath.Join(j.dir, name)); err != nil {
			return fmt.Errorf("erase the journal in %s: %w", j.dir, err)
		}
	}
	return nil
}
