// SPDX-License-Identifier: Apache-2.0

// Package version says which build of Fenceline a program is.
package version

import (
	"fmt"
	"runtime/debug"
)

// The linker sets these in builds of images: -X .../internal/version.release=0.1.0.
var release, commit string

// String returns release and commit of this program, such as "0.1.0 (commit 43e00f8)". A build
// without a release is "unreleased". Without a commit from the linker it is that of the checkout.
func String() string {
	info, _ := debug.ReadBuildInfo()
	return describe(release, commit, info)
}

func describe(release, commit string, info *debug.BuildInfo) string {
	if release == "" {
		release = "unreleased"
	}
	modified := ""
	if commit == "" && info != nil {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				modified = ", modified"
			}
		}
	}
	if commit == "" {
		commit = "unknown"
	}
	return fmt.Sprintf("%s (commit %s%s)", release, commit, modified)
}
