// SPDX-License-Identifier: Apache-2.0

package version

import (
	"runtime/debug"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestAProgramNamesItsReleaseAndItsCommit(t *testing.T) {
	checkout := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "43e00f8"}, {Key: "vcs.modified", Value: "true"}}}
	for name, tc := range map[string]struct {
		release, commit string
		info            *debug.BuildInfo
		version, from   string
	}{
		"an image":                  {"0.1.0", "43e00f8", nil, "0.1.0", "43e00f8"},
		"a build in a checkout":     {"", "", checkout, "unreleased", "43e00f8, modified"},
		"a build without a history": {"", "", &debug.BuildInfo{}, "unreleased", "unknown"},
	} {
		version, from := parts(tc.release, tc.commit, tc.info)
		check.That(t, version == tc.version && from == tc.from, "%s: %q, %q, want %q, %q", name, version, from, tc.version, tc.from)
	}
}
