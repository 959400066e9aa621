// SPDX-License-Identifier: Apache-2.0

//go:build bench && kernel

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
	"github.com/fenceline/fenceline/test/network"
)

// The time of a stand-alone ADD beside host-local's, in turns: without a probe, and with one from an
// interface that is down, as plugins leave theirs for IPAM.
func TestTimeOfAStandAloneADD(t *testing.T) {
	rounds := figure.Size(200, 2)
	l := newLAN(t)
	h, pod := l.host(t, "host"), network.New(t, "pod")
	l.Plug(t, pod, "eth0", nil, "pod")
	const window = 30 * time.Millisecond
	probing := `,"conflictDetection":{"interval":"10ms"}`
	kinds := []struct{ name, who, ipam, netns string }{
		{"host-local", hostLocal, small, ""},
		{"without a probe", pluginType, detecting(`"mode":"Off"`), ""},
		{"with a probe", pluginType, small + probing, pod.Path()},
		{"with a probe of both families", pluginType, dual + probing, pod.Path()},
	}
	took := map[string][]time.Duration{}
	for i := range rounds {
		for j := range kinds {
			k := kinds[(i+j)%len(kinds)]
			conf := strings.Replace(loneConf(h.data, k.ipam), `"type":"fenceline"`, fmt.Sprintf(`"type":%q`, k.who), 1)
			check.OK(t, pod.SetUp("eth0", false))
			start := time.Now()
			out, err := callPlugin(t, l.bin, k.who, referenceCall{verb: "ADD", netns: k.netns}, conf)
			took[k.name] = append(took[k.name], time.Since(start))
			check.Must(t, err == nil, "%s: %v %s", k.name, err, out)
			out, err = callPlugin(t, l.bin, k.who, referenceCall{verb: "DEL"}, conf)
			check.Must(t, err == nil, "%s: %v %s", k.name, err, out)
		}
	}
	at := func(name string, percent int) time.Duration {
		return figure.Percentile(took[name], percent).Round(10 * time.Microsecond)
	}
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-30s %8s %8s\n", fmt.Sprintf("%d ADDs in turns", rounds), "p50", "p90")
	for _, k := range kinds {
		fmt.Fprintf(&table, "%-30s %8s %8s\n", k.name, at(k.name, 50), at(k.name, 90))
	}
	t.Log(table.String())
	figure.Report(t, "stand-alone ADD without a probe, p50", at(kinds[1].name, 50).Seconds()/at(kinds[0].name, 50).Seconds(), "× host-local", figure.AtMost(1.3))
	figure.Report(t, "stand-alone ADD past the window of its probe, p50", figure.Milliseconds(at(kinds[2].name, 50)-window), "ms", figure.AtMost(10))
	figure.Report(t, "the same with probes of both families", figure.Milliseconds(at(kinds[3].name, 50)-window), "ms", figure.AtMost(10))
}
