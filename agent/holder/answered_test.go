package holder

import "testing"

func TestNothingIsAnnouncedOfAnInterfaceThatWentBeforeTheAnswer(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	if _, err := r.Holders.Add(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	if r.wire.took("announce 10.0.0.2") {
		t.Error("it is announced before the plugin has its answer")
	}
	r.del(web)
	r.Answered(web.Attachment)
	r.Wait()
	if r.wire.took("announce 10.0.0.2") || len(r.kernel.pinned) > 0 {
		t.Error("it is announced or pinned after its DEL")
	}
}

func TestWhatIsLeftAfterAnAnswerIsDoneOnce(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	r.add(web)
	r.Wait()
	r.Answered(web.Attachment)
	r.Wait()
	if n := r.wire.times("announce 10.0.0.2"); n != 1 {
		t.Errorf("announced %d times", n)
	}
}
