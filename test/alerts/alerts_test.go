// SPDX-License-Identifier: Apache-2.0

//go:build api

package alerts

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/thirdparty"
)

func TestAlertRules(t *testing.T) {
	builder, err := thirdparty.NewBuilder(os.Stderr)
	check.OK(t, err)
	dir, err := builder.Dir(t.Context(), thirdparty.Prometheus)
	check.OK(t, err)
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "usr", "bin", "promtool"), "test", "rules", "alerts_test.yaml").CombinedOutput()
	if err != nil {
		t.Fatalf("promtool: %v\n%s", err, out)
	}
}
