// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"net"
	"net/netip"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
)

// SettleAfterClaim is the time in which late frames of a fenced holder may arrive. They were queued
// before the fence (macvlan broadcast queues, switches) and are no conflict.
const SettleAfterClaim = 100 * time.Millisecond

// DefaultInterval is the time between probe rounds if the pool does not set one.
const DefaultInterval = 50 * time.Millisecond

// ProbeParams are the parameters of a probe.
type ProbeParams struct {
	// Mode of the pool. Off does not probe, empty means Enforce.
	Mode v1alpha1.ConflictMode
	// Rounds to send, at least MinRounds.
	Rounds int
	// Interval after each round. 0 means DefaultInterval.
	Interval time.Duration
	// Ignore lists proxies: MACs whose answers are no conflict.
	Ignore []net.HardwareAddr
	// PreviousMAC is the MAC of the previous holder, if it is known. ARP suppression in switches
	// may still answer for it. Its answer counts only in the last two rounds, and only if it also
	// answers a unicast probe.
	PreviousMAC net.HardwareAddr
	// Settle is how long after the start late frames of the previous holder may arrive:
	// SettleAfterClaim right after a claim, otherwise 0. The last two rounds come after it. If
	// PreviousMAC is not known, no earlier answer counts.
	Settle time.Duration
}

// ParamsOf returns the parameters for the addresses of a pool. It skips invalid MACs to ignore.
func ParamsOf(pool *v1alpha1.IPPool) ProbeParams {
	p := ProbeParams{Mode: pool.ConflictMode(), Rounds: pool.ProbeRounds(), Interval: pool.ProbeInterval()}
	if c := pool.Spec.ConflictDetection; c != nil {
		for _, text := range c.IgnoreMACs {
			if mac, err := net.ParseMAC(text); err == nil {
				p.Ignore = append(p.Ignore, mac)
			}
		}
	}
	return p
}

func (p ProbeParams) withDefaults() ProbeParams {
	p.Rounds = max(p.Rounds, MinRounds)
	if p.Interval <= 0 {
		p.Interval = DefaultInterval
	}
	return p
}

// Source is the part of Fenceline that found a conflict. It is a metric label.
type Source string

// The sources of conflicts.
const (
	SourceProbe    Source = "probe"
	SourceObserver Source = "observer"
	SourceGuard    Source = "guard"
)

// Answer is the result of a probe. If Conflict is false, no host used the address.
type Answer struct {
	Conflict bool
	MAC      net.HardwareAddr
	Kind     bpf.Kind
	Source   Source
}

// Claim states that an address belongs to the holder of a token.
type Claim struct {
	Addr    netip.Addr
	Network uint64
	Token   uint64
	// PreviousToken is the token of the previous holder, if known. Only that holder acknowledges.
	PreviousToken uint64
	// PreviousMAC is the MAC of the previous holder, if it is known. Each claim also goes to it by
	// unicast, which passes storm control and ARP suppression. Other hosts may have the same MAC.
	PreviousMAC net.HardwareAddr
	// Since is when a verification sent its first claim, with this token or with that of the version of the lease that
	// this one replaced. Otherwise it is zero.
	Since time.Time
	// Mode of the pool. Only Enforce, or empty, claims.
	Mode v1alpha1.ConflictMode
}

// LastHolder is the last holder of an address, as its lease records it.
type LastHolder struct {
	Addr netip.Addr
	// Parent is the name that the parent has on the holder's node.
	Parent string
	// MAC is empty if it is not recorded.
	MAC net.HardwareAddr
}

// Verification has the parameters of Verify.
type Verification struct {
	// Claim to send. Its token is newer than the previous holder's.
	Claim Claim
	// Probe parameters. Verify sets Mode, PreviousMAC and Settle from the claim.
	Probe ProbeParams
	// Gateway of the pool, which may be the canary; invalid if there is none.
	Gateway netip.Addr
	// SlotDead, Asserted, OthersShare, Guessed and Unguarded are the caller's evidence, see Evidence.
	SlotDead, Asserted, OthersShare, Guessed, Unguarded bool
}

// Evidence returns the evidence of the caller alone.
func (v Verification) Evidence() Evidence {
	return Evidence{SlotDead: v.SlotDead, Asserted: v.Asserted, OthersShare: v.OthersShare, Guessed: v.Guessed, Unguarded: v.Unguarded}
}

// Announcement has the parameters of Announce.
type Announcement struct {
	// NetNS is the path of Interface's network namespace; "" is the agent's own.
	NetNS     string
	Interface string
	// NodeEnd is the ifindex of the other end of a veth on a bridge; 0: it is none.
	NodeEnd int
	MAC     net.HardwareAddr
	Addr    netip.Addr
	// Slot of the interface's guard. A dead slot is not announced; 0 is not checked.
	Slot uint32
	// Mode of the pool. Off announces nothing.
	Mode v1alpha1.ConflictMode
}

// Holding is one address that a pod of this node holds (a Bound lease).
type Holding struct {
	// Parent is the ifindex of the segment's parent.
	Parent  int
	Network uint64
	Token   uint64
	// Announcement of the pod's interface. Its Addr and Mode are also those of the claim.
	Announcement
	// Ignore lists proxies: MACs that may use the address without conflict.
	Ignore []net.HardwareAddr
}

func (h Holding) key() bpf.Key { return bpf.Key{Segment: uint32(h.Parent), Addr: h.Addr} }

func (h Holding) claim() Claim {
	return Claim{Addr: h.Addr, Network: h.Network, Token: h.Token, Mode: h.Mode}
}

// Conflict reports a second speaker for an address held here.
type Conflict struct {
	Holding Holding
	MAC     net.HardwareAddr
	Source  Source
}

// claims reports whether a pool of mode m sends claims and defends its holders.
func claims(m v1alpha1.ConflictMode) bool { return m == v1alpha1.ModeEnforce || m == "" }

// speaks reports whether a pool of mode m sends any frames.
func speaks(m v1alpha1.ConflictMode) bool { return m != v1alpha1.ModeOff }
