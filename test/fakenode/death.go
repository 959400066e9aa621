// SPDX-License-Identifier: Apache-2.0

package fakenode

import (
	"context"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
)

var errDead = errors.New("the agent is dead")

// Death ends an agent before its n-th effect, or before the first effect of a name. A dead agent has
// no more effects.
type Death struct {
	mu sync.Mutex
	// Left is the number of effects that are left; negative means no limit.
	Left int
	// Before is the name of the effect before which the agent dies.
	Before string
	// Did are the effects so far, in order.
	Did []string
}

// do runs an effect if the agent is still alive.
func (d *Death) do(what string, effect func() error) error {
	if err := d.step(what); err != nil {
		return err
	}
	return effect()
}

func (d *Death) step(what string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if what == d.Before {
		d.Left = 0
	}
	if d.Left == 0 {
		return errDead
	}
	d.Left--
	d.Did = append(d.Did, what)
	return nil
}

// The mortal types give the effects of an agent to its Death.
type (
	mortalDisk struct {
		attachment.Disk
		*Death
	}
	mortalGuards struct {
		guards.KernelGuards
		*Death
	}
	mortalLeases struct {
		guards.KernelLeases
		*Death
	}
	mortalAPI struct {
		*API
		*Death
	}
)

func (m mortalDisk) Replace(path string, e *attachment.Entry) error {
	return m.do("journal "+string(e.Phase), func() error { return m.Disk.Replace(path, e) })
}

func (m mortalDisk) Remove(path string) error {
	return m.do("journal Remove", func() error { return m.Disk.Remove(path) })
}

func (m mortalGuards) Stage(g bpf.Guard) error {
	return m.do("guard", func() error { return m.KernelGuards.Stage(g) })
}

func (m mortalGuards) Kill(slot uint32) error {
	return m.do("kill", func() error { return m.KernelGuards.Kill(slot) })
}

func (m mortalLeases) Install(key bpf.Key, l bpf.Lease) error {
	return m.do("install "+key.Addr.String(), func() error { return m.KernelLeases.Install(key, l) })
}

func (m mortalLeases) Remove(key bpf.Key) error {
	return m.do("uninstall "+key.Addr.String(), func() error { return m.KernelLeases.Remove(key) })
}

func (m mortalAPI) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return m.do("create "+o.GetName(), func() error { return m.API.Create(ctx, o, opts...) })
}

func (m mortalAPI) Get(ctx context.Context, name types.NamespacedName, into client.Object, opts ...client.GetOption) error {
	err := m.API.Get(ctx, name, into, opts...)
	m.meanwhile("get", into, name.Name)
	return err
}

func (m mortalAPI) meanwhile(verb string, o client.Object, name string) {
	if _, lease := o.(*v1alpha1.IPLease); lease && m.Meanwhile != nil {
		m.Meanwhile(verb, name)
	}
}

// truth reads past the cache.
type truth struct{ mortalAPI }

func (m truth) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	if _, leases := into.(*v1alpha1.IPLeaseList); leases && m.Unlisted != nil {
		return m.Unlisted
	}
	return m.API.List(ctx, into, opts...)
}

func (m mortalAPI) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	m.meanwhile("update", o, o.GetName())
	return m.do("update "+o.GetName(), func() error { return m.API.Update(ctx, o, opts...) })
}

func (m mortalAPI) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return m.do("delete "+o.GetName(), func() error { return m.API.Delete(ctx, o, opts...) })
}
