package v1alpha1

import "time"

// Defaults of a pool's fields.
const (
	// DefaultProbes is PROBE_NUM of RFC 5227.
	DefaultProbes = 3
	// DefaultProbeInterval is shorter than RFC 5227's PROBE_MIN, since a pod's
	// start waits for it; quarantine and defence make up for it.
	DefaultProbeInterval = 50 * time.Millisecond
	// DefaultExtraGrace is waited on top of a Terminating pod's own grace.
	DefaultExtraGrace = 5 * time.Second
	// DefaultCooldown keeps a freed address out of use unless nothing else is free.
	DefaultCooldown = 30 * time.Second
)

// ConflictMode returns what the pool does about a second speaker.
func (p *IPPool) ConflictMode() ConflictMode {
	if c := p.Spec.ConflictDetection; c != nil && c.Mode != "" {
		return c.Mode
	}
	return ModeEnforce
}

// ProbeRounds returns how many probe rounds are sent.
func (p *IPPool) ProbeRounds() int {
	if c := p.Spec.ConflictDetection; c != nil && c.Probes != nil {
		return int(*c.Probes)
	}
	return DefaultProbes
}

// ProbeInterval returns the time between probe rounds.
func (p *IPPool) ProbeInterval() time.Duration {
	if c := p.Spec.ConflictDetection; c != nil && c.Interval != nil {
		return c.Interval.Duration
	}
	return DefaultProbeInterval
}

// Cooldown returns how long a freed address is left alone.
func (p *IPPool) Cooldown() time.Duration {
	if r := p.Spec.Reclaim; r != nil && r.Cooldown != nil {
		return r.Cooldown.Duration
	}
	return DefaultCooldown
}
