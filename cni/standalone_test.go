// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/fenceline/fenceline/test/check"
)

func TestACallWithRangesAndWithoutAPodStandsAlone(t *testing.T) {
	here, gone := filepath.Join(t.TempDir(), "agent.sock"), filepath.Join(t.TempDir(), "none", "agent.sock")
	const ranges = `"ranges":[[{"subnet":"10.0.0.0/24"}]]`
	for _, row := range []struct {
		name, top, ipam, args, container, socket string
		want                                     bool
		verb                                     string
	}{
		{"ranges", "", ranges, "", "c", here, true, "ADD"},
		{"the older form", "", `"subnet":"10.0.0.0/24"`, "", "c", here, true, "ADD"},
		{"the capability", `"runtimeConfig":{"ipRanges":[[{"subnet":"10.0.0.0/24"}]]},`, `"dataDir":"/x"`, "", "c", here, true, "ADD"},
		{"other arguments", "", ranges, "IgnoreUnknown=1;IP=10.0.0.7", "c", here, true, "ADD"},
		{"the arguments of podman", "", ranges, "IgnoreUnknown=1;K8S_POD_NAME=web", "c", here, true, "ADD"},
		{"the arguments of nerdctl", "", ranges, "IgnoreUnknown=1;NERDCTL_CNI_DHCP_HOSTNAME=web", "c", here, true, "ADD"},
		{"ranges and a pod", "", ranges, podArgs, "c", gone, false, "ADD"},
		{"ranges, a pod, and the setting", "", ranges + `,"standalone":true`, podArgs, "c", here, true, "ADD"},
		{"ranges and the other setting", "", ranges + `,"standalone":false`, "", "c", gone, false, "ADD"},
		{"no ranges", "", `"dataDir":"/x"`, "", "c", gone, false, "ADD"},
		{"a DEL without ranges on a node", "", `"dataDir":"/x"`, "", "c", here, false, "DEL"},
		{"a DEL without ranges elsewhere", "", `"dataDir":"/x"`, "", "c", gone, true, "DEL"},
		{"a DEL of a pod without ranges", "", `"dataDir":"/x"`, podArgs, "c", gone, false, "DEL"},
		{"GC and STATUS on a node", "", ranges, "", "", here, false, "STATUS"},
		{"GC and STATUS elsewhere", "", ranges, "", "", gone, true, "STATUS"},
		{"GC and STATUS on a node, by the setting", "", ranges + `,"standalone":true`, "", "", here, true, "STATUS"},
	} {
		t.Run(row.name, func(t *testing.T) {
			conf, err := parseNetConf(fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"net","type":"macvlan",%s"ipam":{"type":"fenceline","socket":%q,%s}}`, row.top, row.socket, row.ipam))
			check.OK(t, err)
			env := check.Value(parseEnvironment(row.args))(t)
			c := &call{args: &skel.CmdArgs{ContainerID: row.container}, conf: conf, env: env}
			check.Equal(t, c.standsAlone(row.verb), row.want, "got")
		})
	}
}
