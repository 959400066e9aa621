// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"net/netip"
	"time"
)

// Timing is the schedule of the probes in Prove, off the path of an ADD.
type Timing struct {
	// Wait bounds the random time before the first probe.
	Wait time.Duration
	// Num is how many probes are sent.
	Num int
	// Min and Max bound the random time between two probes.
	Min, Max time.Duration
	// Listen is the time for answers after the last probe.
	Listen time.Duration
}

// The times of RFC 5227, section 1.1.
const (
	probeWait    = time.Second     // PROBE_WAIT
	probeNum     = 3               // PROBE_NUM
	probeMin     = time.Second     // PROBE_MIN
	probeMax     = 2 * time.Second // PROBE_MAX
	announceWait = 2 * time.Second // ANNOUNCE_WAIT
)

// The times of RFC 4862, section 5.4, and RFC 4861, section 10.
const (
	maxRtrSolicitationDelay = time.Second // MAX_RTR_SOLICITATION_DELAY
	// dupAddrDetectTransmits is 1 by default. With 3, no address looks free after one lost frame.
	dupAddrDetectTransmits = 3
	retransTimer           = time.Second // RETRANS_TIMER
)

// TimingFor returns the times of RFC 5227 for IPv4, of RFC 4862 for IPv6.
func TimingFor(addr netip.Addr) Timing {
	if addr.Is4() {
		return Timing{Wait: probeWait, Num: probeNum, Min: probeMin, Max: probeMax, Listen: announceWait}
	}
	return Timing{
		Wait: maxRtrSolicitationDelay, Num: dupAddrDetectTransmits,
		Min: retransTimer, Max: retransTimer, Listen: retransTimer,
	}
}

// Between returns the time between least and most at jitter, which is 0 to 1.
func Between(least, most time.Duration, jitter float64) time.Duration {
	return least + time.Duration(float64(most-least)*jitter)
}
