// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"strings"
	"time"
)

// Figure is one thing that was measured or counted.
type Figure struct{ Name, Value string }

// Figures are in the order in which they were taken.
type Figures []Figure

// String puts one figure on each line.
func (f Figures) String() string {
	width := 0
	for _, figure := range f {
		width = max(width, len(figure.Name))
	}
	var b strings.Builder
	for _, figure := range f {
		fmt.Fprintf(&b, "%-*s  %s\n", width, figure.Name, figure.Value)
	}
	return b.String()
}

// add rounds durations to what a reader can use.
func (f *Figures) add(name string, value any) {
	if d, ok := value.(time.Duration); ok {
		value = round(d)
	}
	*f = append(*f, Figure{name, fmt.Sprint(value)})
}

func round(d time.Duration) time.Duration {
	switch magnitude := d.Abs(); {
	case magnitude >= 10*time.Second:
		return d.Round(100 * time.Millisecond)
	case magnitude >= 100*time.Millisecond:
		return d.Round(10 * time.Millisecond)
	case magnitude >= time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}
