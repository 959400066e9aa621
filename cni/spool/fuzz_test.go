// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

// FuzzFileNames: each attachment has a file name of its own in the spool, or none. Each file name that
// is read is the one of its attachment.
func FuzzFileNames(f *testing.F) {
	for _, names := range [][2]string{{"c1", "eth0"}, {"c1", "net1@odd"}, {"a@b", "eth0"}, {"..", "eth0"}, {"../a", "b"}, {"", ""}, {".put-1", "a"}, {"a", "../../b"}} {
		f.Add(names[0], names[1])
	}
	f.Fuzz(func(t *testing.T, container, iface string) {
		a := agentapi.Attachment{ContainerID: container, Interface: iface}
		if name, err := fileName(a); err == nil {
			got, ok := attachment(name)
			check.That(t, ok && got == a, "%+v is in %q, which is of %+v, %v", a, name, got, ok)
			if !filepath.IsLocal(name) || strings.Contains(name, "/") || strings.HasPrefix(name, tempPrefix) {
				t.Errorf("%+v is in %q", a, name)
			}
		}
		if got, ok := attachment(container); ok && !strings.Contains(container, "/") {
			name, err := fileName(got)
			check.That(t, err == nil && name == container, "%q is of %+v, which is in %q, %v", container, got, name, err)
		}
	})
}
