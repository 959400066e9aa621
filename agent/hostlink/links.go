// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/loop"
)

var (
	// ErrBroken is returned by Check if a part is missing or was changed.
	ErrBroken = errors.New("the routing of the pod is not complete")
	// ErrOverlap is returned if a host-link route covers the subnet of the pod:
	// the route would take the frames to its neighbours.
	ErrOverlap = errors.New("a route of the host link covers the subnet of the pod")
	// ErrGone is returned if the pod's network namespace or its interface does not exist.
	ErrGone = errors.New("the pod's interface is gone")
)

// Guards is the part of *guards.Guards that host links need.
type Guards interface {
	// GuardLink makes the guard of an entry judge the frames of the node's end as well.
	GuardLink(e *attachment.Entry, ifname string) error
	LinkGuarded(e *attachment.Entry, ifname string) (bool, error)
	// Dead reports whether a slot was killed.
	Dead(slot uint32) (bool, error)
}

// Options of Links. All are required.
type Options struct {
	// Session is the current life of the node.
	Session string
	Guards  Guards
	// Fenced reports whether a newer claim was heard for an address of an entry.
	Fenced func(*attachment.Entry, attachment.Address) (bool, error)
	// Entries returns the entries of the journal, which are read-only.
	Entries func() []*attachment.Entry
	// Entry returns one entry.
	Entry func(containerID, ifname string) (attachment.Entry, bool)
	// TryLock blocks the plugin's calls for an attachment until unlock.
	TryLock func(agentapi.Attachment) (unlock func(), ok bool)
	// Services returns the service CIDRs. An error means that they are unknown.
	Services func() ([]netip.Prefix, error)
	// PodCIDRs returns the pod CIDRs of other networks. An error means that some are unknown.
	PodCIDRs func() ([]netip.Prefix, error)
	// NodeAddresses returns the addresses of the Node object, the preferred one of each family first.
	NodeAddresses func() []netip.Addr
	// Balancers returns the addresses of load balancers that the node serves to the pod of an entry. An error:
	// they are not known now.
	Balancers func(*attachment.Entry) ([]netip.Addr, error)
	// Prepare makes what host links share on the node, before the first of them is made.
	Prepare func()
	Log     logr.Logger
	Clock   clock.Clock
}

// Links are the host links of a node, and the routing inside its pods. Its methods may be called
// concurrently for different attachments.
type Links struct {
	Options
	node   *netlink.Handle
	nodeNS ns.NetNS
	// wake is full when the repair of all host links is due. due are the attachments whose repair is due.
	wake loop.Wake
	due  *attachment.Pending
	// changed is full when the addresses of the node may have changed. seen are those of the last look.
	changed loop.Wake
	seen    []netip.Addr
	// renewed: all host links of earlier agents have the guards of this one.
	renewed atomic.Bool
}

// New returns the Links of the calling thread's network namespace.
func New(o Options) (*Links, error) {
	nodeNS, err := ns.GetCurrentNS()
	if err != nil {
		return nil, fmt.Errorf("open the node's network namespace: %w", err)
	}
	node, err := netlink.NewHandle(netlink.FAMILY_ALL)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a netlink socket on the node: %w", err), nodeNS.Close())
	}
	return &Links{Options: o, node: node, nodeNS: nodeNS, wake: loop.NewWake(), due: attachment.NewPending(), changed: loop.NewWake()}, nil
}

// Close closes the descriptors.
func (l *Links) Close() error {
	l.node.Close()
	return l.nodeNS.Close()
}

// Make makes the routing of an entry's interface, or completes it. After an error there is no host
// link and no rule of the interface, unless there was a host link before.
func (l *Links) Make(e *attachment.Entry) error {
	if e.Routing == nil {
		return nil
	}
	node, err := nodeAddresses(l.node)
	if err != nil {
		return err
	}
	if err := l.complete(e, node); err != nil {
		return errors.Join(err, l.clear(e))
	}
	if !l.due.Empty() {
		l.Wake(e.Attachment()) // Run looks again once its addresses are no longer tentative
	}
	return nil
}

