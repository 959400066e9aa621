// SPDX-License-Identifier: Apache-2.0

package poolset

// First returns the n lowest addresses of the set, or all if it has fewer.
func (s Set) First(n uint64) Set {
	var part []span
	for _, sp := range s.spans {
		if n == 0 {
			break
		}
		if have := size(sp); have > n {
			sp.to = advance(sp.from, n-1)
		}
		part = append(part, sp)
		n -= min(n, size(sp))
	}
	return newSet(part)
}

// Last returns the n highest addresses of the set, or all if it has fewer.
func (s Set) Last(n uint64) Set {
	if n >= s.len {
		return s
	}
	return s.Minus(s.First(s.len - n))
}

// Union returns the addresses that are in one of the sets.
func Union(sets ...Set) Set {
	var spans []span
	for _, s := range sets {
		spans = append(spans, s.spans...)
	}
	return newSet(spans)
}
