// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"maps"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fenceline/fenceline/test/check"
)

// FuzzPrograms puts arbitrary frames through each program. No frame may make a run fail, none that a
// guard drops may pass on the way to the parent, and none that judge() drops may be a usual packet.
func FuzzPrograms(f *testing.F) {
	all := soft()
	maps.Copy(all, hard())
	for _, o := range all {
		f.Add(o.frame)
	}
	for _, frame := range honest() {
		f.Add(frame)
	}
	for _, frame := range usual() {
		f.Add(frame)
	}
	f.Add(eth(broadcast, podMAC, etherVLAN)) // ends within its tag
	b := newGuardedBench(f, guarded(SourcesEnforce))
	check.OK(f, b.SetTrusted(testSegment, nil, true))
	long := judged(f, guarded(SourcesEnforce))
	check.OK(f, long.SetTrusted(testSegment, nil, true))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 14 || len(frame) > 3000 {
			return // the kernel runs no such frame
		}
		verdicts := map[Where]uint32{}
		for _, where := range []Where{WhereGuardEgress, WhereGuardIngress, WhereObserverIngress, WhereObserverEgress} {
			verdict, err := b.program(where).Run(&ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)})
			if err != nil {
				return // too short for its ethertype
			}
			check.That(t, verdict == pass || verdict == drop || verdict == redirect, "%s: verdict %d", where, verdict)
			verdicts[where] = verdict
			want := long.verdict(where, frame)
			check.That(t, verdict == want, "%s: verdict %d on % x, judge() has %d", where, int32(verdict), frame, int32(want))
		}
		if verdicts[WhereGuardEgress] == drop && verdicts[WhereObserverEgress] != drop && string(frame[6:12]) != string(parentMAC) {
			t.Errorf("the guard drops % x, and the observer does not", frame)
		}
	})
}
