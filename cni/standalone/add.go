// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/allocator"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/cni/prober"
	"github.com/fenceline/fenceline/internal/foreignhost"
)

// patience is how long an ADD tries addresses.
const patience = 20 * time.Second

// dismantling is how long an address that no other one can replace is probed again: the kernel takes apart
// the network namespace of a container after its end, and until then the last interface of the container
// answers (net/core/net_namespace.c cleanup_net).
const dismantling = 5 * time.Second

// pick is the address from one range set.
type pick struct {
	allocator *allocator.IPAllocator
	set       int
	ranges    *allocator.RangeSet
	requested net.IP
	config    *types100.IPConfig
	// again: the attachment has had the address since an earlier ADD.
	again bool
}

func (p pick) addr() netip.Addr { return addrOf(p.config.Address.IP) }

func addrsOf(picks []*pick) (addrs []netip.Addr) {
	for _, p := range picks {
		addrs = append(addrs, p.addr())
	}
	return addrs
}

type adding struct {
	Call
	detection detection
	store     *store
	picks     []*pick
	// parent has addresses that no container gets.
	parent prober.Parent
	// met are the conflicts of this ADD, for its error.
	met []string
}

// Add gets one address from each range set, after a probe if the container's interface exists. An
// ADD that fails leaves nothing behind.
func Add(ctx context.Context, c Call) (_ *types100.Result, err error) {
	conf, err := c.load()
	if err != nil {
		return nil, err
	}
	a := &adding{Call: c}
	if a.detection, err = parseDetection(c.Conf); err != nil {
		return nil, err
	}
	r := &types100.Result{CNIVersion: types100.ImplementedSpecVersion, Routes: conf.Routes}
	if conf.ResolvConf != "" {
		if r.DNS, err = resolver(conf.ResolvConf); err != nil {
			return nil, err
		}
	}
	if a.store, err = c.open(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.store.undo())
		}
		err = errors.Join(err, a.store.Close())
	}()
	if a.parent, err = prober.ParentOf(c.NetNS, c.Interface); err != nil {
		return nil, agentapi.Errorf(agentapi.CodeInternal, "read the addresses of the parent of %s: %w", c.Interface, err)
	}
	a.store.detect, a.store.used = a.detection.mode == enforce, a.parent.Addrs
	if err := a.reserve(conf); err != nil {
		return nil, err
	}
	if a.detection.mode != off {
		if err := a.prove(ctx); err != nil {
			return nil, err
		}
	}
	for _, p := range a.picks {
		r.IPs = append(r.IPs, p.config)
	}
	return r, nil
}

// reserve reserves an address of each range set, in the order of host-local.
func (a *adding) reserve(conf *allocator.IPAMConfig) error {
	requested := slices.Clone(conf.IPArgs)
	for i := range conf.Ranges {
		for _, r := range conf.Ranges[i] {
			a.store.used = append(a.store.used, noHosts(r)...)
		}
		p := &pick{allocator: allocator.NewIPAllocator(&conf.Ranges[i], a.store, i), set: i, ranges: &conf.Ranges[i]}
		if j := slices.IndexFunc(requested, conf.Ranges[i].Contains); j >= 0 {
			p.requested = requested[j]
			requested = slices.DeleteFunc(requested, p.requested.Equal)
		}
		if err := a.get(p); err != nil {
			return err
		}
		a.picks = append(a.picks, p)
	}
	if len(requested) > 0 {
		return agentapi.Errorf(agentapi.CodeAddressRefused, "reserve the requested addresses: %v is in no range set, or the second one of its set; request an address of %s", requested[0], setsOf(conf))
	}
	return nil
}

// get reserves an address. If there is none, it frees those of earlier boots, and then tries those
// that other hosts have used.
func (a *adding) get(p *pick) (err error) {
	a.store.insist, a.store.passed = p.requested != nil, 0
	p.config, err = p.allocator.Get(a.ContainerID, a.Interface, p.requested)
	if err == nil {
		return nil
	}
	if swept, trouble := a.store.sweep(); trouble != nil {
		return trouble
	} else if swept {
		p.config, err = p.allocator.Get(a.ContainerID, a.Interface, p.requested)
	}
	if err != nil && a.store.passed > 0 {
		a.store.insist = true
		p.config, err = p.allocator.Get(a.ContainerID, a.Interface, p.requested)
	}
	if err == nil || a.getAgain(p) {
		return nil
	}
	return a.refusal(p, err)
}

// getAgain gets the address that the attachment has already, if it is the one that is wanted and a probe
// will prove that the earlier container is gone: a runtime that crashed has not called DEL.
func (a *adding) getAgain(p *pick) bool {
	held := a.held(p)
	if a.detection.mode != enforce || len(held) != 1 || p.requested != nil && !p.requested.Equal(held[0]) || slices.Contains(a.store.used, addrOf(held[0])) {
		return false
	}
	r, err := p.ranges.RangeFor(held[0])
	if err != nil {
		return false
	}
	p.config = &types100.IPConfig{Address: net.IPNet{IP: addrOf(held[0]).AsSlice(), Mask: r.Subnet.Mask}, Gateway: r.Gateway}
	p.again = true
	return true
}

