// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

const conflist = `{"cniVersion":"1.0.0","name":"underlay","plugins":[{"type":"macvlan","ipam":{"type":"fenceline"}}]}`

// plugin writes a plugin to install and returns its path.
func plugin(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fenceline-cni")
	check.OK(t, os.WriteFile(path, []byte(content), 0o644))
	return path
}

func wantFile(t *testing.T, path, content string, mode os.FileMode) os.FileInfo {
	t.Helper()
	info := check.Value(os.Stat(path))(t)
	check.Equal(t, string(check.Value(os.ReadFile(path))(t)), content, "%s holds", path)
	check.Equal(t, info.Mode().Perm(), mode, "%s has mode", path)
	return info
}

func TestThePluginIsInstalledUnderItsNameAndExecutable(t *testing.T) {
	dir := t.TempDir()
	check.Must(t, check.Value(Plugin(plugin(t, "v1"), dir))(t), "nothing was changed")
	wantFile(t, filepath.Join(dir, "fenceline"), "v1", 0o755)
	check.Equal(t, len(check.Value(os.ReadDir(dir))(t)), 1, "files, the plugin among them:")
}

func TestWhatIsThereAlreadyIsNotTouched(t *testing.T) {
	dir := t.TempDir()
	source, path := plugin(t, "v1"), filepath.Join(dir, "fenceline")
	check.Value(Plugin(source, dir))(t)
	before := wantFile(t, path, "v1", 0o755)
	check.Must(t, !check.Value(Plugin(source, dir))(t), "it was changed")
	after := wantFile(t, path, "v1", 0o755)
	check.That(t, os.SameFile(before, after), "it is another file now")
}

func TestAnotherReleaseReplacesByRename(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "fenceline")
	check.Value(Plugin(plugin(t, "v1"), dir))(t)
	// A plugin that runs has the file open; writing into it would be ETXTBSY.
	running := check.Value(os.Open(path))(t)
	defer running.Close()
	check.Must(t, check.Value(Plugin(plugin(t, "v2"), dir))(t), "nothing was changed")
	wantFile(t, path, "v2", 0o755)
	check.Equal(t, string(check.Value(io.ReadAll(running))(t)), "v1", "the running one reads")
}

func TestDamageIsRepaired(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"cut off":         func(p string) error { return os.Truncate(p, 1) },
		"other bytes":     func(p string) error { return os.WriteFile(p, []byte("xx"), 0o755) },
		"not executable":  func(p string) error { return os.Chmod(p, 0o644) },
		"removed":         os.Remove,
		"a symbolic link": func(p string) error { return errors.Join(os.Rename(p, p+".real"), os.Symlink(p+".real", p)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			source, path := plugin(t, "v1"), filepath.Join(dir, "fenceline")
			check.Value(Plugin(source, dir))(t)
			check.OK(t, damage(path))
			check.Must(t, check.Value(Plugin(source, dir))(t), "nothing was changed")
			wantFile(t, path, "v1", 0o755)
		})
	}
}

func TestUnfinishedFilesOfAKilledAgentGo(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, tempPrefix+"123")
	check.OK(t, os.WriteFile(left, []byte("half"), 0o600))
	check.Value(Conflist(dir, "10-fenceline.conflist", []byte(conflist)))(t)
	check.Is(t, check.Err(os.Stat(left)), os.ErrNotExist, "%s:", left)
}

func TestTheConflistIsInstalledForTheRuntimeAlone(t *testing.T) {
	dir := t.TempDir()
	for i, want := range []bool{true, false} {
		changed, err := Conflist(dir, "10-fenceline.conflist", []byte(conflist))
		check.That(t, err == nil && changed == want, "time %d: changed %v, %v", i+1, changed, err)
	}
	wantFile(t, filepath.Join(dir, "10-fenceline.conflist"), conflist, 0o600)
}

