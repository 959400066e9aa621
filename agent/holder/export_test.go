// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"time"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// BeginADD makes an ADD known that the test plays.
func (h *Holders) BeginADD(a agentapi.Attachment) { h.overtaken.begin(a) }

// Overtake is what a verifier does to an ADD.
func (h *Holders) Overtake(a agentapi.Attachment) { h.overtaken.add(a) }

// IsOvertaken reports whether a verifier has overtaken an ADD.
func (h *Holders) IsOvertaken(a agentapi.Attachment) bool { return h.overtaken.has(a) }

// TakesAPIServerForAway reports whether the next ADD asks for a sign of life first.
func (h *Holders) TakesAPIServerForAway() bool { return h.away.Load() }

// MakeOptional lets no rule that speaks against a candidate of a source end an ADD.
func (h *Holders) MakeOptional(name string) {
	for i := range h.sources {
		h.sources[i].refuses = h.sources[i].refuses && h.sources[i].name != name
	}
}

// EndingTime and the values of Ending are exported for tests.
const (
	EndingTime     = endingTime
	EndOfSandbox   = endOfSandbox
	EndOfInterface = endOfInterface
	EndUndecided   = endUndecided
)

// Ending is exported for tests.
type Ending = ending

// EndingOf decides from facts.
func EndingOf(since time.Duration, netnsLives, sandboxReady bool) Ending {
	return endingOf(endingFacts{since, netnsLives, sandboxReady})
}