// clear removes the routes and rules of an interface without a host link.
func (l *Links) clear(e *attachment.Entry) error {
	_, err := l.node.LinkByName(NodeEnd(e.Attachment()))
	if err == nil {
		return nil
	}
	if !isMissing(err) {
		return fmt.Errorf("look up the host link of pod %s/%s: %w", e.PodNamespace, e.PodName, err)
	}
	p, err := openPod(e)
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.Close()
	return errors.Join(syncRules(p.links, nil, p.own.Attrs().Index, mend), syncRoutes(p.links, p.own, nil, true, mend))
}

// complete makes what an entry lacks. node are the addresses of the node.
func (l *Links) complete(e *attachment.Entry, node []netip.Addr) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("make the routing of interface %s of pod %s/%s: %w", e.Interface, e.PodNamespace, e.PodName, err)
		}
	}()
	p, err := openPod(e)
	if err != nil {
		return err
	}
	defer p.Close()
	plan, known, err := l.plan(e, p, node)
	if err != nil {
		return err
	}
	if e.Routing.HostLink {
		l.Prepare()
	}
	created, err := l.carryOut(e, p, plan, known, mend)
	if err == nil && e.Routing.TakesDefault {
		others, unknown := l.PodCIDRs()
		err = p.takeDefault(plan.Behind, besides(others, e.Routing.Subnets), known && unknown == nil, namesIn(e.ContainerID, l.Entries()))
	}
	if err != nil && created {
		err = errors.Join(err, l.Remove(e))
	}
	return err
}

// carryOut makes what an entry's interface lacks of its plan. known is false if the plan lacks routes.
// created reports whether the host link is new.
func (l *Links) carryOut(e *attachment.Entry, p *pod, plan Plan, known bool, m mode) (created bool, err error) {
	if e.Routing.HostLink {
		if created, err = l.putNodeEnd(e, p, plan, m); err != nil {
			return created, err
		}
		if err := p.putLink(e, plan, known, m); err != nil {
			return created, err
		}
		// This is last: the node sends nothing before the pod can answer.
		if err := l.putNodeSide(e, plan, m); err != nil {
			return created, err
		}
	}
	if err := syncRoutes(p.links, p.own, plan.Own, true, m); err != nil {
		return created, err
	}
	return created, syncRules(p.links, plan.Rules, p.own.Attrs().Index, m)
}

// namesIn returns the names of Fenceline's interfaces in a pod, with those of their host links.
func namesIn(containerID string, entries []*attachment.Entry) []string {
	var names []string
	for _, e := range entries {
		if e.ContainerID == containerID {
			names = append(names, e.Interface, PodEnd(e.Attachment()))
		}
	}
	return names
}

// plan makes the plan of an entry. known is false if it lacks the routes to unknown service CIDRs or load
// balancers.
func (l *Links) plan(e *attachment.Entry, p *pod, node []netip.Addr) (_ Plan, known bool, _ error) {
	usable, err := l.usable(e)
	if err != nil {
		return Plan{}, false, err
	}
	beyond, err := routesBeyond(p.links, p.own)
	if err != nil {
		return Plan{}, false, err
	}
	tentative, settling, err := p.tentative()
	if err != nil {
		return Plan{}, false, err
	}
	if settling {
		l.due.PutBack(e.Attachment())
	}
	services, unknown := l.Services()
	if err := overlap(e.Routing, services); err != nil {
		return Plan{}, false, err
	}
	balancers, lack := l.Balancers(e)
	return Make(Facts{
		Index: p.own.Attrs().Index, Addresses: usable, Gateways: e.Routing.Gateways, Routes: beyond, Tentative: tentative,
		HostLink: e.Routing.HostLink, First: e.Routing.First, OwnTable: e.Routing.OwnTable,
		Node: slices.Concat(node, balancers), Services: services, Listed: e.Routing.Listed,
	}), unknown == nil && lack == nil, nil
}

