// SPDX-License-Identifier: Apache-2.0

// Package event bounds the notes of events: the API server refuses an event whose
// note is longer than 1024 bytes.
package event

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
)

// MaxNote is the length of the longest note that the API server accepts, in bytes.
const MaxNote = 1024

// Recorder shortens notes that are too long. Put the important part of a note first.
type Recorder struct{ To events.EventRecorder }

// Eventf implements events.EventRecorder.
func (r Recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	r.To.Eventf(regarding, related, kind, reason, action, "%s", Cut(fmt.Sprintf(note, args...)))
}

// Cut shortens a text to the length of a note.
func Cut(text string) string {
	if len(text) <= MaxNote {
		return text
	}
	return strings.ToValidUTF8(text[:MaxNote-3], "") + "..."
}

// Pod names a pod for an event. The pod need not exist any more.
func Pod(namespace, name, uid string) runtime.Object {
	p := &corev1.Pod{}
	p.APIVersion, p.Kind = "v1", "Pod"
	p.Namespace, p.Name, p.UID = namespace, name, types.UID(uid)
	return p
}

// Node names a node for an event.
func Node(name string) runtime.Object {
	n := &corev1.Node{}
	n.APIVersion, n.Kind, n.Name = "v1", "Node", name
	return n
}
