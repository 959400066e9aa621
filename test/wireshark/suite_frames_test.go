// SPDX-License-Identifier: Apache-2.0

//go:build frames

package wireshark_test

import (
	"os"
	"testing"

	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/wireshark"
)

// The networks of an earlier run have recorded their frames.
func TestTsharkFindsNoFaultInTheFramesOfASuite(t *testing.T) {
	v, err := wireshark.Judge(t.Context(), os.Getenv(network.RecordVariable))
	if err != nil {
		t.Fatal(err)
	}
	t.Log(v)
	if len(v.Faults) > 0 {
		t.Fail()
	}
}