// usable returns the addresses that an entry may use: none if its slot is dead, otherwise those
// that are not fenced. The node must reach the new holders of the others.
func (l *Links) usable(e *attachment.Entry) ([]netip.Prefix, error) {
	var usable []netip.Prefix
	// A newer sandbox of the pod may have the addresses by now.
	dead, err := l.Guards.Dead(e.Slot)
	if err != nil || dead {
		return nil, err
	}
	for _, address := range e.Addresses {
		fenced, err := l.Fenced(e, address)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(e.Routing.Subnets, func(s netip.Prefix) bool { return s.Addr() == address.Addr })
		if !fenced && i >= 0 {
			usable = append(usable, e.Routing.Subnets[i])
		}
	}
	return usable, nil
}

// Remove removes the host link of an entry, if there is one, with all state of the pod on the node.
func (l *Links) Remove(e *attachment.Entry) error {
	if e.Routing == nil || !e.Routing.HostLink {
		return nil
	}
	name := NodeEnd(e.Attachment())
	link, err := l.node.LinkByName(name)
	if err == nil {
		err = l.node.LinkDel(link)
	}
	if err != nil && !isMissing(err) {
		return fmt.Errorf("remove the host link %s of interface %s of pod %s/%s: %w", name, e.Interface, e.PodNamespace, e.PodName, err)
	}
	return nil
}

// pod is the network namespace of a pod.
type pod struct {
	ns    ns.NetNS
	links *netlink.Handle
	// own is the interface of the entry.
	own netlink.Link
}

// noNetNS reports whether the path holds nothing, or the plain file that an unmount leaves.
func noNetNS(err error) bool {
	_, nothing := errors.AsType[ns.NSPathNotExistErr](err)
	_, file := errors.AsType[ns.NSPathNotNSErr](err)
	return nothing || file || errors.Is(err, fs.ErrNotExist)
}

// openPod opens the namespace of an entry's pod. It returns ErrGone if the interface does not exist.
func openPod(e *attachment.Entry) (_ *pod, err error) {
	p := &pod{}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	if p.ns, err = ns.GetNS(e.NetNS); err != nil {
		if noNetNS(err) {
			err = fmt.Errorf("%w: %w", ErrGone, err)
		}
		return nil, fmt.Errorf("open network namespace %s: %w", e.NetNS, err)
	}
	if p.links, err = netlink.NewHandleAt(netns.NsHandle(p.ns.Fd())); err != nil {
		return nil, fmt.Errorf("open a netlink socket in %s: %w", e.NetNS, err)
	}
	if p.own, err = p.links.LinkByName(e.Interface); err != nil {
		if isMissing(err) {
			err = fmt.Errorf("%w: %w", ErrGone, err)
		}
		return nil, fmt.Errorf("look up interface %s in %s: %w", e.Interface, e.NetNS, err)
	}
	return p, nil
}

// tentative returns the tentative addresses of the interface. settling is true if the detection of
// one of them is under way. A detection that has failed is over.
func (p *pod) tentative() (found []netip.Addr, settling bool, err error) {
	addrs, err := p.links.AddrList(p.own, netlink.FAMILY_V6)
	if err != nil {
		return nil, false, fmt.Errorf("list the addresses of interface %s: %w", p.own.Attrs().Name, err)
	}
	for _, a := range addrs {
		if a.Flags&unix.IFA_F_TENTATIVE == 0 {
			continue
		}
		found = append(found, addrOf(a.IP))
		settling = settling || a.Flags&unix.IFA_F_DADFAILED == 0
	}
	return found, settling, nil
}

// Close closes the descriptors.
func (p *pod) Close() {
	if p.links != nil {
		p.links.Close()
	}
	if p.ns != nil {
		_ = p.ns.Close() // it was only read
	}
}

// isMissing reports whether a link does not exist.
func isMissing(err error) bool {
	_, missing := errors.AsType[netlink.LinkNotFoundError](err)
	return missing || errors.Is(err, unix.ENODEV)
}
