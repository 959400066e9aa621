// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package bpf

import "testing"

func TestSocketsAreGuardedOnIPVLAN(t *testing.T) {
	refusesSockets(t, Options{}, (*netns).ipvlanPod)
}
