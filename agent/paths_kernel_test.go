// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"fmt"
	"os"
	"testing"
)

// TestMain lets the plugin use the sockets of these tests, which are in temporary directories.
func TestMain(m *testing.M) {
	if err := os.Setenv("FENCELINE_CNI_DIRS", "/"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
