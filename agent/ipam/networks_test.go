// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestTheNetworksThatMultusGivesToPods(t *testing.T) {
	const (
		thin = `"type": "multus", "kubeconfig": "/etc/cni/net.d/multus.d/multus.kubeconfig"`
		ours = `{"cniVersion": "1.1.0", "name": "fenceline", "plugins": [{"type": "macvlan", "ipam": {"type": "fenceline"}}]}`
	)
	system := []string{"kube-system"}
	for _, c := range []struct {
		rule  string
		files map[string]string
		named string
		want  Multus
	}{
		{"no file", nil, "", Multus{}},
		{"no Multus", map[string]string{"90-fenceline.conflist": ours}, "", Multus{}},
		{"a definition", map[string]string{"00-multus.conf": `{"cniVersion": "0.3.1", "name": "multus-cni-network", ` + thin + `, "clusterNetwork": "macvlan"}`}, "",
			Multus{Namespace: "kube-system", Cluster: "kube-system/macvlan", Without: system}},
		{"a list", map[string]string{"00-multus.conflist": `{"name": "multus-cni-network", "plugins": [{` + thin + `, "clusterNetwork": "macvlan"}]}`}, "",
			Multus{Namespace: "kube-system", Cluster: "kube-system/macvlan", Without: system}},
		{"the shim of the thick plugin", map[string]string{"00-multus.conf": `{"type": "multus-shim", "clusterNetwork": "macvlan", "socketDir": "/host/run/multus/"}`}, "",
			Multus{Namespace: "kube-system", Cluster: "kube-system/macvlan", Without: system}},
		{"a namespace of Multus", map[string]string{"00-multus.conf": `{` + thin + `, "clusterNetwork": "macvlan", "multusNamespace": "openshift-multus"}`}, "",
			Multus{Namespace: "openshift-multus", Cluster: "openshift-multus/macvlan", Without: system}},
		{"the path of a file is no definition", map[string]string{"00-multus.conf": `{` + thin + `, "clusterNetwork": "/host/etc/cni/net.d/90-fenceline.conflist"}`}, "",
			Multus{Namespace: "kube-system", Without: system}},
		{"additional networks", map[string]string{"00-multus.conf": `{` + thin + `, "clusterNetwork": "a", "defaultNetworks": ["b", "/etc/c.conf"]}`}, "",
			Multus{Namespace: "kube-system", Cluster: "kube-system/a", Additional: []string{"kube-system/b", ""}, Without: system}},
		{"additional networks for pods of the system too", map[string]string{"00-multus.conf": `{` + thin + `, "clusterNetwork": "a", "defaultNetworks": ["b"], "systemNamespaces": []}`}, "",
			Multus{Namespace: "kube-system", Cluster: "kube-system/a", Additional: []string{"kube-system/b"}, Without: []string{}}},
		{"delegates are no definitions, and each is an interface", map[string]string{"00-multus.conf": `{` + thin + `, "delegates": [{"type": "macvlan"}, {"type": "bridge"}]}`}, "",
			Multus{Namespace: "kube-system", Additional: []string{""}}},
		{"the first file by name is the pod network", map[string]string{"00-fenceline.conflist": ours, "10-multus.conf": `{` + thin + `, "clusterNetwork": "macvlan"}`}, "", Multus{}},
		{"a file that no runtime loads is passed over", map[string]string{"00-broken.conf": `{`, "01-note.txt": "x", "02-empty.conflist": `{"plugins": []}`, "10-multus.conf": `{` + thin + `, "clusterNetwork": "macvlan"}`}, "",
			Multus{Namespace: "kube-system", Cluster: "kube-system/macvlan", Without: system}},
		{"the operator names the network of the daemon", map[string]string{"00-multus.conf": `{"type": "multus-shim"}`}, "kube-system/macvlan",
			Multus{Namespace: "kube-system", Cluster: "kube-system/macvlan", Additional: []string{}}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			dir := t.TempDir()
			check.OK(t, os.Mkdir(filepath.Join(dir, "00-multus.d.conf"), 0o755))
			for name, content := range c.files {
				check.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
			}
			got := check.Value(Networks(dir, c.named))(t)
			if len(got.Additional) == 0 && len(c.want.Additional) == 0 {
				got.Additional, c.want.Additional = nil, nil
			}
			check.That(t, reflect.DeepEqual(got, c.want), "got  %+v\nwant %+v", got, c.want)
		})
	}
}

func TestANodeWithoutTheDirectoryHasNoMultus(t *testing.T) {
	got, err := Networks(filepath.Join(t.TempDir(), "none"), "")
	check.That(t, err == nil && reflect.DeepEqual(got, Multus{}), "got %+v, %v", got, err)
}

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
