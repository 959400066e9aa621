// SPDX-License-Identifier: Apache-2.0

package holder

// TakesAPIServerForAway reports whether the next ADD asks for a sign of life first.
func (h *Holders) TakesAPIServerForAway() bool { return h.away.Load() }

// MakeOptional lets no rule that speaks against a candidate of a source end an ADD.
func (h *Holders) MakeOptional(name string) {
	for i := range h.sources {
		h.sources[i].Refuses = h.sources[i].Refuses && h.sources[i].Name != name
	}
}
