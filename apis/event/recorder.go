// Package event bounds what events tell: the API server refuses a note that is
// longer than 1024 bytes, and the event with it.
package event

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// MaxNote is the length of a note that the API server accepts, in bytes.
const MaxNote = 1024

// Recorder cuts notes that are too long. What a note says first is what matters.
type Recorder struct{ To events.EventRecorder }

// Eventf implements events.EventRecorder.
func (r Recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	r.To.Eventf(regarding, related, kind, reason, action, "%s", Cut(fmt.Sprintf(note, args...)))
}

// Cut cuts a text to what fits into a note.
func Cut(text string) string {
	if len(text) <= MaxNote {
		return text
	}
	return strings.ToValidUTF8(text[:MaxNote-3], "") + "..."
}
