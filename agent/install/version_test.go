// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

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
		t.Run(row.rule, func(t *testing.T) {
			check.Equal(t, VersionFor(row.runtime), row.want, "%s gets", row.runtime)
		})
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
