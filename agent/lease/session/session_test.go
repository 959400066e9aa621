// SPDX-License-Identifier: Apache-2.0

package session

import (
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestASessionIsAMachineInOneBoot(t *testing.T) {
	boot := check.Value(BootID())(t)
	if got := ID("uid", boot); got != "uid/"+strings.TrimSpace(boot) || boot == "" {
		t.Errorf("session %q", got)
	}
}

func TestASessionContinues(t *testing.T) {
	for _, row := range []struct {
		name       string
		journalled []string
		want       string
	}{
		{"an empty journal", nil, "b/2"},
		{"after a restart of the agent", []string{"b/2"}, "b/2"},
		{"after the Node object was made again in the same boot", []string{"a/2"}, "a/2"},
		{"not over a reboot", []string{"b/1"}, "b/2"},
		{"with entries of an earlier boot left", []string{"a/1", "a/2"}, "a/2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := Continue("b/2", row.journalled); got != row.want {
				t.Errorf("continues as %q, want %q", got, row.want)
			}
		})
	}
}
