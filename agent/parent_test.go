package main

import (
	"errors"
	"net"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

func TestWhichParentsExist(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if !parentExists(lo.Index) {
		t.Error("lo does not")
	}
	const beyond = 1<<31 - 1
	if parentExists(beyond) {
		t.Errorf("interface %d does", beyond)
	}
}

// unattachable is a kernel that takes no observer for the moment.
type unattachable struct {
	segment.Kernel
	asked []int
}

func (k *unattachable) AttachObserver(parent int) error {
	k.asked = append(k.asked, parent)
	return errors.New("too many open files")
}

// R3: nobody repeats the claims of pods on a parent that is not open.
func TestAParentThatCouldNotBeOpenedAtTheStartIsTriedAgain(t *testing.T) {
	a := newAgent(t, 2)
	k := &unattachable{}
	a.segments = segment.New(segment.Config{Kernel: k})
	a.attachAll()
	a.attachAll()
	if !slices.Equal(k.asked, []int{7, 7}) {
		t.Errorf("asked for %v", k.asked)
	}
}

// An interface may have been renamed since the ADD, and another one have its name: silence there proves nothing.
func TestThePodsOfAPoolTellItsParentWhateverItIsCalledNow(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	const gone = 1<<31 - 1
	for _, row := range []struct {
		name   string
		index  int
		opened []int
	}{
		{"eth1", lo.Index, []int{lo.Index}},
		{"lo", gone, nil},
	} {
		a := newAgent(t, 1)
		e := *a.journal.All()[0]
		e.Parent, e.ParentIndex = row.name, row.index
		if err := a.journal.Put(e); err != nil {
			t.Fatal(err)
		}
		k := &unattachable{}
		a.segments = segment.New(segment.Config{Kernel: k})
		if _, guessed, err := a.segmentOf(&v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "v4"}}, ""); err == nil || guessed || !slices.Equal(k.asked, row.opened) {
			t.Errorf("%s of old: opened %v, guessed %v, %v", row.name, k.asked, guessed, err)
		}
	}
}
