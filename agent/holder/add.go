package holder

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/claim"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/audit"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// undoTimeout bounds the undo of an ADD whose own deadline has passed; what is
// left then is the worker's.
const undoTimeout = 5 * time.Second

// adding is one ADD on its way.
type adding struct {
	h     *Holders
	pod   *corev1.Pod
	link  Link
	seg   Segment
	who   v1alpha1.Holder
	entry journal.Entry
	// replaced is the slot that an earlier ADD has left on the very same interface.
	replaced uint32
	// staging brings word of the guard that is on its way; guarded tells that it enforces.
	staging <-chan error
	guarded bool
	// bound is what the interface has got so far, in the order of the families.
	bound []boundAddress
}

// boundAddress is an address with the pool it came from.
type boundAddress struct {
	pool    *v1alpha1.IPPool
	address journal.Address
	// unclaimed is the claim that is left for after the answer.
	unclaimed *segment.Claim
}

// Add gives a new pod interface its addresses, all or none of them. When ctx
// ends first, whatever was done is undone. Once the plugin has the answer,
// Answered is to be called.
func (h *Holders) Add(ctx context.Context, r agentapi.AddRequest) (*agentapi.AddResponse, error) {
	if r.Chained {
		return h.addChained(r)
	}
	h.underWay.Add(1)
	defer h.underWay.Add(-1)
	defer h.attachments.lock(attachment{r.ContainerID, r.Interface})()
	defer h.overtaken.forget(attachment{r.ContainerID, r.Interface})

	if err := h.reach(ctx); err != nil {
		return nil, err
	}
	a, err := h.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	h.overtaken.begin(attachmentOf(&a.entry))
	// One after the other: to wake another thread takes as long as they do.
	if err := a.locate(); err != nil {
		return nil, err
	}
	choice, kept, err := a.choose(ctx, r)
	if err != nil {
		a.refused(err)
		return nil, err
	}
	if err := a.bind(ctx, choice, kept); err != nil {
		h.away.Store(lease.IsUnavailable(err))
		a.refused(err)
		a.undo()
		return nil, refusal(err)
	}
	h.unanswered.put(a)
	return answer(choice, a.bound)
}

// begin finds out who asks.
func (h *Holders) begin(ctx context.Context, r agentapi.AddRequest) (*adding, error) {
	pod, err := h.pod(ctx, r.Pod)
	if err != nil {
		return nil, err
	}
	var replaced uint32
	if old, ok := h.Journal.Get(r.ContainerID, r.Interface); ok {
		// An ADD that is repeated without a DEL: what it did before is undone first.
		if err := h.release(ctx, old); err != nil {
			return nil, unavailable(fmt.Errorf("release what an earlier ADD left: %w", err))
		}
		if old.NetNS == r.NetNS && old.Session == h.Session {
			replaced = old.Slot
		}
	}
	return &adding{
		replaced: replaced,
		h:        h, pod: pod,
		who: holderOf(pod, r.Attachment, Link{}),
		entry: journal.Entry{
			ContainerID: r.ContainerID, Interface: r.Interface, NetNS: r.NetNS, Network: r.Network.Name,
			PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: runtimeUID(pod),
			Phase: journal.Intent, Session: h.Session, Created: h.Clock.Now(),
		},
	}, nil
}

// locate finds the interface, and opens the segment that it reaches.
func (a *adding) locate() error {
	link, err := a.h.FindLink(a.entry.NetNS, a.entry.Interface)
	if err != nil {
		return fmt.Errorf("find interface %s of pod %s/%s: %w", a.entry.Interface, a.entry.PodNamespace, a.entry.PodName, err)
	}
	a.seg, err = a.h.OpenSegment(link.ParentIndex)
	if err != nil {
		return fmt.Errorf("open the segment of %s: %w", link.Parent, err)
	}
	a.link = link
	a.entry.Parent, a.entry.ParentIndex, a.entry.MAC = link.Parent, link.ParentIndex, link.MAC.String()
	a.who.MAC = a.entry.MAC
	return nil
}

// choose asks the rules, and who keeps an address for this pod.
func (a *adding) choose(ctx context.Context, r agentapi.AddRequest) (choice ipam.Choice, kept []v1alpha1.IPLease, err error) {
	if kept, err = a.keptLeases(ctx); err != nil {
		return choice, nil, refusal(err)
	}
	choice, err = a.h.choose(ctx, r, a.pod, kept)
	return choice, kept, err
}

