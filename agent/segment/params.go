package segment

import (
	"net"
	"net/netip"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
)

// SettleAfterClaim is how long frames that a holder queued before its fence may
// still arrive (macvlan broadcast queues, switches): such frames are no conflict.
const SettleAfterClaim = 100 * time.Millisecond

// DefaultInterval separates probe rounds where the pool does not say.
const DefaultInterval = 50 * time.Millisecond

// ProbeParams say how to probe and whose answers do not count.
type ProbeParams struct {
	// Mode of the pool; Off probes nothing. Empty means Enforce.
	Mode v1alpha1.ConflictMode
	// Rounds to send; less than MinRounds means MinRounds.
	Rounds int
	// Interval from one round to the next, and from the last one to the end; 0 means DefaultInterval.
	Interval time.Duration
	// Ignore lists proxies: MACs whose answers are no conflict.
	Ignore []net.HardwareAddr
	// PreviousMAC is the MAC of the address's ended holder, if it is known. ARP
	// suppression in switches goes on answering for it, so its answer counts
	// only in the last two rounds and if it answers a unicast probe as well.
	PreviousMAC net.HardwareAddr
	// Settle is how long after the start the previous holder's frames may still
	// arrive late: SettleAfterClaim right after a claim, otherwise 0. The last
	// two rounds are sent after it. If PreviousMAC is not known, nobody's
	// answer counts before.
	Settle time.Duration
}

func (p ProbeParams) withDefaults() ProbeParams {
	p.Rounds = max(p.Rounds, MinRounds)
	if p.Interval <= 0 {
		p.Interval = DefaultInterval
	}
	return p
}

// Source says which part of Fenceline met a conflict; it is a metric label.
type Source string

// The sources of conflicts.
const (
	SourceProbe    Source = "probe"
	SourceObserver Source = "observer"
	SourceGuard    Source = "guard"
)

// Answer is what a probe heard. Conflict false: nobody spoke for the address.
type Answer struct {
	Conflict bool
	MAC      net.HardwareAddr
	Kind     bpf.Kind
	At       time.Duration // boot time
	Source   Source
}

// Claim says that an address belongs to the holder of a token.
type Claim struct {
	Addr    netip.Addr
	Network uint64
	Token   uint64
	// PreviousMAC, if known, gets each claim by unicast too, past storm control
	// and ARP suppression, and its holder alone acknowledges.
	PreviousMAC net.HardwareAddr
	// Mode of the pool; only Enforce (or empty) claims.
	Mode v1alpha1.ConflictMode
}

// Verification asks for a verdict on an address that was taken from a holder.
type Verification struct {
	// Claim to make; its token is newer than the previous holder's.
	Claim Claim
	// Probe parameters; Mode, PreviousMAC and Settle are taken from the claim.
	Probe ProbeParams
	// SlotDead, Asserted, OthersShare and Guessed are the caller's evidence, see Evidence.
	SlotDead, Asserted, OthersShare, Guessed bool
}

// Announcement tells a segment of a new holder, from the holder's own interface.
type Announcement struct {
	// NetNS is the path of the network namespace of Interface; "" is the agent's own.
	NetNS     string
	Interface string
	MAC       net.HardwareAddr
	Addr      netip.Addr
	// Slot of the interface's guard: a dead slot is not announced.
	Slot uint32
	// Mode of the pool; Off announces nothing.
	Mode v1alpha1.ConflictMode
}

// Holding is one address that a pod of this node holds (a Bound lease).
type Holding struct {
	// Parent is the ifindex of the segment's parent.
	Parent    int
	Addr      netip.Addr
	Network   uint64
	Token     uint64
	Slot      uint32
	MAC       net.HardwareAddr
	NetNS     string
	Interface string
	Mode      v1alpha1.ConflictMode
	// Ignore lists proxies: MACs that may speak for the address without conflict.
	Ignore []net.HardwareAddr
}

func (h Holding) key() bpf.Key { return bpf.Key{Segment: uint32(h.Parent), Addr: h.Addr} }

func (h Holding) claim() Claim {
	return Claim{Addr: h.Addr, Network: h.Network, Token: h.Token, Mode: h.Mode}
}

func (h Holding) announcement() Announcement {
	return Announcement{NetNS: h.NetNS, Interface: h.Interface, MAC: h.MAC, Addr: h.Addr, Slot: h.Slot, Mode: h.Mode}
}

// Fence reports that a newer claim fenced an address held here.
type Fence struct {
	Key bpf.Key
	// Token of the claim and Mine, of the lease it beat.
	Token, Mine uint64
	// MAC of the claim's sender.
	MAC net.HardwareAddr
	At  time.Duration // boot time
}

// Conflict reports a second speaker for an address held here.
type Conflict struct {
	Holding Holding
	MAC     net.HardwareAddr
	Source  Source
	// Kind of the frame; 0 if the second speaker is another node's claim with an older token.
	Kind bpf.Kind
	At   time.Duration // boot time
	// Defended: this node answers with its claim and an announcement.
	Defended bool
}

// claims tells whether a pool of mode m sends claims and defends its holders.
func claims(m v1alpha1.ConflictMode) bool { return m == v1alpha1.ModeEnforce || m == "" }

// speaks tells whether a pool of mode m sends frames at all.
func speaks(m v1alpha1.ConflictMode) bool { return m != v1alpha1.ModeOff }
