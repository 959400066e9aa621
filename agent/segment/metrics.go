// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceline/fenceline/bpf"
)

// claimResults are the results of a received claim. The label result of
// fenceline_claims_received_total has no other values (R13).
var claimResults = []bpf.Result{
	bpf.ResultShort, bpf.ResultMagic, bpf.ResultForeign, bpf.ResultNotHeld, bpf.ResultForged,
	bpf.ResultOld, bpf.ResultEqual, bpf.ResultFenced, bpf.ResultAgain, bpf.ResultFromPod,
	bpf.ResultBeyond, bpf.ResultDisproved,
}

// Collector exports the metrics of all segments. At each scrape it reads the kernel's counters,
// which survive a restart of the agent.
type Collector struct {
	set                   *Segments
	othersShare, expected func(parent int) bool

	claimsSent, claimsReceived, acksSent, acksReceived, dropped, malformed, deaf, mute, blind, attached *prometheus.Desc
}

var _ prometheus.Collector = (*Collector)(nil)

// Collector returns the collector of all segments. Register it once. othersShare reports whether
// another node shares the parent's segment and could be heard. expected reports whether another
// node has an address that this node should hear on the parent. Only an alert uses expected.
func (s *Segments) Collector(othersShare, expected func(parent int) bool) *Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("fenceline_"+name, help, labels, nil)
	}
	return &Collector{
		set: s, othersShare: othersShare, expected: expected,
		claimsSent:     desc("claims_sent_total", "Claim frames sent by this node's agent."),
		claimsReceived: desc("claims_received_total", "Claim frames received from other nodes, by result.", "result"),
		acksSent:       desc("acks_sent_total", "Claims for which this node's kernel fenced the address and sent an ack."),
		acksReceived:   desc("acks_received_total", "Authentic acks for addresses that this node holds or watches."),
		dropped:        desc("fence_dropped_frames_total", "Frames dropped because their address is fenced."),
		malformed:      desc("malformed_frames_total", "Frames of ARP and neighbour discovery on the parents that are no evidence, because they are malformed."),
		mute:           desc("segment_mute", "1 if no other host answered on this parent when an answer was needed: others may not hear it.", "parent"),
		deaf:           desc("segment_deaf", "1 if silence on this parent proves nothing: no carrier, no observer, or no other node heard for two minutes.", "parent"),
		blind:          desc("segment_blind", "1 if the parent has no carrier or no observer, or heard no other node for two minutes although another node has an address of the same subnet and network.", "parent"),
		attached:       desc("programs_attached", "1 if the observer is attached to this parent.", "parent"),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.claimsSent, c.claimsReceived, c.acksSent, c.acksReceived, c.dropped, c.malformed, c.deaf, c.mute, c.blind, c.attached} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. If a value cannot be read, the scrape reports the error.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(c.claimsSent, prometheus.CounterValue, float64(c.set.claimsSent.Load()))
	c.collectKernel(ch)
	for _, seg := range c.set.All() {
		c.collectSegment(ch, seg)
	}
}

func (c *Collector) collectKernel(ch chan<- prometheus.Metric) {
	counters, err := c.set.kernel.Events.Counters()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.claimsReceived, err)
		return
	}
	total := make(map[bpf.Result]uint64)
	for counter, n := range counters {
		total[counter.Result] += n
	}
	for _, r := range claimResults {
		ch <- prometheus.MustNewConstMetric(c.claimsReceived, prometheus.CounterValue, float64(total[r]), r.String())
	}
	ch <- prometheus.MustNewConstMetric(c.acksSent, prometheus.CounterValue, float64(total[bpf.ResultAckSent]))
	ch <- prometheus.MustNewConstMetric(c.acksReceived, prometheus.CounterValue, float64(total[bpf.ResultAck]))
	ch <- prometheus.MustNewConstMetric(c.dropped, prometheus.CounterValue, float64(total[bpf.ResultDropFenced]))
	ch <- prometheus.MustNewConstMetric(c.malformed, prometheus.CounterValue, float64(total[bpf.ResultMalformed]))
}

func (c *Collector) collectSegment(ch chan<- prometheus.Metric, seg *Segment) {
	h, err := seg.Hearing()
	if errors.Is(err, bpf.ErrNoDevice) {
		return // the parent was deleted; the agent forgets the segment soon
	}
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.deaf, err)
		return
	}
	gauge := func(d *prometheus.Desc, set bool) {
		v := 0.0
		if set {
			v = 1
		}
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, seg.name)
	}
	gauge(c.deaf, h.Deaf(c.othersShare(seg.parent)))
	gauge(c.mute, h.Mute)
	gauge(c.blind, h.Deaf(c.expected(seg.parent)))
	gauge(c.attached, h.Observed)
}
