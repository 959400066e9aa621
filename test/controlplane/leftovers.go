// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/process"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// makeDir makes the directory of a new server, named after the test process. It first stops the
// servers of test processes that have ended: a test that was killed could not stop its server.
func makeDir(ctx context.Context) string {
	base := filepath.Join(must.Value(thirdparty.CacheDir()), "apiservers")
	must.Done(os.MkdirAll(base, 0o755), "make the server's directory")
	stopLeftovers(ctx, base)
	self := must.Value(process.Find("test", os.Getpid()))
	return must.Value(os.MkdirTemp(base, fmt.Sprintf("%d-%d-", self.PID, self.Started)))
}

func stopLeftovers(ctx context.Context, base string) {
	entries, err := os.ReadDir(base)
	must.Done(err, "look for servers that were left behind")
	var errs []error
	for _, e := range entries {
		owner := process.Process{Name: "test"}
		if _, err := fmt.Sscanf(e.Name(), "%d-%d-", &owner.PID, &owner.Started); err != nil || owner.Alive() {
			continue
		}
		dir := filepath.Join(base, e.Name())
		left, err := Open(Config{Dir: dir})
		if err == nil {
			err = errors.Join(left.Stop(ctx), os.RemoveAll(dir))
		}
		errs = append(errs, err)
	}
	must.OK(errors.Join(errs...))
}
