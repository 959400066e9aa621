// SPDX-License-Identifier: Apache-2.0

//go:build api

package alerts

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fenceline/fenceline/test/thirdparty"
)

func TestAlertRules(t *testing.T) {
	builder, err := thirdparty.NewBuilder(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := builder.Dir(t.Context(), thirdparty.Prometheus)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "usr", "bin", "promtool"), "test", "rules", "alerts_test.yaml").CombinedOutput()
	if err != nil {
		t.Fatalf("promtool: %v\n%s", err, out)
	}
}
