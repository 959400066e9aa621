//go:build bench

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BenchmarkExec measures what a runtime pays for one call of an IPAM plugin: from
// exec to exit, ADD and DEL, with an agent that answers at once, beside host-local.
// What the agent itself takes is measured at the agent.
func BenchmarkExec(b *testing.B) {
	dir := binaries(b)
	n := newNode(b)
	listen(b, n, answers{add: dualStack()})
	configurations := map[string][]byte{
		pluginType: n.conf("macvlan", "1.1.0", ""),
		"host-local": fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"underlay","type":"macvlan","ipam":{"type":"host-local",
			"dataDir":%q,"ranges":[[{"subnet":"10.0.0.0/8"}],[{"subnet":"2001:db8::/64"}]]}}`, filepath.Join(n.dir, "host-local")),
	}
	for _, name := range []string{"host-local", pluginType} {
		b.Run(name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				for _, verb := range []string{"ADD", "DEL"} {
					plugin := exec.CommandContext(b.Context(), filepath.Join(dir, name))
					plugin.Env = []string{
						"CNI_COMMAND=" + verb, fmt.Sprintf("CNI_CONTAINERID=c%d", i), "CNI_IFNAME=eth0",
						"CNI_PATH=" + dir, "CNI_NETNS=/run/netns/none", "CNI_ARGS=" + podArgs,
					}
					plugin.Stdin = bytes.NewReader(configurations[name])
					if out, err := plugin.Output(); err != nil {
						b.Fatalf("%s %s: %v\n%s", name, verb, err, out)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(2*b.N), "µs/call")
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(info.Size())/1e6, "MB")
		})
	}
}
