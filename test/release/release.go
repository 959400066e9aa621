// SPDX-License-Identifier: Apache-2.0

// Package release makes the files of a version, and pushes its images and its chart to a registry. All of them
// are made of one commit, and with the same version of Go they are the same bytes on each machine.
package release

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// Options are the arguments of a release.
type Options struct {
	Version string
	// Registry is where the release goes, as HOST or HOST/PATH. Empty: it is only written to Out.
	Registry string
	// Key is the file of a signing key. Empty: nothing is signed.
	Key string
	// Downloads is the URL of the folder from which users get the files. Empty: that of the project.
	Downloads string
	// Out is the directory of the files. Earlier files in it are removed.
	Out      string
	Progress io.Writer
}

// release is a version in the making.
type release struct {
	Options
	root string
	// arches are the architectures of the images and of the command.
	arches []string
	// commit is empty in a release of this machine.
	commit string
	time   time.Time
	notes  string
	key    *ecdsa.PrivateKey
	// public is set unless the registry is of this machine.
	public bool
	// files are those of Out by their names.
	files map[string][]byte
}

// Make writes the files of a release, and pushes it. It refuses before it builds, and looks at all tags before it
// pushes. After an interruption, the same call goes on: what the registry has is not sent again.
func Make(ctx context.Context, o Options) (err error) {
	defer must.CatchIn(&err, "release %s", o.Version)
	r := newRelease(o, "amd64", "arm64")
	must.OK(r.check(ctx))
	images := r.images(ctx)
	chart := r.chart(images, r.tracked(ctx, "charts/fenceline"))
	r.plain(ctx)
	r.commands(ctx)
	r.bundles(images)
	r.addNotes(append(images, chart))
	must.That(r.unchanged(ctx) == r.commit, "the commit changed during the build")
	must.OK(r.write())
	if r.Registry == "" {
		return nil
	}
	return r.push(ctx, append(images, chart))
}

// Local makes a release of the checkout as it is, for machines like this one, without the command, and pushes it
// to a registry of this machine. Tests install it, also as a version that the chart does not have.
func Local(ctx context.Context, o Options) (err error) {
	defer must.CatchIn(&err, "release %s of this machine", o.Version)
	r := newRelease(o, runtime.GOARCH)
	r.time = time.Unix(0, 0).UTC()
	images := r.images(ctx)
	chart := r.chart(images, r.tracked(ctx, "charts/fenceline"))
	r.plain(ctx)
	r.bundles(images)
	must.OK(r.write())
	return r.push(ctx, append(images, chart))
}

func newRelease(o Options, arches ...string) *release {
	return &release{Options: o, root: must.Value(thirdparty.Root()), arches: arches, files: map[string][]byte{}}
}

// check refuses what must not be released, and reads what the release needs.
func (r *release) check(ctx context.Context) (err error) {
	defer must.Catch(&err)
	if r.Key != "" {
		place, err := filepath.Rel(r.root, must.Value(filepath.Abs(r.Key)))
		must.That(err != nil || !filepath.IsLocal(place), "the key %s is inside the tree, where it can get into a commit: keep it outside", r.Key)
		r.key = must.Value(readKey(r.Key))
	}
	var dated bool
	r.notes, dated, err = notes(r.Version, r.read("charts/fenceline/Chart.yaml"), r.read("CHANGELOG.md"))
	must.OK(err)
	if r.Registry != "" {
		registry := must.Value(name.NewRepository(r.Registry+"/fenceline", name.StrictValidation))
		r.public = !loopback(registry.RegistryStr())
		must.That(dated || !r.public, "CHANGELOG.md has no date for %s, so only a registry of this machine may have it, not %s", r.Version, r.Registry)
	}
	r.commit = r.unchanged(ctx)
	tagged := slices.Contains(strings.Fields(r.git(ctx, "tag", "--points-at", r.commit)), "v"+r.Version)
	must.That(tagged || !r.public, "the commit has no tag v%s, so only a registry of this machine may have it, not %s: check out the tag, or make it", r.Version, r.Registry)
	r.time = time.Unix(must.Value(strconv.ParseInt(r.git(ctx, "log", "-1", "--format=%ct"), 10, 64)), 0).UTC()
	return nil
}

// unchanged returns the commit of the tree. It refuses a tree with other content.
func (r *release) unchanged(ctx context.Context) string {
	dirty := r.git(ctx, "status", "--porcelain")
	must.That(dirty == "", "the tree has changes that no commit has: commit or remove them\n%s", dirty)
	return r.git(ctx, "rev-parse", "HEAD")
}

func (r *release) git(ctx context.Context, args ...string) string {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Stderr = r.root, &stderr
	out, err := cmd.Output()
	must.Done(err, "git %s: %s", strings.Join(args, " "), stderr.String())
	return strings.TrimSpace(string(out))
}

// tracked returns the files in git below a folder, by their paths in it.
func (r *release) tracked(ctx context.Context, folder string) map[string][]byte {
	files := map[string][]byte{}
	for path := range strings.Lines(r.git(ctx, "ls-files", folder)) {
		path = strings.TrimSpace(path)
		files[must.Value(filepath.Rel(folder, path))] = r.read(path)
	}
	return files
}

func (r *release) read(path string) []byte {
	return must.Value(os.ReadFile(filepath.Join(r.root, path)))
}

// write writes all files, their sums, and with a key the signature of the sums.
func (r *release) write() (err error) {
	defer must.Catch(&err)
	var sums strings.Builder
	for _, file := range slices.Sorted(maps.Keys(r.files)) {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(r.files[file]), file)
	}
	r.files["SHA256SUMS"] = []byte(sums.String())
	if r.key != nil {
		r.files["SHA256SUMS.sig"] = []byte(signature(r.key, r.files["SHA256SUMS"]))
		r.files["fenceline.pub"] = publicKey(r.key)
	}
	must.OK(os.RemoveAll(r.Out))
	must.OK(os.MkdirAll(r.Out, 0o755))
	for file, data := range r.files {
		must.OK(os.WriteFile(filepath.Join(r.Out, file), data, 0o644))
	}
	fmt.Fprint(r.Progress, sums.String())
	return nil
}
