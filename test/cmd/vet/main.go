// SPDX-License-Identifier: Apache-2.0

// Vet is a tool of `go vet -vettool`. It is vet, without a look into packages of other modules: to learn
// which of their functions print took a sixth of the CPU time of `make check`. `make lint` has this look.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fenceline/fenceline/test/must"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "vet:", err)
		os.Exit(1)
	}
}

// run takes the arguments that go vet gives to a tool. The last one is the file that describes a package.
func run(args []string) error {
	if file := args[len(args)-1]; strings.HasSuffix(file, ".cfg") {
		skipped, err := skip(file)
		if skipped || err != nil {
			return err
		}
	}
	out, err := exec.Command("go", "env", "GOTOOLDIR").Output()
	if err != nil {
		return fmt.Errorf("find vet: %w", err)
	}
	vet := filepath.Join(strings.TrimSpace(string(out)), "vet")
	return syscall.Exec(vet, append([]string{"vet"}, args...), os.Environ())
}

// skip writes that nothing is known of a package that is only a dependency and of another module.
func skip(file string) (_ bool, err error) {
	defer must.Catch(&err)
	data := must.Value(os.ReadFile(file))
	var p struct {
		VetxOnly   bool
		ModulePath string
		VetxOutput string
	}
	must.Done(json.Unmarshal(data, &p), "read %s", file)
	if !p.VetxOnly || p.ModulePath == "github.com/fenceline/fenceline" {
		return false, nil
	}
	return true, os.WriteFile(p.VetxOutput, nil, 0o600)
}
