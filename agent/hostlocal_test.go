// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// Of two commands that write the files of a move at once, one is refused. Reading goes on.
func TestOneWritesTheFilesOfAMove(t *testing.T) {
	data := t.TempDir()
	run := func(more string) (string, error) {
		c := hostLocal()
		var out bytes.Buffer
		c.SetOut(&out)
		c.SetErr(&out)
		c.SetArgs([]string{"--dir=" + data})
		c.SetIn(strings.NewReader(fmt.Sprintf(`{"dataDir":%q,"networks":["vlan100"],"mark":"fenceline-move/a"%s}`, data, more)))
		err := c.Execute()
		return out.String(), err
	}
	write := `,"write":true,"ends":["10.0.0.1","10.0.0.3"]`
	unlock := check.Value(lockDirectory(data))(t)
	check.Says(t, check.Err(run(write)), "another command may write the files of a move", "repeat the command")
	check.Equal(t, check.Value(run(""))(t), "{}\n", "files while another command writes")
	unlock()
	check.Says(t, check.Value(run(write))(t), `"marked":3`)
	check.Says(t, check.Value(run(write))(t), `"marked":3`) // the lock has ended with its command
}
