// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"embed"
	"io/fs"
)

// dist is built by `make ui` from web. It is in git, so nobody who builds the controller needs Node.
//
//go:embed dist
var dist embed.FS

// Assets returns the files of the page.
func Assets() (fs.FS, error) { return fs.Sub(dist, "dist") }
