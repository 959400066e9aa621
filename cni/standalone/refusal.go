// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// held returns the addresses of a range set that the attachment has.
func (a *adding) held(p *pick) []net.IP {
	return slices.DeleteFunc(a.store.GetByID(a.ContainerID, a.Interface), func(ip net.IP) bool { return !p.ranges.Contains(ip) })
}

// refusal returns the error of a range set without a free address.
func (a *adding) refusal(p *pick, err error) error {
	if _, ours := errors.AsType[*agentapi.Error](err); ours {
		return err
	}
	if held := a.held(p); len(held) > 0 {
		return a.unended(p, held...)
	}
	own := slices.DeleteFunc(slices.Clone(a.parent.Addrs), func(addr netip.Addr) bool { return !p.ranges.Contains(addr.AsSlice()) })
	if p.requested != nil {
		return agentapi.Errorf(agentapi.CodeAddressRefused, "reserve %s: %w", p.requested, a.whyNot(p.requested, own, err))
	}
	for _, r := range *p.ranges {
		if r.Contains(r.Gateway) {
			err = fmt.Errorf("%w; %s is the gateway", err, r.Gateway)
		}
	}
	if len(own) > 0 {
		err = fmt.Errorf("%w; %s of this machine has %v", err, a.parent.Name, own)
	}
	return agentapi.Errorf(agentapi.CodeExhausted, "reserve an address of range set %d in %s: %w%s; "+moreAddresses, p.set, a.store.dir, err, a.others())
}

// unended returns the error of an attachment that has addresses of a range set already.
func (a *adding) unended(p *pick, held ...net.IP) error {
	return agentapi.Errorf(agentapi.CodeInvalidEnvironment, "reserve an address of range set %d in %s: container %s has %v for %s already%s; end its earlier use by DEL first",
		p.set, a.store.dir, a.ContainerID, held, a.Interface, a.others())
}

// moreAddresses is the remedy for a range set without a free address.
const moreAddresses = "delete containers, widen the range, or run GC"

// others tells the hosts that use addresses of the range.
func (a *adding) others() string {
	if len(a.met) == 0 {
		return ""
	}
	return "; other hosts use " + strings.Join(a.met, ", ")
}

// whyNot returns the reason why a requested address is not free. own are the addresses of the parent.
func (a *adding) whyNot(requested net.IP, own []netip.Addr, err error) error {
	holder, host := a.store.holderOf(requested)
	switch {
	case slices.Contains(own, addrOf(requested)):
		return fmt.Errorf("%s of this machine has it; request another address, or remove it from %[1]s", a.parent.Name)
	case slices.Contains(a.store.used, addrOf(requested)):
		return errors.New("it is the address of a network, or its broadcast; request another address")
	case holder != "":
		return fmt.Errorf("container %s on %s has it; request another address, or end that container", holder, host)
	}
	return err
}
