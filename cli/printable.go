// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// printable writes characters that a terminal or an editor obeys, such as ESC and those that turn the
// direction of text, as \u001b. So an annotation or an event of a tenant cannot change what the reader
// sees. JSON stays JSON.
type printable struct{ io.Writer }

// Write writes whole characters: text must not end inside one.
func (p printable) Write(text []byte) (int, error) {
	if _, err := io.WriteString(p.Writer, shown(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// shown returns text without the characters that a terminal obeys, but for line breaks and tabs.
func shown(text string) string {
	var all []byte
	for _, r := range text {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			all = utf8.AppendRune(all, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			all = fmt.Appendf(all, `\u%04x`, unit)
		}
	}
	return string(all)
}
