// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"errors"
	"testing"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

// FuzzDetection: a detection within its bounds, or a CNI error.
func FuzzDetection(f *testing.F) {
	for _, block := range []string{
		`null`, `{}`, `{"mode":"Enforce"}`, `{"mode":"off"}`, `{"probes":3}`, `{"probes":1e1}`, `{"probes":11}`, `{"interval":"50ms"}`,
		`{"interval":"1ns"}`, `{"interval":""}`, `{"ignoreMACs":["02:00:00:00:00:01","0200.0000.0001"]}`, `{"ignoreMACs":["02:00:00:00:00:00:00:01"]}`,
	} {
		f.Add([]byte(`{"ipam":{"conflictDetection":` + block + `}}`))
	}
	f.Fuzz(func(t *testing.T, stdin []byte) {
		d, err := parseDetection(stdin)
		if err != nil {
			e, ok := errors.AsType[*agentapi.Error](err)
			check.That(t, ok && e.Code == agentapi.CodeInvalidNetworkConfig, "%s: %T %v", stdin, err, err)
			return
		}
		p := d.params
		if d.mode != enforce && d.mode != observe && d.mode != off ||
			p.Rounds < leastRounds || p.Rounds > mostRounds || p.Interval < leastInterval || p.Interval > mostInterval {
			t.Errorf("%s: %+v", stdin, d)
		}
		for _, mac := range p.Ignore {
			check.That(t, len(mac) == 6, "%s: ignores %q", stdin, mac)
		}
	})
}