func TestAConflistThatWouldTakeTheNodeDownIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ file, text, says string }{
		"a name that runtimes do not load": {"10-fenceline.conf", conflist, "10-fenceline.conflist"},
		"a name in another directory":      {"../10-fenceline.conflist", conflist, "10-fenceline.conflist"},
		"no JSON":                          {"a.conflist", "{", "unexpected end"},
		"no version":                       {"a.conflist", `{"name":"n","plugins":[{"type":"fenceline"}]}`, `"cniVersion"`},
		"no name":                          {"a.conflist", `{"cniVersion":"1.0.0","plugins":[{"type":"fenceline"}]}`, `"name"`},
		"no plugin":                        {"a.conflist", `{"cniVersion":"1.0.0","name":"n"}`, `"plugins"`},
		"a plugin without type":            {"a.conflist", `{"cniVersion":"1.0.0","name":"n","plugins":[{}]}`, `plugin 0 has no "type"`},
		"another IPAM":                     {"a.conflist", `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"macvlan","ipam":{"type":"host-local"}}]}`, "[macvlan]"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := Conflist(dir, c.file, []byte(c.text))
			check.That(t, errors.Is(err, ErrNotConflist) && strings.Contains(err.Error(), c.says), "got %v, want one that says %q", err, c.says)
			entries, _ := os.ReadDir(dir)
			check.That(t, len(entries) == 0, "%d files were written", len(entries))
		})
	}
}

func TestOnlyOurConfigurationIsRemovedAndThePluginStays(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"90-fenceline.conflist": conflist, "10-other.conflist": `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"bridge"}]}`,
		tempPrefix + "1": "half", PluginName: "plugin",
	} {
		check.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	for name, want := range map[string]bool{"90-fenceline.conflist": true, "10-other.conflist": false, "none.conflist": false} {
		changed, err := RemoveConflist(dir, name)
		check.That(t, err == nil && changed == want, "%s: changed %v, %v; want %v", name, changed, err, want)
	}
	var left []string
	for _, entry := range check.Value(os.ReadDir(dir))(t) {
		left = append(left, entry.Name())
	}
	check.List(t, left, []string{"10-other.conflist", PluginName}, "left")
}

func TestTheMastersOfANetworkConfiguration(t *testing.T) {
	for _, row := range []struct {
		name, conflist string
		want           []string
	}{
		{"as the chart writes it", `{"name":"underlay","plugins":[{"type":"macvlan","master":"eth1","ipam":{"type":"fenceline"}},{"type":"fenceline"}]}`, []string{"eth1"}},
		{"the interface of the default route", `{"name":"underlay","plugins":[{"type":"ipvlan","ipam":{"type":"fenceline"}}]}`, []string{""}},
		{"another IPAM", `{"name":"underlay","plugins":[{"type":"macvlan","master":"eth1","ipam":{"type":"host-local"}}]}`, nil},
		{"a bridge", `{"name":"underlay","plugins":[{"type":"bridge","ipam":{"type":"fenceline"}}]}`, nil},
		{"a bridge of OpenShift", `{"name":"underlay","plugins":[{"type":"cnv-bridge","bridge":"br1","ipam":{"type":"fenceline"}}]}`, nil},
		{"no plugin", `{"name":"underlay"}`, nil},
	} {
		name, got, err := Masters([]byte(row.conflist))
		check.That(t, err == nil && name == "underlay" && slices.Equal(got, row.want), "%s: %s, %q, %v", row.name, name, got, err)
	}
	_, _, err := Masters([]byte("no JSON"))
	check.That(t, err != nil, "no JSON is read")
}

