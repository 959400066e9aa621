// SPDX-License-Identifier: Apache-2.0

//go:build bench

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
)

// What a runtime pays for one call of an IPAM plugin, from exec to exit: ADD and DEL with an agent that
// answers at once, in turns with host-local. Benchmarks of the agent measure its own share.
func TestTimeOfTheProcess(t *testing.T) {
	dir := binaries(t)
	n := newNode(t)
	listen(t, n, answers{add: dualStack()})
	configurations := map[string][]byte{
		pluginType: n.conf("macvlan", "1.1.0", ""),
		"host-local": fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"underlay","type":"macvlan","ipam":{"type":"host-local",
			"dataDir":%q,"ranges":[[{"subnet":"10.0.0.0/8"}],[{"subnet":"2001:db8::/64"}]]}}`, filepath.Join(n.dir, "host-local")),
	}
	took := map[string][]time.Duration{}
	for i := range figure.Size(200, 3) {
		for name, configuration := range configurations {
			for _, verb := range []string{"ADD", "DEL"} {
				plugin := exec.CommandContext(t.Context(), filepath.Join(dir, name))
				plugin.Env = []string{
					"CNI_COMMAND=" + verb, fmt.Sprintf("CNI_CONTAINERID=c%d", i), "CNI_IFNAME=eth0",
					"CNI_PATH=" + dir, "CNI_NETNS=/run/netns/none", "CNI_ARGS=" + podArgs, dirsVariable + "=" + n.dir,
				}
				plugin.Stdin = bytes.NewReader(configuration)
				start := time.Now()
				out, err := plugin.Output()
				took[name] = append(took[name], time.Since(start))
				check.Must(t, err == nil, "%s %s: %v\n%s", name, verb, err, out)
			}
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-12s %6s %9s %9s %8s\n", "", "calls", "p50", "p99", "MB")
	median, size := map[string]float64{}, map[string]float64{}
	for _, name := range []string{"host-local", pluginType} {
		all := took[name]
		info := check.Value(os.Stat(filepath.Join(dir, name)))(t)
		median[name], size[name] = figure.Milliseconds(figure.Median(all)), float64(info.Size())/1e6
		fmt.Fprintf(&table, "%-12s %6d %6.1f ms %6.1f ms %8.1f\n", name, len(all), median[name],
			figure.Milliseconds(figure.Percentile(all, 99)), size[name])
	}
	t.Log(table.String())
	figure.Report(t, "one call of the plugin's process, p50", median[pluginType]/median["host-local"], "× host-local", figure.AtMost(1.5))
	figure.Report(t, "size of the plugin", size[pluginType], "MB")
}
