// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"testing"

	"github.com/fenceline/fenceline/test/capture"
)

func TestSpeakersForAnAddressTakeTurns(t *testing.T) {
	among := (&act{scenario: Scenario{number: int(disputed.As4()[2])}}).addresses()
	other := speech(2, newMAC)
	other.Speaks = append(other.Speaks[:0:0], among.Addr().Next())
	abroad := other
	abroad.Speaks = append(abroad.Speaks[:0:0], underlay.Addr().Next())
	for _, tc := range []struct {
		name    string
		frames  []capture.Frame
		problem string
	}{
		{"one speaker speaks as often as it likes", []capture.Frame{speech(1, zombieMAC), speech(2, zombieMAC)}, ""},
		{"a second one follows the first", []capture.Frame{speech(1, zombieMAC), speech(2, newMAC), speech(3, newMAC)}, ""},
		{"a third one follows the second", []capture.Frame{speech(1, zombieMAC), speech(2, newMAC), speech(3, parentMAC)}, ""},
		{"the first is heard again after the second has begun", []capture.Frame{speech(1, zombieMAC), speech(2, newMAC), speech(2.5, zombieMAC)}, "500µs after"},
		{"the first comes back after the second has ended", []capture.Frame{speech(1, zombieMAC), speech(2, newMAC), speech(900, zombieMAC)}, "two speakers"},
		{"speakers for other addresses do not count", []capture.Frame{speech(1, zombieMAC), other, speech(3, zombieMAC)}, ""},
		{"claims speak for nobody", []capture.Frame{speech(1, zombieMAC), claimFrame(2, "ul-n3", "claim"), speech(3, zombieMAC)}, ""},
		{"addresses of others are not judged", []capture.Frame{abroad, func() capture.Frame { f := abroad; f.Source = zombieMAC; return f }(), abroad}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) { expectProblem(t, takeTurns(tc.frames, among), tc.problem) })
	}
}
