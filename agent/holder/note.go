package holder

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/event"
)

// note is what of an error fits into an event. Of many candidates some are
// counted, so that the others keep all of their reason; the runtime gets the
// whole error.
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
	// The shortest first: what it does not need is the others'.
	for i, none := range families {
		told := none.Within(left / (len(families) - i))
		text = strings.Replace(text, none.Error(), told, 1)
		left -= len(told)
	}
	return event.Cut(text)
}

// noPoolErrors returns those that an error wraps, the shortest first.
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
