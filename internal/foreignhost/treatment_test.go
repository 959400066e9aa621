// SPDX-License-Identifier: Apache-2.0

package foreignhost

import (
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestDecide(t *testing.T) {
	for _, row := range []struct {
		name          string
		recorded, met int
		want          Action
	}{
		{"a host that was never met", 0, 0, Quarantine},
		{"a host of two addresses", 2, 2, Quarantine},
		{"a third one is recorded, a fourth one is not", 3, 3, PassOver},
		{"other nodes recorded them, or an earlier agent", 3, 0, PassOver},
		{"the whole pool is recorded", 201, 0, PassOver},
		{"the tenth address in the interval", 3, 9, PassOver},
		{"the eleventh", 3, 10, Stop},
		{"the eleventh, in several pools", 1, 10, Stop},
	} {
		t.Run(row.name, func(t *testing.T) { check.Equal(t, Decide(row.recorded, row.met), row.want, "got") })
	}
}
