// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/programs"
)

// DefaultVersion is the default version of images. It equals the chart's appVersion.
const DefaultVersion = "0.1.0"

// Names of the images that only tests use.
const (
	PauseImage = "fenceline/test-pause:1"
	AppImage   = "fenceline/test-app:1"
	DNSImage   = "fenceline/test-coredns:1"
	// BusyboxImage is the name in the examples.
	BusyboxImage = "busybox:stable"

	MultusDaemonImage = "fenceline/test-multus:1"
)

// Recipe says which binaries make an image.
type Recipe struct {
	// Tarball is the name of the file without its ending.
	Tarball    string
	Name       string
	Entrypoint string
	// Target is for which machines its programs are.
	Target programs.Target
	// Binaries maps paths in the image to main packages of the project, such as "test/cmd/app".
	Binaries map[string]string
	// Files maps paths in the image to programs of this machine.
	Files map[string]string
}

// Product returns the recipes of the images that the chart installs.
func Product(version string) []Recipe {
	return []Recipe{
		{
			Tarball: "agent", Name: "fenceline/agent:" + version, Entrypoint: "/agent",
			Binaries: map[string]string{"/agent": "agent", "/cni": "cni"},
		},
		{
			Tarball: "controller", Name: "fenceline/controller:" + version, Entrypoint: "/controller",
			Binaries: map[string]string{"/controller": "controller"},
		},
	}
}

// ForTests returns the recipes of the sandbox and the workload of tests.
func ForTests() []Recipe {
	return []Recipe{
		Pause("test-pause", PauseImage),
		{Tarball: "test-app", Name: AppImage, Entrypoint: "/app", Binaries: map[string]string{"/app": "test/cmd/app"}},
	}
}

// DNS returns the recipe of CoreDNS, from the directory of its program.
func DNS(dir string) Recipe {
	return Recipe{
		Tarball: "test-coredns", Name: DNSImage, Entrypoint: "/coredns",
		Files: map[string]string{"/coredns": filepath.Join(dir, "coredns")},
	}
}

// SaveBusybox writes the image of the examples to the directory out: Debian's busybox, and a link for
// each of its commands. It returns the tarball's path.
func SaveBusybox(ctx context.Context, out string) (_ string, err error) {
	defer must.CatchIn(&err, "build image %s", BusyboxImage)
	const program = "/bin/busybox"
	commands := must.Value(exec.CommandContext(ctx, program, "--list").Output())
	img := Image{Name: BusyboxImage, Command: []string{"sh"}, Path: "/bin", Files: map[string][]byte{}, Links: map[string]string{}}
	img.Files[program] = must.Value(os.ReadFile(program))
	for _, command := range strings.Fields(string(commands)) {
		img.Links["/bin/"+command] = "busybox"
	}
	delete(img.Links, program)
	path := filepath.Join(out, "test-busybox.tar")
	return path, Save(path, img)
}

// MultusDaemon returns the recipe of the daemon of Multus, from the directory of its program.
func MultusDaemon(dir string) Recipe {
	return Recipe{
		Tarball: "test-multus", Name: MultusDaemonImage, Entrypoint: "/multus-daemon",
		Files: map[string]string{"/multus-daemon": filepath.Join(dir, "multus-daemon")},
	}
}

// Pause returns the recipe of an image whose program waits until it is ended.
func Pause(tarball, name string) Recipe {
	return Recipe{Tarball: tarball, Name: name, Entrypoint: "/pause", Binaries: map[string]string{"/pause": "test/cmd/app"}}
}

// Build builds the recipe's binaries, and writes the tarball to the directory out. It returns the
// tarball's path. It does not touch a file with the right content.
func (r Recipe) Build(ctx context.Context, out string) (_ string, err error) {
	defer must.Catch(&err)
	path := filepath.Join(out, r.Tarball+".tar")
	return path, Save(path, must.Value(r.Image(ctx)))
}

// Image builds the recipe's binaries, and returns the image.
func (r Recipe) Image(ctx context.Context) (_ Image, err error) {
	defer must.CatchIn(&err, "build image %s", r.Name)
	work := must.Value(os.MkdirTemp("", "fenceline-image-"))
	defer os.RemoveAll(work)
	img := Image{Name: r.Name, Arch: r.Target.Arch, Entrypoint: []string{r.Entrypoint}, Files: map[string][]byte{}}
	for path, pkg := range r.Binaries {
		binary := filepath.Join(work, filepath.Base(path))
		must.OK(r.Target.Build(ctx, pkg, binary))
		img.Files[path] = must.Value(os.ReadFile(binary))
	}
	for path, file := range r.Files {
		img.Files[path] = must.Value(os.ReadFile(file))
	}
	return img, nil
}

// Save writes the image to a tarball. It does not touch a file with the right content.
func Save(path string, img Image) (err error) {
	defer must.CatchIn(&err, "save image %s", img.Name)
	var tarball bytes.Buffer
	must.OK(Write(&tarball, img))
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, tarball.Bytes()) {
		return nil
	}
	must.OK(os.MkdirAll(filepath.Dir(path), 0o755))
	must.OK(os.WriteFile(path+".new", tarball.Bytes(), 0o644))
	return os.Rename(path+".new", path)
}
