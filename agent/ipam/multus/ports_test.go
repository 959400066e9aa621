// SPDX-License-Identifier: Apache-2.0

package multus

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestWhetherThePodNetworkTakesHostPorts(t *testing.T) {
	const (
		able   = `"capabilities": {"portMappings": true}`
		plain  = `{"type": "macvlan", "ipam": {"type": "fenceline"}}, {"type": "fenceline"}`
		mapped = plain + `, {"type": "portmap", ` + able + `}`
	)
	for _, c := range []struct {
		rule  string
		files map[string]string
		want  bool
	}{
		{"no file: the runtime may have its configuration elsewhere", nil, true},
		{"a chain without portmap", map[string]string{"10-a.conflist": `{"plugins": [` + plain + `]}`}, false},
		{"a chain with portmap", map[string]string{"10-a.conflist": `{"plugins": [` + mapped + `]}`}, true},
		{"portmap without the capability gets nothing", map[string]string{"10-a.conflist": `{"plugins": [` + plain + `, {"type": "portmap"}]}`}, false},
		{"a capability that is switched off", map[string]string{"10-a.conf": `{"type": "x", "capabilities": {"portMappings": false, "ips": true}}`}, false},
		{"only the first file by name counts", map[string]string{"10-a.conflist": `{"plugins": [` + plain + `]}`, "20-b.conflist": `{"plugins": [` + mapped + `]}`}, false},
		{"Multus gets none", map[string]string{"00-m.conf": `{"type": "multus", "delegates": [{"plugins": [` + mapped + `]}]}`}, false},
		{"Multus passes them to a chain with portmap", map[string]string{"00-m.conf": `{"type": "multus", ` + able + `, "delegates": [{"plugins": [` + mapped + `]}]}`}, true},
		{"Multus passes them to a chain without", map[string]string{"00-m.conf": `{"type": "multus", ` + able + `, "delegates": [{"plugins": [` + plain + `]}]}`}, false},
		{"only the first delegate is the pod network", map[string]string{"00-m.conf": `{"type": "multus", ` + able + `, "delegates": [{"type": "macvlan"}, {"plugins": [` + mapped + `]}]}`}, false},
		{"Multus passes them to a definition that no file has", map[string]string{"00-m.conf": `{"type": "multus-shim", ` + able + `, "clusterNetwork": "macvlan"}`}, true},
	} {
		t.Run(c.rule, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range c.files {
				check.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
			}
			check.Equal(t, check.Value(PassesPorts(dir))(t), c.want, "it takes them:")
		})
	}
}
