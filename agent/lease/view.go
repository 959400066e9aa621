// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// View has the leases of one node as its agent read or wrote them last. It stands in for a watch of them: the
// Store tells it the answer of each call. A nil View knows nothing, and is told nothing. Safe for concurrent use.
type View struct {
	node string

	mu     sync.Mutex
	leases map[string]*v1alpha1.IPLease
	// versions has the newest known revision of each lease of the node, also of those that are gone, so that
	// an answer that was overtaken is recognized. older has those from before the last Forget.
	versions, older map[string]uint64
	filled          bool
	told            []func(was, now *v1alpha1.IPLease)
}

// NewView returns a View that is not filled.
func NewView(node string) *View {
	return &View{node: node, leases: map[string]*v1alpha1.IPLease{}, versions: map[string]uint64{}}
}

// Tell calls a function for each lease of the node, and from then on after each change. was is nil if the lease
// is new on the node, now is nil if it left the node or is gone. The function must not block, and the leases
// must not be changed. It may be called concurrently.
func (v *View) Tell(f func(was, now *v1alpha1.IPLease)) {
	v.mu.Lock()
	v.told = append(v.told, f)
	present := slices.Collect(maps.Values(v.leases))
	v.mu.Unlock()
	for _, l := range present {
		f(nil, l)
	}
}

// Saw records a lease that was read or written.
func (v *View) Saw(l *v1alpha1.IPLease) {
	if v == nil {
		return
	}
	now := l.DeepCopy()
	now.ManagedFields = nil
	v.set(l.Name, revisionOf(l), now, func(known, read uint64) bool { return known < read })
}

// Gone records that a lease of a revision is gone, or was at the time at which this was the known one. If a
// newer one is known, it is another lease.
func (v *View) Gone(name string, revision uint64) {
	if v == nil {
		return
	}
	v.set(name, revision, nil, func(known, gone uint64) bool { return known <= gone })
}

// set replaces a lease if isNewer holds for the known revision and the given one.
func (v *View) set(name string, revision uint64, now *v1alpha1.IPLease, isNewer func(known, given uint64) bool) {
	v.mu.Lock()
	if !isNewer(v.version(name), revision) {
		v.mu.Unlock()
		return
	}
	was := v.leases[name]
	v.versions[name] = revision
	if now == nil || now.Spec.NodeName != v.node {
		now = nil
		delete(v.leases, name)
	} else {
		v.leases[name] = now
	}
	told := v.told
	v.mu.Unlock()
	if equality.Semantic.DeepEqual(was, now) { // nothing has changed, as after most doubts
		return
	}
	for _, f := range told {
		f(was, now)
	}
}

// Revision returns the newest known revision of a lease, or 0.
func (v *View) Revision(name string) uint64 {
	if v == nil {
		return 0
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.version(name)
}

// version requires mu.
func (v *View) version(name string) uint64 { return max(v.versions[name], v.older[name]) }

// Forget forgets the revisions of leases that have been gone since the last Forget.
func (v *View) Forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	kept := map[string]uint64{}
	for name := range v.leases {
		kept[name] = v.version(name)
	}
	v.older, v.versions = v.versions, kept
}

// Doubt forgets all revisions: the next answer about a lease counts, also if it has an older one. Call it if
// the store may have lost writes.
func (v *View) Doubt() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.versions, v.older = map[string]uint64{}, nil
}

// Names returns the names of the leases of the node.
func (v *View) Names() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(maps.Keys(v.leases))
}

// Fill records that all leases of the node have been read: what is not known does not exist.
func (v *View) Fill() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.filled = true
}

// Get returns a lease of the node. The error is one of IsUnavailable if it may exist and was not read yet.
func (v *View) Get(name string) (*v1alpha1.IPLease, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l, ok := v.leases[name]
	switch {
	case ok:
		return l.DeepCopy(), nil
	case !v.filled:
		return nil, errNotFilled()
	default:
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.GroupName, Resource: "ipleases"}, name)
	}
}

// All returns the leases of the node by name. The error is one of IsUnavailable if they were not all read yet.
func (v *View) All() ([]v1alpha1.IPLease, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.filled {
		return nil, errNotFilled()
	}
	all := make([]v1alpha1.IPLease, 0, len(v.leases))
	for _, l := range v.leases {
		all = append(all, *l.DeepCopy())
	}
	slices.SortFunc(all, func(a, b v1alpha1.IPLease) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// revisionOf returns the revision of a lease's last write, or 0 if it has none.
func revisionOf(l *v1alpha1.IPLease) uint64 {
	token, _ := Token(l)
	return token
}

func errNotFilled() error {
	return apierrors.NewServiceUnavailable("the leases of this node have not been read since the agent started")
}
