// SPDX-License-Identifier: Apache-2.0

//go:build bench && kernel

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// The time of a stand-alone ADD beside host-local's, in turns: without a probe, and with one.
func TestTimeOfAStandAloneADD(t *testing.T) {
	const rounds = 200
	l := newLAN(t)
	h, pod := l.host(t, "host"), namespace(t, "pod")
	if err := pod.Plug("eth0", nil, l.sw, "podport", "sw"); err != nil {
		t.Fatal(err)
	}
	const window = 30 * time.Millisecond
	kinds := []struct{ name, who, ipam, netns string }{
		{"host-local", hostLocal, small, ""},
		{"without a probe", pluginType, detecting(`"mode":"Off"`), ""},
		{"with a window of 30 ms", pluginType, detecting(`"interval":"10ms"`), pod.Path()},
	}
	took := map[string][]time.Duration{}
	for i := range rounds {
		for j := range kinds {
			k := kinds[(i+j)%len(kinds)]
			conf := strings.Replace(loneConf(h.data, k.ipam), `"type":"fenceline"`, fmt.Sprintf(`"type":%q`, k.who), 1)
			start := time.Now()
			out, err := callPlugin(t, l.bin, k.who, referenceCall{verb: "ADD", netns: k.netns}, conf)
			took[k.name] = append(took[k.name], time.Since(start))
			if err != nil {
				t.Fatalf("%s: %v %s", k.name, err, out)
			}
			if out, err := callPlugin(t, l.bin, k.who, referenceCall{verb: "DEL"}, conf); err != nil {
				t.Fatalf("%s: %v %s", k.name, err, out)
			}
		}
	}
	median := func(name string) time.Duration {
		slices.Sort(took[name])
		return took[name][rounds/2]
	}
	reference, plain, probed := median(kinds[0].name), median(kinds[1].name), median(kinds[2].name)
	t.Logf("p50 of %d ADDs in turns: host-local %s; without a probe %s, %.2f × (goal 1.3); with a window of %s %s, window + %s (goal 10 ms)",
		rounds, reference, plain, float64(plain)/float64(reference), window, probed, probed-window)
}
