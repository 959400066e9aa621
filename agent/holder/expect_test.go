package holder

import (
	"slices"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// lease expects a lease in a state and returns it.
func (r *rig) lease(name string, state v1alpha1.LeaseState) *v1alpha1.IPLease {
	r.t.Helper()
	l := r.api.leases()[name]
	if l == nil || l.Spec.State != state {
		r.t.Fatalf("lease %s is %v, want %s; there are %v", name, l, state, r.names())
	}
	return l
}

// names are the leases that exist, with their states.
func (r *rig) names() []string {
	names := []string{}
	for _, l := range r.api.leases() {
		names = append(names, l.Name+" "+string(l.Spec.State))
	}
	slices.Sort(names)
	return names
}

func (r *rig) want(names ...string) {
	r.t.Helper()
	if got := r.names(); !slices.Equal(got, append([]string{}, names...)) {
		r.t.Fatalf("leases %v, want %v", got, names)
	}
}

// slotOf is the slot of an ADD in the journal.
func (r *rig) slotOf(request agentapi.AddRequest) uint32 {
	e, _ := r.Journal.Get(request.ContainerID, request.Interface)
	return e.Slot
}

// speaks tells whether frames of an interface for an address pass.
func (r *rig) speaks(request agentapi.AddRequest, addr string) bool {
	return slices.Contains(r.kernel.speakers(key(addr)), r.slotOf(request))
}

// eventually waits for a condition.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within a minute: %s", what)
		}
		<-tick.C
	}
}

func (r *rig) calls(verb string) int {
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	return r.api.calls[verb]
}
