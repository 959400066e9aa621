// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"os"
	"path/filepath"
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
	got := check.Value(os.ReadFile(path))(t)
	info := check.Value(os.Stat(path))(t)
	if string(got) != content || info.Mode().Perm() != mode {
		t.Errorf("%s holds %q with mode %v; want %q, %v", path, got, info.Mode().Perm(), content, mode)
	}
	return info
}

func TestThePluginIsInstalledUnderItsNameAndExecutable(t *testing.T) {
	dir := t.TempDir()
	changed, err := Plugin(plugin(t, "v1"), dir)
	check.Must(t, err == nil && changed, "changed %v, %v", changed, err)
	wantFile(t, filepath.Join(dir, "fenceline"), "v1", 0o755)
	entries, err := os.ReadDir(dir)
	check.That(t, err == nil && len(entries) == 1, "%d files are there, %v; want the plugin alone", len(entries), err)
}

func TestWhatIsThereAlreadyIsNotTouched(t *testing.T) {
	dir := t.TempDir()
	source, path := plugin(t, "v1"), filepath.Join(dir, "fenceline")
	check.Value(Plugin(source, dir))(t)
	before := wantFile(t, path, "v1", 0o755)
	changed, err := Plugin(source, dir)
	check.Must(t, err == nil && !changed, "changed %v, %v", changed, err)
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
	if changed, err := Plugin(plugin(t, "v2"), dir); err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	wantFile(t, path, "v2", 0o755)
	old := make([]byte, 2)
	if _, err := running.ReadAt(old, 0); err != nil || string(old) != "v1" {
		t.Errorf("the running one reads %q, %v", old, err)
	}
}

func TestDamageIsRepaired(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"cut off":        func(p string) error { return os.Truncate(p, 1) },
		"other bytes":    func(p string) error { return os.WriteFile(p, []byte("xx"), 0o755) },
		"not executable": func(p string) error { return os.Chmod(p, 0o644) },
		"removed":        os.Remove,
		"a symbolic link": func(p string) error {
			return errors.Join(os.Rename(p, p+".real"), os.Symlink(p+".real", p))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			source, path := plugin(t, "v1"), filepath.Join(dir, "fenceline")
			_, err := Plugin(source, dir)
			check.Must(t, err == nil, "%v", err)
			check.OK(t, damage(path))
			if changed, err := Plugin(source, dir); err != nil || !changed {
				t.Fatalf("changed %v, %v", changed, err)
			}
			wantFile(t, path, "v1", 0o755)
		})
	}
}

func TestUnfinishedFilesOfAKilledAgentGo(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, tempPrefix+"123")
	check.OK(t, os.WriteFile(left, []byte("half"), 0o600))
	_, err := Conflist(dir, "10-fenceline.conflist", []byte(conflist))
	check.Must(t, err == nil, "%v", err)
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

func TestAMissingDirectoryIsNamed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	_, err := Plugin(plugin(t, "v1"), dir)
	check.That(t, errors.Is(err, os.ErrNotExist) && strings.Contains(err.Error(), dir), "got %v", err)
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
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || entries[0].Name() != "10-other.conflist" || entries[1].Name() != PluginName {
		t.Errorf("left %v, %v", entries, err)
	}
}
