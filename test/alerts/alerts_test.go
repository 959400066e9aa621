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
	builder := check.Value(thirdparty.NewBuilder(os.Stderr))(t)
	dir := check.Value(builder.Dir(t.Context(), thirdparty.Prometheus))(t)
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "usr", "bin", "promtool"), "test", "rules", "alerts_test.yaml", "days_test.yaml").CombinedOutput()
	check.Must(t, err == nil, "promtool: %v\n%s", err, out)
}
