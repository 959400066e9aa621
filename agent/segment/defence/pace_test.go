// SPDX-License-Identifier: Apache-2.0

package defence

import (
	"fmt"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestRecordsOfAnAddressBackOffToTenMinutes(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(1000, 0))
	p := newPace(c)
	var pauses []time.Duration
	last := c.Now()
	for range 6 * 3600 / 10 { // a conflict every 10 s for six hours
		if p.allow("10.0.0.2") {
			pauses = append(pauses, c.Since(last))
			last = c.Now()
		}
		c.Step(10 * time.Second)
	}
	if fmt.Sprint(pauses[:8]) != "[0s 10s 20s 40s 1m20s 2m40s 5m20s 10m0s]" || pauses[len(pauses)-1] != 10*time.Minute {
		t.Errorf("pauses %v", pauses)
	}
	c.Step(recordForget)
	check.That(t, p.allow("10.0.0.2"), "a conflict after a long peace is not recorded at once")
}

func TestTheRecordsOfANodeAreBounded(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(1000, 0))
	p := newPace(c)
	records := 0
	for second := range 60 { // 250 addresses, of which each has a conflict every second
		for i := range 250 {
			if p.allow(fmt.Sprintf("10.0.0.%d", i)) {
				records++
			}
		}
		check.That(t, second != 0 || records == recordBurst, "%d records at once, want %d", records, recordBurst)
		c.Step(time.Second)
	}
	most := recordBurst + 60*recordRate
	check.That(t, records <= most && records >= most-2, "%d records in a minute, want %d", records, most)
	check.That(t, len(p.leases) == 250, "%d addresses are known", len(p.leases))
	c.Step(recordForget)
	p.allow("10.0.0.1")
	check.That(t, len(p.leases) == 1, "%d addresses are remembered after a long peace", len(p.leases))
}
