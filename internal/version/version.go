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
	release, commit := Parts()
	return fmt.Sprintf("%s (commit %s)", release, commit)
}

// Parts returns the release and the commit of String.
func Parts() (string, string) {
	info, _ := debug.ReadBuildInfo()
	return parts(release, commit, info)
}

func parts(release, commit string, info *debug.BuildInfo) (string, string) {
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
	return release, commit + modified
}
