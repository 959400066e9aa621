// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/testr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// unattachable is a kernel that attaches no observer now.
type unattachable struct {
	segment.Kernel
	asked []int
}

func (k *unattachable) AttachObserver(parent int) error {
	k.asked = append(k.asked, parent)
	return errors.New("too many open files")
}

// newParents is node n1, with pods of pool v4 on these parents.
func newParents(t *testing.T, k segment.Kernel, parents ...journal.Entry) *Parents {
	t.Helper()
	return &Parents{
		Node: "n1", Segments: segment.New(segment.Config{Kernel: k}), Log: testr.New(t),
		Bound: func() iter.Seq[*journal.Entry] {
			return func(yield func(*journal.Entry) bool) {
				for _, e := range parents {
					e.Addresses = []journal.Address{{Pool: "v4"}}
					if !yield(&e) {
						return
					}
				}
			}
		},
	}
}

func pool(name string, parents ...string) *v1alpha1.IPPool {
	return &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Parents: parents}}
}

func lo(t *testing.T) int {
	t.Helper()
	index, exists, err := Index("lo")
	if err != nil || !exists {
		t.Fatal("there is no lo")
	}
	return index
}

func TestTheParentsOfAPoolBestFirst(t *testing.T) {
	p := newParents(t, &unattachable{}, journal.Entry{Parent: "eth1", ParentIndex: 7})
	if got, err := p.of(pool("v4", "none", "lo")); err != nil || len(got) == 0 || got[0] != lo(t) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := p.of(pool("other")); err != nil || len(got) != 0 {
		t.Errorf("of a pool without pods here: %v, %v", got, err)
	}
	if _, _, err := p.Segment(pool("other"), ""); err == nil || !strings.Contains(err.Error(), "spec.parents") {
		t.Errorf("no parent at all: %v", err)
	}
}

// R3: only an open segment repeats the claims of the pods on its parent.
func TestAParentThatCouldNotBeOpenedAtTheStartIsTriedAgain(t *testing.T) {
	k := &unattachable{}
	p := newParents(t, k, journal.Entry{Parent: "eth1", ParentIndex: 7}, journal.Entry{Parent: "eth1", ParentIndex: 7})
	p.attach()
	p.attach()
	if !slices.Equal(k.asked, []int{7, 7}) {
		t.Errorf("asked for %v", k.asked)
	}
}

// An interface may have been renamed since the ADD, and another interface may
// have its name now: silence there proves nothing.
func TestTheParentOfAPoolsPodsIsFoundByIndexNotByName(t *testing.T) {
	const gone = 1<<31 - 1
	for _, row := range []struct {
		name   string
		index  int
		opened []int
	}{
		{"eth1", lo(t), []int{lo(t)}},
		{"lo", gone, nil},
	} {
		k := &unattachable{}
		p := newParents(t, k, journal.Entry{Parent: row.name, ParentIndex: row.index})
		if _, guessed, err := p.Segment(pool("v4"), ""); err == nil || guessed || !slices.Equal(k.asked, row.opened) {
			t.Errorf("%s of old: opened %v, guessed %v, %v", row.name, k.asked, guessed, err)
		}
	}
}
