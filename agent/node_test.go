package main

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// A node that is out of files must not give up what it keeps ready for it.
func TestAnInterfaceThatCannotBeLookedForIsNotGone(t *testing.T) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: files.Max}); err != nil {
		t.Fatal(err)
	}
	_, exists, err := parentIndex("lo")
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if err == nil {
		t.Errorf("exists: %v", exists)
	}
	if _, exists, err := parentIndex("nowhere"); exists || err != nil {
		t.Errorf("of none: %v, %v", exists, err)
	}
}

func TestTheParentsOfAPoolBestFirst(t *testing.T) {
	a := newAgent(t, 1)
	lo, exists, err := parentIndex("lo")
	if err != nil || !exists {
		t.Fatal("there is no lo")
	}
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "v4"}, Spec: v1alpha1.IPPoolSpec{Parents: []string{"none", "lo"}}}
	if got, err := a.parents(pool); err != nil || len(got) == 0 || got[0] != lo {
		t.Errorf("got %v, %v", got, err)
	}
	other := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	if got, err := a.parents(other); err != nil || len(got) != 0 {
		t.Errorf("of a pool without pods here: %v, %v", got, err)
	}
	if _, _, err := a.segmentOf(other, ""); err == nil || !strings.Contains(err.Error(), "spec.parents") {
		t.Errorf("no parent at all: %v", err)
	}
}

func second(addr string) segment.Conflict {
	return segment.Conflict{
		Holding: segment.Holding{Parent: 7, Addr: netip.MustParseAddr(addr)},
		MAC:     net.HardwareAddr{2, 0xbd, 0, 0, 0, 1}, Source: segment.SourceGuard,
	}
}

func TestASecondSpeakerIsRecordedOnTheLease(t *testing.T) {
	l := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: "10.0.0.2"}, Spec: v1alpha1.IPLeaseSpec{
		Address: "10.0.0.2", State: v1alpha1.StateBound, NodeName: "n1", Session: "s",
	}}
	a := newAgent(t, 1, l)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.recordConflicts(ctx) }()
	a.onConflict(second("10.0.0.2"))
	for range 2 { // the second is taken once the first is recorded
		a.conflicts <- conflict{second("10.0.0.2"), "10.0.0.2"}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := a.mgr.GetClient().Get(t.Context(), client.ObjectKeyFromObject(l), l); err != nil {
		t.Fatal(err)
	}
	if c := l.Spec.Conflict; c == nil || c.MAC != "02:bd:00:00:00:01" || c.Source != "guard" {
		t.Errorf("conflict %+v", c)
	}
}

func TestConflictsNeverBlockTheEventLoop(t *testing.T) {
	a := newAgent(t, 1)
	for range 100 { // nobody records them
		a.onConflict(second("10.0.0.2"))
		a.onConflict(second("10.0.0.99")) // not held here
	}
	if len(a.conflicts) != cap(a.conflicts) {
		t.Errorf("%d wait", len(a.conflicts))
	}
}

func TestHoldingsOfAPoolThatIsGoneAreDefended(t *testing.T) {
	a := newAgent(t, 3)
	held := a.holdings()
	if len(held) != 3 || held[0].Mode != v1alpha1.ModeEnforce || held[0].Token != 5 || held[0].Parent != 7 {
		t.Errorf("holdings %+v", held)
	}
}

// Called once a second, and for each conflict that is reported.
func BenchmarkHoldingsOf250Pods(b *testing.B) {
	a := newAgent(b, 250, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "v4"}})
	b.ReportAllocs()
	for b.Loop() {
		if len(a.holdings()) != 250 {
			b.Fatal("wrong")
		}
	}
}
