// SPDX-License-Identifier: Apache-2.0

//go:build frames

package wireshark

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

const (
	probe = "ffffffffffff" + "02000000000a" + "0806" + "0001080006040001" + "02000000000a" + "00000000" + "000000000000" + "0a4d0002"
	// An ARP message whose addresses of Ethernet have 70 bytes.
	damaged = "ffffffffffff" + "02000000000a" + "0806" + "0001080046040001" + "02000000000a" + "00000000" + "000000000000" + "0a4d0002"
	// A neighbour advertisement, and one with another checksum.
	advertisement = "333300000001" + "02000000000a" + "86dd" + header + "58c2" + body
	miscounted    = "333300000001" + "02000000000a" + "86dd" + header + "18c2" + body
	header        = "6000000000203aff" + "fd990000000000000000000000000050" + "ff020000000000000000000000000001" + "8800"
	body          = "20000000" + "fd990000000000000000000000000050" + "020102000000000a"
)

func TestFramesAreCountedAndJudged(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string][]string // frames; an empty one is cut off
		want  Verdict
		fails string
	}{
		{"sound", map[string][]string{"a.pcap": {probe, probe}, "b.pcap": {probe}}, Verdict{Files: 2, Frames: 3, Distinct: 1}, ""},
		{"a damaged frame", map[string][]string{"a.pcap": {probe}, "b.pcap": {probe, damaged}}, Verdict{Files: 2, Frames: 3, Distinct: 2, Faults: []string{"b.pcap: "}}, ""},
		{"another checksum", map[string][]string{"a.pcap": {advertisement, miscounted}}, Verdict{Files: 1, Frames: 2, Distinct: 2, Faults: []string{"a.pcap: "}}, ""},
		{"a frame that is cut off", map[string][]string{"a.pcap": {advertisement, advertisement[:2*(14+20)]}}, Verdict{Files: 1, Frames: 2, Distinct: 2, Faults: []string{"a.pcap: "}}, ""},
		{"nothing was recorded", nil, Verdict{}, "there is none"},
		{"a file without frames", map[string][]string{"a.pcap": nil}, Verdict{}, "there is none"},
		{"a file that is cut off", map[string][]string{"a.pcap": {probe, ""}}, Verdict{}, "a.pcap: read frame 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, frames := range c.files {
				content := Header()
				for _, text := range frames {
					data := check.Value(hex.DecodeString(text))(t)
					record := Frame{At: time.Unix(100, 0), Data: data}.Record()
					if text == "" {
						record = record[:7]
					}
					content = append(content, record...)
				}
				check.OK(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
			}
			got, err := Judge(t.Context(), dir)
			if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Fatalf("error %v, want %q", err, c.fails)
			}
			same := slices.EqualFunc(got.Faults, c.want.Faults, strings.HasPrefix)
			got.Faults, got.Types, c.want.Faults = nil, nil, nil
			check.That(t, same && reflect.DeepEqual(got, c.want), "got %+v, want %+v", got, c.want)
		})
	}
}
