// SPDX-License-Identifier: Apache-2.0

package release

import (
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

func TestADELTellsAnInterfaceThatIsRemovedFromASandboxThatEnds(t *testing.T) {
	for _, row := range []struct {
		name         string
		since        time.Duration
		netns, ready bool
		want         ending
	}{
		{"the namespace is gone at once", 0, false, true, endOfSandbox},
		{"the namespace is gone, and the kubelet has not noticed yet", time.Minute, false, true, endOfSandbox},
		{"the runtime has not removed the namespace yet", 0, true, false, endUndecided},
		{"the kubelet may not have noticed yet", endingTime - 1, true, true, endUndecided},
		{"the sandbox lives on", endingTime, true, true, endOfInterface},
		{"another plugin holds up the end of the sandbox", endingTime, true, false, endOfSandbox},
		{"a DEL of long ago", 1 << 62, true, true, endOfInterface},
	} {
		t.Run(row.name, func(t *testing.T) {
			check.Equal(t, endingOf(endingFacts{row.since, row.netns, row.ready}), row.want, "got")
		})
	}
}