// bind gets one address of each family, and guards the interface beside that.
func (a *adding) bind(ctx context.Context, choice ipam.Choice, kept []v1alpha1.IPLease) error {
	for _, family := range choice.Families {
		b, err := a.bindFamily(ctx, family, kept)
		if err != nil {
			return err
		}
		a.bound = append(a.bound, b)
	}
	if err := a.guard(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("the runtime gave up: %w", context.Cause(ctx))
	}
	if a.h.overtaken.has(attachmentOf(&a.entry)) {
		return agentapi.Errorf(agentapi.CodeTryAgainLater,
			"the address was taken back while ADD was under way, since pod %s/%s was gone; the next try chooses anew",
			a.entry.PodNamespace, a.entry.PodName)
	}
	a.entry.Phase = journal.Bound
	// Not before: what may not be proven free is not to become Retained, for whose
	// next ADD claims before it probes.
	for i := range a.entry.Addresses {
		a.entry.Addresses[i].Static = keepsItsName(&a.who)
	}
	if err := a.h.Journal.Put(a.entry); err != nil {
		return err
	}
	for _, b := range a.bound {
		a.h.audit(audit.Grant, &a.entry, b.address, "")
	}
	return nil
}

// bindFamily takes over the address that is kept for this pod, or gets a free one
// where none is, or the pod's annotation asks for one of another pool.
func (a *adding) bindFamily(ctx context.Context, f ipam.Family, kept []v1alpha1.IPLease) (boundAddress, error) {
	l, left := keptFor(kept, f)
	if l != nil {
		return a.takeOver(ctx, f, l)
	}
	b, err := a.bindNew(ctx, f)
	if err == nil {
		a.tellLeft(left, b, f.Source)
	}
	return b, err
}

// undo is a DEL of what was done so far. A release that fails is journalled
// and left to the worker: it is no error of the ADD.
func (a *adding) undo() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.h.background), undoTimeout)
	defer cancel()
	// Whether or not the guard came to be: it is killed.
	_ = a.awaitGuard()
	if err := a.h.release(ctx, a.entry); err != nil {
		a.h.later(attachmentOf(&a.entry), "undo of an ADD", err)
	}
}

// refused tells people of the pod why it got no address.
func (a *adding) refused(err error) {
	a.h.Events.Eventf(a.pod, nil, corev1.EventTypeWarning, "AddressRefused", "Bind", "%s", note(err))
}

// tellLeft tells people of the pod which addresses it had before it asked for others.
func (a *adding) tellLeft(left []v1alpha1.IPLease, b boundAddress, source string) {
	for _, l := range left {
		a.h.Events.Eventf(a.pod, nil, corev1.EventTypeNormal, "AddressLeft", "Bind",
			"%s takes the place of %s: pool %s is none of the pools of %s any more", b.address.Addr, l.Spec.Address, l.Spec.Pool, source)
	}
}

// install lets the slot speak for an address, with the lease's token, once it
// is guarded.
func (a *adding) install(pool *v1alpha1.IPPool, address journal.Address) (segment.Claim, error) {
	if err := a.guard(); err != nil {
		return segment.Claim{}, err
	}
	c := segment.Claim{
		Addr: address.Addr, Network: a.h.network(address.Network), Token: address.Token,
		Mode: pool.ConflictMode(),
	}
	return c, a.h.install(&a.entry, address)
}

// install writes an address of an entry into the kernel.
func (h *Holders) install(e *journal.Entry, address journal.Address) error {
	mac, err := parseMAC(e.MAC)
	if err != nil {
		return err
	}
	key := keyOf(e, address)
	h.installing.Lock()
	defer h.installing.Unlock()
	err = h.Kernel.InstallLease(key, bpf.Lease{
		Token: address.Token, Network: h.network(address.Network), Slot: e.Slot, MAC: mac,
	})
	if err != nil {
		return fmt.Errorf("install the lease of %s: %w", key, err)
	}
	return nil
}

// keyOf names an address of an entry in the kernel.
func keyOf(e *journal.Entry, address journal.Address) bpf.Key {
	return bpf.Key{Segment: uint32(e.ParentIndex), Addr: address.Addr}
}

// network returns the number of a pool's network on the wire.
func (h *Holders) network(name string) uint64 { return claim.Network(h.Cluster, name) }

// announce tells the segment of the new holder once the link is up.
func (a *adding) announce(b boundAddress) {
	if b.unclaimed != nil {
		a.h.tasks.Go(func() { a.claimLate(b) })
		return
	}
	a.seg.Announce(segment.Announcement{
		NetNS: a.entry.NetNS, Interface: a.entry.Interface, MAC: a.link.MAC, Addr: b.address.Addr,
		Slot: a.entry.Slot, Mode: b.pool.ConflictMode(),
	})
}

func (h *Holders) audit(kind audit.Kind, e *journal.Entry, address journal.Address, reason string) {
	audit.Log(h.Log, kind, audit.Record{
		Address: address.Addr, Pool: address.Pool,
		Namespace: e.PodNamespace, Pod: e.PodName, PodUID: e.PodUID,
		Node: h.Node, MAC: e.MAC, Token: address.Token, Reason: reason,
	})
}
