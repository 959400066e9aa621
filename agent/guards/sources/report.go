// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/event"
)

const (
	// reportPeriod is the time between two events of a pod for one reason.
	reportPeriod = 10 * time.Minute
	// reportsAhead bounds the reports that wait. The counts in the kernel lose none.
	reportsAhead = 64
)

// reasons describe frames in events, and name the field of spec.sourceGuardAllow that allows them, if one
// does.
var reasons = map[bpf.Result]struct{ what, field string }{
	bpf.ResultDropEther:       {"from a MAC that is not the interface's", "macs"},
	bpf.ResultDropSenderMAC:   {"of ARP or ND with a MAC that is not the interface's", "macs"},
	bpf.ResultDropUnleased:    {"from an address that is not leased to the pod", "cidrs"},
	bpf.ResultDropSlot:        {"from an address that another pod holds", ""},
	bpf.ResultDropFenced:      {"from an address that was taken from the pod", ""},
	bpf.ResultDropLinkLocal:   {"from a link-local address that is not the interface's", "cidrs"},
	bpf.ResultDropUnspecified: {"from 0.0.0.0 or ::, other than a probe for its own address", "cidrs"},
	bpf.ResultDropRouter:      {"that only a router may send", "roles: Router"},
	bpf.ResultDropDHCPServer:  {"that only a DHCP server may send", "roles: DHCPServer"},
	bpf.ResultDropTagged:      {"with a VLAN tag", "roles: Tagged"},
	bpf.ResultDropBridge:      {"that only a bridge may send", "roles: Bridge"},
	bpf.ResultDropMalformed:   {"that is malformed", ""},
}

// Reason returns the short name of the reason for which a frame was dropped, as the metric has it.
func Reason(r bpf.Result) string { return strings.TrimPrefix(r.String(), "drop-") }

// Met takes an event of the kernel about a frame. It does not block.
func (k *Keeper) Met(ev bpf.Event) {
	select {
	case k.met <- ev:
	default: // the kernel counts it
	}
}

// report reports a frame in an event of its pod.
func (k *Keeper) report(ev bpf.Event) {
	o := ev.Offence()
	e := k.entries()[o.Slot]
	if e != nil && o.Result == bpf.ResultDropLinkLocal {
		k.readSoon(e) // the kernel of the pod may have made another address
	}
	reason, known := reasons[o.Result]
	if e == nil || !known || !k.isDue(e, o) {
		return
	}
	did, kind := "drops", "SourceDropped"
	if o.Observed {
		did, kind = "would drop", "SourceObserved"
	}
	what, advice := reason.what, "no pool can allow them"
	if reason.field != "" {
		advice = "if the pod must send them, allow them by spec.sourceGuardAllow." + reason.field + " of its pool"
	}
	for _, other := range k.beside(e) {
		if slices.ContainsFunc(other.Addresses, func(a attachment.Address) bool { return a.Addr == ev.Key.Addr }) {
			what, advice = "from the address of its interface "+other.Interface+", which has another parent", "route the pod's packets by their source, such as with the plugin sbr"
		}
	}
	k.Events.Eventf(event.Pod(e.PodNamespace, e.PodName, e.PodUID), nil, corev1.EventTypeWarning, kind, "Guard",
		"the source guard %s frames of %s %s (the last one: address %s, MAC %s); %s", did, e.Interface, what, ev.Key.Addr, ev.MAC, advice)
}

// reported is one sort of events.
type reported struct {
	containerID, ifname string
	bpf.Offence
}

// isDue reports whether an event may be sent, and forgets those that are long past.
func (k *Keeper) isDue(e *attachment.Entry, o bpf.Offence) bool {
	now, key := k.Clock.Now(), reported{e.ContainerID, e.Interface, o}
	maps.DeleteFunc(k.told, func(_ reported, at time.Time) bool { return now.Sub(at) >= reportPeriod })
	if _, recent := k.told[key]; recent {
		return false
	}
	k.told[key] = now
	return true
}

// entries returns the entries of this session by slot.
func (k *Keeper) entries() map[uint32]*attachment.Entry {
	all := map[uint32]*attachment.Entry{}
	for _, e := range k.Entries() {
		if e.Session == k.Session && e.Slot != 0 {
			all[e.Slot] = e
		}
	}
	return all
}

// reporting handles the events of the kernel until ctx ends.
func (k *Keeper) reporting(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-k.met:
			k.report(ev)
		}
	}
}

var framesDesc = prometheus.NewDesc("fenceline_source_guard_frames_total",
	"Frames of pods of this node that were something else than the pod's, by result and reason. Only pods with such frames have series, while they live; the pod is empty for frames of a MAC that no device of the node has.",
	[]string{"namespace", "pod", "result", "reason"}, nil)

// Describe implements prometheus.Collector.
func (k *Keeper) Describe(ch chan<- *prometheus.Desc) { ch <- framesDesc }

// Collect implements prometheus.Collector. The scrape reports an error of the kernel.
func (k *Keeper) Collect(ch chan<- prometheus.Metric) {
	offences, err := k.Kernel.Sources.Offences()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(framesDesc, err)
		return
	}
	type labels struct{ namespace, pod, result, reason string }
	frames, entries := map[labels]uint64{}, k.entries()
	for o, n := range offences {
		l := labels{result: "dropped", reason: Reason(o.Result)}
		if o.Observed {
			l.result = "observed"
		}
		if o.Slot != 0 {
			e := entries[o.Slot]
			if e == nil {
				continue // the pod has gone, and its slot is swept soon
			}
			l.namespace, l.pod = e.PodNamespace, e.PodName
		}
		frames[l] += n // a pod may have several interfaces
	}
	for l, n := range frames {
		ch <- prometheus.MustNewConstMetric(framesDesc, prometheus.CounterValue, float64(n), l.namespace, l.pod, l.result, l.reason)
	}
}
