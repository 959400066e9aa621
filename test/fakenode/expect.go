// SPDX-License-Identifier: Apache-2.0

package fakenode

import (
	"slices"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

// Lease expects a lease in a state and returns it.
func (r *Node) Lease(name string, state v1alpha1.LeaseState) *v1alpha1.IPLease {
	r.T.Helper()
	l := r.API.Leases()[name]
	if l == nil || l.Spec.State != state {
		r.T.Fatalf("lease %s is %v, want %s; there are %v", name, l, state, r.Names())
	}
	return l
}

// Names returns the leases that exist, with their states.
func (r *Node) Names() []string {
	names := []string{}
	for _, l := range r.API.Leases() {
		names = append(names, l.Name+" "+string(l.Spec.State))
	}
	slices.Sort(names)
	return names
}

func (r *Node) Want(names ...string) {
	r.T.Helper()
	got := r.Names()
	check.Must(r.T, slices.Equal(got, append([]string{}, names...)), "leases %v, want %v", got, names)
}

// Gets calls ADD, and fails the test unless it returns these addresses.
func (r *Node) Gets(request agentapi.AddRequest, want ...string) {
	r.T.Helper()
	check.List(r.T, r.MustAdd(request), want, "pod %s got", request.Pod.Name)
}

// SlotOf returns the slot of an attachment in the journal.
func (r *Node) SlotOf(request agentapi.AddRequest) uint32 {
	e, _ := r.Attachments.Get(request.ContainerID, request.Interface)
	return e.Slot
}

// Speaks reports whether the kernel passes frames of an attachment from an address.
func (r *Node) Speaks(request agentapi.AddRequest, addr string) bool {
	return slices.Contains(r.Kernel.Speakers(Key(addr)), r.SlotOf(request))
}

// HasPod reports whether the API server has a pod of namespace shop.
func (r *Node) HasPod(name string) bool {
	r.API.mu.Lock()
	defer r.API.mu.Unlock()
	_, exists := r.API.Objects[KeyFor(PodOf(name), ClientObjectKey(name))]
	return exists
}

// Eventually waits for a condition.
func (r *Node) Eventually(what string, ok func() bool) {
	r.T.Helper()
	check.Becomes(r.T, time.Minute, what, ok)
}

func (r *Node) Calls(verb string) int {
	r.API.mu.Lock()
	defer r.API.mu.Unlock()
	return r.API.Calls[verb]
}
