// SPDX-License-Identifier: Apache-2.0

package multus

import (
	"strings"
	"testing"
)

// FuzzConfiguration: each network that a configuration of Multus gives to pods has a definition, or
// none at all.
func FuzzConfiguration(f *testing.F) {
	for _, text := range []string{
		``, `null`, `{}`, `[]`, `{"type":"multus","delegates":[{},{}]}`, `{"type":"multus-shim","clusterNetwork":"a","defaultNetworks":["b","/c"]}`,
		`{"plugins":[{"type":"multus","clusterNetwork":"a","multusNamespace":"ns","systemNamespaces":[]}]}`, `{"plugins":[null]}`, `{"type":1}`,
		`{"type":"multus","clusterNetwork":"a","defaultNetworks":[""]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		m := networks(parse(content))
		for _, name := range append([]string{m.Cluster}, m.Additional...) {
			if namespace, definition, ok := strings.Cut(name, "/"); name != "" && (!ok || definition == "" || namespace == "") {
				t.Errorf("%s: network %q", content, name)
			}
		}
	})
}