func TestTheVersionIsTheNewestThatTheRuntimeKnows(t *testing.T) {
	for _, row := range []struct{ rule, runtime, want string }{
		{"containerd 1.6 has version 1.1.1 of the CNI library", "containerd://1.6.38", "1.0.0"},
		{"containerd 1.7 has version 1.1.2 of it", "containerd://1.7.35", "1.0.0"},
		{"containerd 1.10 would be older than 2.0", "containerd://1.10.0", "1.0.0"},
		{"containerd 2.0 has version 1.2.3 of it", "containerd://2.0.0", "1.1.0"},
		{"a candidate of containerd 2.0", "containerd://2.0.0-rc.4", "1.1.0"},
		{"a distribution's suffix", "containerd://1.7.24-0ubuntu1~24.04.1", "1.0.0"},
		{"a distribution's suffix, newer", "containerd://2.1.4-0ubuntu2+bob", "1.1.0"},
		{"a build from source, with a v", "containerd://v2.2.0-14-gabcdef.m", "1.1.0"},
		{"k3s's containerd", "containerd://1.7.23-k3s2", "1.0.0"},
		{"CRI-O 1.30 has version 1.1.2 of the library", "cri-o://1.30.14", "1.0.0"},
		{"CRI-O 1.31 has version 1.2.3 of it", "cri-o://1.31.0", "1.1.0"},
		{"CRI-O 1.34", "cri-o://1.34.2", "1.1.0"},
		{"a runtime behind cri-dockerd is not known", "docker://28.1.1", "1.0.0"},
		{"a runtime that nobody knows", "frakti://9.9.9", "1.0.0"},
		{"containerd without a version", "containerd://", "1.0.0"},
		{"containerd with a version that is no number", "containerd://Unknown", "1.0.0"},
		{"containerd with half a version", "containerd://2", "1.0.0"},
		{"a kubelet that has not reported its runtime", "", "1.0.0"},
	} {
		t.Run(row.rule, func(t *testing.T) { check.Equal(t, VersionFor(row.runtime), row.want, "%s gets", row.runtime) })
	}
}

func TestAVersionThatTheConfigurationNamesStays(t *testing.T) {
	for _, row := range []struct{ rule, template, want string }{
		{"no version", `{"name":"n","plugins":[{"type":"fenceline"}]}`, "1.0.0"},
		{"a version", `{"name":"n","cniVersion":"1.1.0","plugins":[{"type":"fenceline"}]}`, "1.1.0"},
		{"an old version", `{"cniVersion":"0.3.1","name":"n","plugins":[{"type":"fenceline"}]}`, "0.3.1"},
	} {
		t.Run(row.rule, func(t *testing.T) {
			content, _ := withVersion([]byte(row.template), "containerd://1.7.27")
			var list struct {
				Version string `json:"cniVersion"`
				Name    string `json:"name"`
			}
			err := json.Unmarshal(content, &list)
			check.That(t, err == nil && list.Version == row.want && list.Name == "n", "got %s, %v", content, err)
			check.Is(t, validate("a.conflist", content), nil, "got")
		})
	}
	for _, broken := range []string{"", "{", "[]", "{}", `{"cniVersion":"","name":"n","plugins":[{"type":"fenceline"}]}`} {
		content, _ := withVersion([]byte(broken), "containerd://2.0.0")
		check.Is(t, validate("a.conflist", content), ErrNotConflist, "%q became %q,", broken, content)
	}
}

func TestAnUpgradeOfTheRuntimeIsNoEvent(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	const template = "{\n  \"name\": \"underlay\", \"plugins\": [{\"type\": \"fenceline\"}]\n}"
	check.OK(t, os.WriteFile(k.ConflistFile, []byte(template), 0o600))
	k.runtime.Store("containerd://1.7.27")
	end := k.start()
	in := func(version string) string {
		return strings.Replace(template, "{", "{\n  \"cniVersion\": \""+version+"\",", 1)
	}
	k.await(k.conflistPath(), in("1.0.0"))
	k.runtime.Store("containerd://2.0.1")
	k.await(k.conflistPath(), in("1.1.0"))
	_ = end()
	check.Equal(t, len(k.recorder.Events), 0, "events:")
}
