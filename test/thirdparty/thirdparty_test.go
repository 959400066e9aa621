// SPDX-License-Identifier: Apache-2.0

package thirdparty

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestEveryComponentHasAToolModuleThatNamesItsVersion(t *testing.T) {
	for name, c := range components() {
		data, err := os.ReadFile(filepath.Join("modules", name, "go.mod"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := requiredVersion(string(data), c.Module); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRequiredVersionIsThatOfTheModuleItself(t *testing.T) {
	const gomod = "module m\n\nrequire a/b v1.2.3\n\nrequire (\n\ta/b/c v4.5.6 // indirect\n)\n\nreplace a/d => a/d v9.9.9\n"
	for module, want := range map[string]string{"a/b": "v1.2.3", "a/b/c": "v4.5.6"} {
		got, err := requiredVersion(gomod, module)
		check.That(t, err == nil && got == want, "requiredVersion(%s) = %q, %v; want %q", module, got, err, want)
	}
	_, err := requiredVersion(gomod, "a/d")
	check.That(t, errors.Is(err, errNotRequired), "a replaced module that is not required: got %v, want %v", err, errNotRequired)
}

func TestNotInstalledKeepsWhatDpkgDoesNotReportAsInstalled(t *testing.T) {
	dpkg := "installed jq\nconfig-files runc\n"
	got, want := notInstalled(dpkg, []string{"jq", "runc", "curl"}), []string{"runc", "curl"}
	check.That(t, slices.Equal(got, want), "got %v, want %v", got, want)
}

func TestDependenciesOfKeepsThoseWithAPrefix(t *testing.T) {
	record := "Package: linux-image-7\nDepends: kmod, linux-binary-7 (= 7.2-1), linux-base (>= 4.3) | other,\nRecommends: linux-modules-x\n"
	want := []string{"linux-binary-7"}
	check.List(t, dependenciesOf(record, []string{"linux-binary-", "linux-modules-"}), want, "got")
}

func TestPackagesOfNamesThePackageWhoseVersionCountsFirst(t *testing.T) {
	plan := "Reading package lists...\nInst libc6 (2.36-9 Debian:12.11/stable [amd64])\nInst curl (7.88 Debian [amd64])\nConf curl (7.88)\n"
	got, want := packagesOf(plan, "curl"), []string{"curl", "libc6"}
	check.That(t, slices.Equal(got, want), "got %v, want %v", got, want)
}

func TestThePartsOfKubernetesHaveOneVersion(t *testing.T) {
	versions := map[string]string{}
	for _, name := range []string{Kubernetes, E2E} {
		data := check.Value(os.ReadFile(filepath.Join("modules", name, "go.mod")))(t)
		versions[name] = check.Value(requiredVersion(string(data), components()[name].Module))(t)
	}
	check.That(t, versions[E2E] == versions[Kubernetes], "%v: the e2e tests must be those of the cluster", versions)
}

func TestWhatIsUnpackedIsFoundByItsName(t *testing.T) {
	b := &Builder{Cache: t.TempDir()}
	u, _ := findUnpacked(Kernel61)
	for _, name := range []string{"linux-6.12-6.12.95-1", "linux-6.1-6.1.99-1", "linux-6.1-cut-short"} {
		dir := filepath.Join(b.Cache, name)
		check.OK(t, os.Mkdir(dir, 0o755))
		if name == "linux-6.1-cut-short" {
			continue
		}
		check.OK(t, os.WriteFile(filepath.Join(dir, builtMark), nil, 0o644))
	}
	dir, ok := b.present(u)
	check.That(t, ok && filepath.Base(dir) == "linux-6.1-6.1.99-1", "got %q, %v", dir, ok)
}
