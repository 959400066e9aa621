// SPDX-License-Identifier: Apache-2.0

//go:build api

package release

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/must"
)

func TestHelmInstallsTheImagesOfTheRelease(t *testing.T) {
	s, dir := newServer(t), t.TempDir()
	r, made := example(t, s.host+"/team", "x")
	check.OK(t, r.push(t.Context(), made))
	helm := func(args ...string) string {
		t.Helper()
		out, err := controlplane.Helm(t.Context(), "", args...)
		check.Must(t, err == nil, "%v: %s", err, out)
		return out
	}
	helm("pull", "oci://"+s.host+"/team/charts/fenceline", "--version", version, "--plain-http", "--destination", dir)
	chart := filepath.Join(dir, "fenceline-1.2.3.tgz")
	pulled := check.Value(os.ReadFile(chart))(t)
	check.That(t, bytes.Equal(pulled, r.files["fenceline-1.2.3.tgz"]), "helm pulls another chart")
	helm("lint", "--strict", chart)

	digest := check.Value(made[0].content.Digest())(t).String()
	other := "sha256:" + strings.Repeat("a", 64)
	for values, want := range map[string]string{
		"":                                     s.host + "/team/fenceline/agent:1.2.3@" + digest,
		"image.registry=mirror/":               "mirror/fenceline/agent:1.2.3@" + digest,
		"image.tag=mine":                       s.host + "/team/fenceline/agent:mine",
		"image.tag=mine,agent.digest=" + other: s.host + "/team/fenceline/agent:mine@" + other,
		"agent.digest=null":                    s.host + "/team/fenceline/agent:1.2.3@" + digest,
	} {
		out := helm("template", "fenceline", chart, "--set", values, "--show-only", "templates/agent-daemonset.yaml")
		check.Equal(t, strings.Count(out, "image: "+want+"\n"), 2, "%s: images %s of %s", values, want, out)
	}
	check.OK(t, must.Try(func() { r.plain(t.Context()) }))
	plain := string(r.files["fenceline.yaml"])
	check.Says(t, plain, "image: "+s.host+"/team/fenceline/controller:1.2.3@sha256:", "kind: Namespace", "kind: CustomResourceDefinition")
	check.That(t, !strings.Contains(plain, "helm.sh/hook"), "hooks of helm")
}
