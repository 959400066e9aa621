// SPDX-License-Identifier: Apache-2.0

package event

import (
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/fenceline/fenceline/test/check"
)

func TestNotesAreCutToWhatTheAPIServerAccepts(t *testing.T) {
	for _, row := range []struct{ name, note, want string }{
		{"a short one", "address 100% free", "address 100% free"},
		{"as long as may be", strings.Repeat("x", 1024), strings.Repeat("x", 1024)},
		{"longer", strings.Repeat("x", 1025), strings.Repeat("x", 1021) + "..."},
		{"cut within a character", strings.Repeat("x", 1020) + "éé" + "x", strings.Repeat("x", 1020) + "..."},
	} {
		t.Run(row.name, func(t *testing.T) {
			told := events.NewFakeRecorder(1)
			Recorder{told}.Eventf(&corev1.Pod{}, nil, "Normal", "Reason", "Act", "%s", row.note)
			got := strings.TrimPrefix(<-told.Events, "Normal Reason ")
			check.That(t, got == row.want && len(got) <= 1024 && utf8.ValidString(got), "%d bytes %q", len(got), got)
		})
	}
}
