package holder

import (
	"context"
	"errors"
	"sync"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/bpf"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var errDead = errors.New("the agent is dead")

// death ends an agent before its n-th effect, or before the first of a name:
// from then on nothing that it does has any.
type death struct {
	mu sync.Mutex
	// left counts down to the end; negative: never.
	left int
	// before is the effect that the agent does not live to see.
	before string
	// did is what had an effect, in order.
	did []string
}

func (d *death) step(what string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if what == d.before {
		d.left = 0
	}
	if d.left == 0 {
		return errDead
	}
	d.left--
	d.did = append(d.did, what)
	return nil
}

// mortal wraps what an agent acts upon.
type (
	mortalJournal struct {
		*journal.Journal
		*death
	}
	mortalKernel struct {
		Kernel
		*death
	}
	mortalAPI struct {
		*memAPI
		*death
	}
)

func (m mortalJournal) Put(e journal.Entry) error {
	if err := m.step("journal " + string(e.Phase)); err != nil {
		return err
	}
	return m.Journal.Put(e)
}

func (m mortalJournal) Remove(containerID, ifname string) error {
	if err := m.step("journal Remove"); err != nil {
		return err
	}
	return m.Journal.Remove(containerID, ifname)
}

func (m mortalKernel) StageGuard(g bpf.Guard) error {
	if err := m.step("guard"); err != nil {
		return err
	}
	return m.Kernel.StageGuard(g)
}

func (m mortalKernel) KillSlot(slot uint32) error {
	if err := m.step("kill"); err != nil {
		return err
	}
	return m.Kernel.KillSlot(slot)
}

func (m mortalKernel) InstallLease(key bpf.Key, l bpf.Lease) error {
	if err := m.step("install " + key.Addr.String()); err != nil {
		return err
	}
	return m.Kernel.InstallLease(key, l)
}

func (m mortalKernel) RemoveLease(key bpf.Key) error {
	if err := m.step("uninstall " + key.Addr.String()); err != nil {
		return err
	}
	return m.Kernel.RemoveLease(key)
}

func (m mortalAPI) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if err := m.step("create " + o.GetName()); err != nil {
		return err
	}
	return m.memAPI.Create(ctx, o, opts...)
}

func (m mortalAPI) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if err := m.step("update " + o.GetName()); err != nil {
		return err
	}
	return m.memAPI.Update(ctx, o, opts...)
}

func (m mortalAPI) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	if err := m.step("delete " + o.GetName()); err != nil {
		return err
	}
	return m.memAPI.Delete(ctx, o, opts...)
}
