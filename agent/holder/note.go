// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/internal/event"
)

// note shortens an error so that it fits into an event. Of many candidates it only counts some, so
// that the others keep their whole reason. The runtime gets the whole error.
func note(err error) string {
	text := err.Error()
	if len(text) <= event.MaxNote {
		return text
	}
	families := noPoolErrors(err)
	left := event.MaxNote - len(text)
	for _, none := range families {
		left += len(none.Error())
	}
	// The shortest first: the others can use the bytes that it does not need.
	for i, none := range families {
		told := none.Within(left / (len(families) - i))
		text = strings.Replace(text, none.Error(), told, 1)
		left -= len(told)
	}
	return event.Cut(text)
}

// noPoolErrors returns the NoPoolErrors that an error wraps, the shortest first.
func noPoolErrors(err error) []*ipam.NoPoolError {
	var several interface{ Unwrap() []error }
	if !errors.As(err, &several) {
		if none := (*ipam.NoPoolError)(nil); errors.As(err, &none) {
			return []*ipam.NoPoolError{none}
		}
		return nil
	}
	var found []*ipam.NoPoolError
	for _, inner := range several.Unwrap() {
		found = append(found, noPoolErrors(inner)...)
	}
	slices.SortStableFunc(found, func(a, b *ipam.NoPoolError) int { return cmp.Compare(len(a.Error()), len(b.Error())) })
	return found
}
