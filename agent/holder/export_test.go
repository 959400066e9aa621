// SPDX-License-Identifier: Apache-2.0

package holder

// TakesAPIServerForAway reports whether the next ADD asks for a sign of life first.
func (h *Holders) TakesAPIServerForAway() bool { return h.away.Load() }