// prove probes the addresses, and exchanges those that other hosts use.
func (a *adding) prove(ctx context.Context) (err error) {
	p, err := prober.Open(ctx, a.NetNS, a.Interface, addrsOf(a.picks), a.detection.params)
	switch {
	case errors.Is(err, prober.ErrNoInterface), errors.Is(err, prober.ErrNoSegment):
		if i := slices.IndexFunc(a.picks, func(p *pick) bool { return p.again }); i >= 0 {
			return a.unended(a.picks[i], a.picks[i].config.Address.IP)
		}
		a.say("%v; the addresses are given without a probe", err)
		return nil
	case err != nil:
		return a.unproven(err)
	}
	defer func() {
		if closing := p.Close(); closing != nil && err == nil {
			err = agentapi.Errorf(agentapi.CodeInternal, "leave the interface as it was: %w", closing)
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no address was proven free within %s", patience))
	defer cancel()
	insist, end := context.WithTimeout(ctx, dismantling)
	defer end()
	for next := a.picks; len(next) > 0; {
		used, err := p.Probe(ctx, addrsOf(next))
		if err != nil {
			return a.unproven(err)
		}
		if len(used) == 0 {
			break
		}
		if next, err = a.exchange(insist, p, used, next); err != nil {
			return err
		}
	}
	if doubt := p.Doubt(); doubt != "" {
		a.say("%s; another host may use %v", doubt, addrsOf(a.picks))
	}
	if err := a.forget(); err != nil {
		return err
	}
	if err := p.Keep(addrsOf(a.picks)); err != nil {
		return agentapi.Errorf(agentapi.CodeInternal, "announce the addresses: %w", err)
	}
	return nil
}

// unproven returns the error of a probe that says nothing. In mode Observe an ADD goes on, unless the
// plugin that calls it could not set the interface up either.
func (a *adding) unproven(err error) error {
	if errors.Is(err, unix.EADDRINUSE) {
		return agentapi.Errorf(agentapi.CodeTryAgainLater,
			"%w; another interface of its parent has the MAC of %s, or the parent itself: give it another MAC, or end the container that has this one", err, a.Interface)
	}
	if a.detection.mode == observe {
		a.say("%v; the addresses are given without a probe", err)
		return nil
	}
	remedy := "restore the link"
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EAFNOSUPPORT) {
		remedy = "let the service of the container runtime use AF_PACKET and CAP_NET_RAW"
	}
	return agentapi.Errorf(agentapi.CodeTryAgainLater,
		`prove that no other host uses the addresses: %w; %s, or set "ipam.conflictDetection.mode" to "Off"`, err, remedy)
}

// exchange replaces the addresses that other hosts use, and returns those that need a probe. probing
// are the addresses whose probe has ended early. Until insist ends, an address that is not replaceable gets
// another probe.
func (a *adding) exchange(insist context.Context, p *prober.Prober, used map[netip.Addr]string, probing []*pick) ([]*pick, error) {
	var next []*pick
	for _, pick := range a.picks {
		addr := pick.addr()
		mac, conflict := used[addr]
		if !conflict {
			if slices.Contains(probing, pick) {
				next = append(next, pick)
			}
			continue
		}
		if err := p.Drop(addr); err != nil {
			return nil, agentapi.Errorf(agentapi.CodeInternal, "give up %s: %w", addr, err)
		}
		if a.detection.mode == enforce && insist.Err() == nil {
			if replaceable, err := a.replaceable(pick); err != nil {
				return nil, err
			} else if !replaceable {
				select {
				case <-time.After(a.detection.params.Interval):
				case <-insist.Done():
				}
				next = append(next, pick)
				continue
			}
		}
		a.met = append(a.met, fmt.Sprintf("%s (%s)", addr, mac))
		if a.detection.mode == observe {
			a.say("host %s uses %s, which is given nevertheless (mode Observe)", mac, addr)
			continue
		}
		if pick.again {
			return nil, a.unended(pick, pick.config.Address.IP)
		}
		if err := a.giveUp(pick, mac); err != nil {
			return nil, err
		}
		if err := a.get(pick); err != nil {
			return nil, err
		}
		next = append(next, pick)
	}
	return next, nil
}

// replaceable reports whether another address will do, and is free.
func (a *adding) replaceable(p *pick) (free bool, err error) {
	if p.requested != nil || p.again {
		return false, nil
	}
	err = a.store.locked(func() error {
		taken, err := a.store.entries()
		for _, addr := range a.store.used {
			taken = append(taken, entry{addr: addr})
		}
		free = hasFree(*p.ranges, taken)
		return err
	})
	return free, err
}

// giveUp frees the address that a host uses. It returns an error if no other one may be tried.
func (a *adding) giveUp(p *pick, mac string) error {
	addr := p.addr()
	a.store.used = append(a.store.used, addr)
	var action foreignhost.Action
	err := a.store.locked(func() (err error) {
		if action, err = a.store.memory.meet(addr, mac); err != nil {
			return ioError("%w", err)
		}
		return a.store.free(p.config.Address.IP)
	})
	switch {
	case err != nil:
		return err
	case p.requested != nil:
		return agentapi.Errorf(agentapi.CodeAddressRefused, "prove that no other host uses %s: host %s uses it; request another address, or end that host's use", addr, mac)
	case action == foreignhost.Stop:
		return agentapi.Errorf(agentapi.CodeTryAgainLater,
			`prove that no other host uses %s: host %s has answered for %d addresses within %s; add its MAC to "ipam.conflictDetection.ignoreMACs" if it is a proxy, otherwise remove its addresses from the range`,
			addr, mac, foreignhost.MaxConflicts, foreignhost.Interval)
	}
	a.say("host %s uses %s; the address is passed over and tried again after %s", mac, addr, retryAfter)
	return nil
}

// forget forgets the conflicts of addresses that are free now.
func (a *adding) forget() error {
	if a.store.memory == nil || !slices.ContainsFunc(a.picks, func(p *pick) bool { return a.store.memory.knows(p.addr()) }) {
		return nil
	}
	return a.store.locked(func() error {
		for _, p := range a.picks {
			if err := a.store.memory.forget(p.addr()); err != nil {
				return ioError("%w", err)
			}
		}
		return nil
	})
}
