package holder

import (
	"testing"
	"time"

	"github.com/fenceline/fenceline/agent/journal"
)

// After an outage a node has a GET to make for each pod, and others wait for
// what it gives back.
func TestWhatGivesAddressesBackIsResumedFirst(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.3"))
	first, second := r.pod("web-a", "u1"), r.pod("web-b", "u2")
	r.add(first)
	given := r.add(second)[0]
	e, _ := r.book.Get(second.ContainerID, second.Interface)
	e.Phase = journal.Releasing
	if err := r.book.Put(e); err != nil {
		t.Fatal(err)
	}
	r.pending.add(attachment{first.ContainerID, first.Interface}, attachment{second.ContainerID, second.Interface})
	var asked []string
	r.api.before = func(_, name string) error {
		asked = append(asked, name)
		return nil
	}
	if left, err := r.resume(t.Context(), time.Second); left > 0 || err != nil {
		t.Fatalf("%d left: %v", left, err)
	}
	if len(asked) == 0 || asked[0] != given {
		t.Errorf("asked for %v, want %s first", asked, given)
	}
}
