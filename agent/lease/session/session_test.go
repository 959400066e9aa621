// SPDX-License-Identifier: Apache-2.0

package session

import (
	"strings"
	"testing"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestASessionIsAMachineInOneBoot(t *testing.T) {
	boot := check.Value(BootID())(t)
	got := ID("uid", boot)
	check.That(t, got == "uid/"+strings.TrimSpace(boot) && boot != "", "session %q", got)
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
			var entries []*journal.Entry
			for _, session := range row.journalled {
				entries = append(entries, &journal.Entry{Session: session})
			}
			got := Identify(journal.Identity{NodeUID: "b", Cluster: "c"}, "2", entries)
			check.Equal(t, got, Identity{Session: row.want, Cluster: "c"}, "continues as")
		})
	}
}

func TestABootEndsAHolderWithoutAGuard(t *testing.T) {
	for name, row := range map[string]struct {
		node, session string
		guarded, want bool
	}{
		"of this boot":               {"n1", "u/b2", false, true},
		"of an earlier boot":         {"n1", "u/b1", false, false},
		"of another node":            {"n2", "u/b1", false, true},
		"a guard enforces its fence": {"n1", "u/b2", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := &v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{Previous: &v1alpha1.PreviousHolder{
				Node: row.node, Session: row.session, PodUID: "p", Guarded: row.guarded,
			}}}
			check.Equal(t, MaySpeakUnfenced(l, "n1", "u/b2"), row.want, "may speak:")
		})
	}
}
