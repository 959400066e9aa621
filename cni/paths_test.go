// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestMain lets the tests of this package put socket and spool anywhere.
func TestMain(m *testing.M) {
	if err := os.Setenv(dirsVariable, "/"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A network configuration may be a tenant's, and the plugin writes as root.
func TestANetworkConfigurationNamesNoPathElsewhere(t *testing.T) {
	for name, row := range map[string]struct {
		dirs, field, path string
		ok                bool
	}{
		"the default socket":                   {"", "socket", "/run/fenceline/agent.sock", true},
		"another socket beside it":             {"", "socket", "/run/fenceline/second.sock", true},
		"the default spool":                    {"", "spool", "/var/lib/fenceline/spool", true},
		"the socket of the runtime":            {"", "socket", "/run/containerd/containerd.sock", false},
		"a spool that is a directory of cron":  {"", "spool", "/etc/cron.d", false},
		"a path that climbs out":               {"", "spool", "/var/lib/fenceline/../../../etc/cron.d", false},
		"a directory of a similar name":        {"", "spool", "/var/lib/fenceline-evil/spool", false},
		"the directory itself":                 {"", "spool", "/var/lib/fenceline", false},
		"a directory that the node allows":     {"/opt/a:/opt/b", "spool", "/opt/b/spool", true},
		"a directory that the node forgot":     {"/opt/a:/opt/b", "spool", "/opt/c/spool", false},
		"an empty entry allows nothing":        {":", "spool", "/etc/cron.d", false},
		"a relative entry allows nothing":      {"etc", "spool", "/etc/cron.d", false},
		"the spool's directory for the socket": {"", "socket", "/var/lib/fenceline/agent.sock", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(dirsVariable, row.dirs)
			_, err := parseNetConf(fmt.Appendf(nil, `{"name":"n","type":"fenceline","ipam":{%q:%q}}`, row.field, row.path))
			if (err == nil) != row.ok {
				t.Fatalf("%v", err)
			}
			if err != nil && !strings.Contains(err.Error(), dirsVariable) {
				t.Errorf("it says %q, and not what to do", err)
			}
		})
	}
}
