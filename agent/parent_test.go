package main

import (
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/fenceline/fenceline/agent/segment"
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
