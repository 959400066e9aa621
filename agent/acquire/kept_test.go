// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// keptCase is one row of TestDecideKept. The pod is web-0 with UID u1, on node n1.
type keptCase struct {
	name string
	// annotations of the pod, and the chart's value.
	annotations map[string]string
	chart       v1alpha1.StatefulSetMode
	deployment  bool
	requested   string
	leases      []keptCandidate
	// want lists the leases that are taken and left, such as "take 10.0.0.2, leave 10.0.0.3".
	want string
	// says is a part of the error, or of the reason for which a lease is left.
	says string
}

type leaseChange func(*keptCandidate)

// kept is a Retained lease of the pod's name whose pool serves the pod.
func kept(addr string, change ...leaseChange) keptCandidate {
	l := keptCandidate{
		IPLease: &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: addr}, Spec: v1alpha1.IPLeaseSpec{
			Address: addr, Pool: "a", State: v1alpha1.StateRetained, Since: metav1.NewTime(time.Unix(1000, 0)),
			Holder: &v1alpha1.Holder{Namespace: "shop", Pod: "web-0", PodUID: "u0", Interface: "eth0", OwnerKind: "StatefulSet"},
		}},
		pool:     &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		standing: ipam.Standing{Named: true},
	}
	for _, c := range change {
		c(&l)
	}
	return l
}

func quarantined(l *keptCandidate) { l.Spec.State = v1alpha1.StateQuarantined }
func bound(l *keptCandidate)       { l.Spec.State = v1alpha1.StateBound }
func own(l *keptCandidate)         { l.Spec.State, l.Spec.Holder.PodUID = v1alpha1.StateBound, "u1" }
func unnamed(l *keptCandidate)     { l.standing.Named = false }
func since(s int64) leaseChange {
	return func(l *keptCandidate) { l.Spec.Since = metav1.NewTime(time.Unix(1000+s, 0)) }
}

func refused(reason ipam.Reason) leaseChange {
	return func(l *keptCandidate) {
		l.standing.Rejected = &ipam.Rejection{Pool: l.Spec.Pool, Reason: reason, Detail: "it says " + string(reason)}
	}
}

func gone(l *keptCandidate) { refused(ipam.NotFound)(l); l.pool = nil }

func leftByPod(l *keptCandidate) {
	l.standing.Named, l.standing.Left = false, "annotation ipam.fenceline.io/ippool of pod shop/web-0"
}

func unwished(l *keptCandidate) {
	l.standing.Unwished = "annotation ipam.fenceline.io/ips of pod shop/web-0 names another address"
}

// sandboxEnded is kept for the next sandbox of the pod that it names.
func sandboxEnded(l *keptCandidate) { l.Spec.Reason = v1alpha1.ReasonSandboxEnded }

func sandboxRetained(l *keptCandidate) {
	l.Spec.State, l.Spec.Reason = v1alpha1.StateRetained, v1alpha1.ReasonSandboxEnded
}

func poolMode(m v1alpha1.StatefulSetMode) leaseChange {
	return func(l *keptCandidate) { l.pool.Spec.StatefulSet = m }
}

func recordedAs(p v1alpha1.RetentionPolicy) leaseChange {
	return func(l *keptCandidate) { l.Spec.Retention = &v1alpha1.LeaseRetention{Policy: p} }
}

// The rows are the specification of the addresses that stay with their name.
func TestDecideKept(t *testing.T) {
	const (
		prefer, require, off = v1alpha1.StatefulSetPrefer, v1alpha1.StatefulSetRequire, v1alpha1.StatefulSetOff
		static               = "ipam.fenceline.io/static-ip"
		alias                = v1alpha1.AliasStaticIP
		two, three, six      = "10.0.0.2", "10.0.0.3", "fd00::2"
		otherNode            = ipam.NodeName
	)
	type list = []keptCandidate
	type on = map[string]string
	for _, group := range [][]keptCase{{
		// An address is kept.
		{"no lease: nothing is kept", nil, prefer, false, "", nil, "", ""},
		{"a Retained address is taken", nil, prefer, false, "", list{kept(two)}, "take 10.0.0.2", ""},
		{"a Quarantined address is taken, once it is proven", nil, prefer, false, "", list{kept(two, quarantined)}, "take 10.0.0.2", ""},
		{"an address that the pod before still has is taken, once the controller has quarantined it", nil, prefer, false, "", list{kept(two, bound)}, "take 10.0.0.2", ""},
		{"one address of each family is taken", nil, prefer, false, "", list{kept(two), kept(six)}, "take 10.0.0.2, take fd00::2", ""},
		{"an older sandbox's address is taken, also by a Deployment's pod", nil, prefer, true, "", list{kept(two, own)}, "take 10.0.0.2", ""},
	}, {
		// Other pools are named now.
		{"other pools are named by another source than the pod: it is kept", nil, prefer, false, "", list{kept(two, unnamed)}, "take 10.0.0.2", ""},
		{"the same with Require", nil, require, false, "", list{kept(two, unnamed)}, "take 10.0.0.2", ""},
		{"the pod itself names other pools: it is left", nil, prefer, false, "", list{kept(two, leftByPod)}, "leave 10.0.0.2", "pool a is no longer one of the pools of annotation ipam.fenceline.io/ippool of pod shop/web-0"},
		{"the same with static-ip true: the pod's author has chosen both", on{static: "true"}, prefer, false, "", list{kept(two, leftByPod)}, "leave 10.0.0.2", "no longer one of the pools"},
		{"the pod names other addresses: it is left", on{static: "true"}, require, false, "", list{kept(two, unwished)}, "leave 10.0.0.2", "annotation ipam.fenceline.io/ips of pod shop/web-0 names another address"},
		{"an older sandbox's address, and the pod names others since", nil, prefer, true, "", list{kept(two, own, unwished)}, "leave 10.0.0.2", ""},
		{"the pod itself names other pools, and the address is Quarantined: it is left to its verifier", nil, prefer, false, "", list{kept(two, leftByPod, quarantined)}, "leave 10.0.0.2", ""},
	}, {
		// The address cannot live on the node.
		{"Prefer, and its pool is for another node: it is left", nil, prefer, false, "", list{kept(two, refused(otherNode))}, "leave 10.0.0.2", "pool a does not serve the pod on node n1: it says NodeName"},
		{"the same while it is Quarantined, since its node is dead", nil, prefer, false, "", list{kept(two, refused(otherNode), quarantined)}, "leave 10.0.0.2", ""},
		{"the same while it is Bound to the pod before", nil, prefer, false, "", list{kept(two, refused(otherNode), bound)}, "leave 10.0.0.2", ""},
		{"Prefer, and its pool is for other namespaces", nil, prefer, false, "", list{kept(two, refused(ipam.NamespaceAffinity))}, "leave 10.0.0.2", ""},
		{"Prefer, and its pool is for other pods", nil, prefer, false, "", list{kept(two, refused(ipam.PodAffinity))}, "leave 10.0.0.2", ""},
		{"Prefer, and no route of the pod leads through its pool", nil, prefer, false, "", list{kept(two, refused(ipam.NoNextHop))}, "leave 10.0.0.2", ""},
		{"Prefer, and its pool does not exist", nil, prefer, false, "", list{kept(two, gone)}, "leave 10.0.0.2", "it says NotFound"},
		{"Prefer, and its pool is invalid: a slip of an operator moves no name", nil, prefer, false, "", list{kept(two, refused(ipam.Invalid))}, "refused", "delete lease 10.0.0.2 to release the address"},
		{"Prefer, and only one family's pool serves the node", nil, prefer, false, "", list{kept(two), kept(six, refused(otherNode))}, "take 10.0.0.2, leave fd00::2", ""},
		{"an older sandbox's address whose pool no longer serves: a Deployment's pod leaves it", nil, require, true, "", list{kept(two, own, refused(otherNode))}, "leave 10.0.0.2", ""},
		{"Require, and its pool is for another node", nil, require, false, "", list{kept(two, refused(otherNode))}, "refused",
			"10.0.0.2 is kept for pod shop/web-0, but its pool a does not serve the pod on node n1: it says NodeName; delete lease 10.0.0.2 to release the address"},
		{"Require, and its pool does not exist", nil, require, false, "", list{kept(two, gone)}, "refused", "delete lease 10.0.0.2"},
		{"Require, and only one family's pool serves the node", nil, require, false, "", list{kept(two), kept(six, refused(otherNode))}, "refused", "fd00::2 is kept"},
	}, {
		// Precedence: the pod's annotations, the pool's field, the chart's value.
		{"static-ip true makes Prefer strict", on{static: "true"}, prefer, false, "", list{kept(two, refused(otherNode))}, "refused", "10.0.0.2 is kept"},
		{"static-ip true keeps although the pool says Off", on{static: "true"}, off, false, "", list{kept(two, poolMode(off))}, "take 10.0.0.2", ""},
		{"the alias of static-ip is the same", on{alias: "true"}, off, false, "", list{kept(two, poolMode(prefer), refused(otherNode))}, "refused", "10.0.0.2 is kept"},
		{"the pool's Require beats the chart's Prefer", nil, prefer, false, "", list{kept(two, poolMode(require), refused(otherNode))}, "refused", "10.0.0.2 is kept"},
		{"the pool's Prefer beats the chart's Require", nil, require, false, "", list{kept(two, poolMode(prefer), refused(otherNode))}, "leave 10.0.0.2", ""},
		{"the pool's Prefer beats the chart's Off", nil, off, false, "", list{kept(two, poolMode(prefer), quarantined)}, "take 10.0.0.2", ""},
		{"the pool's Off beats the chart's Require", nil, require, false, "", list{kept(two, poolMode(off), quarantined)}, "leave 10.0.0.2", "statefulSet of pool a is Off"},
		{"static-ip false beats the pool's Require", on{static: "false"}, prefer, false, "", list{kept(two, poolMode(require), quarantined)}, "leave 10.0.0.2", "annotation ipam.fenceline.io/static-ip is false"},
		{"ip-retention asks to keep although the chart says Off", on{"ipam.fenceline.io/ip-retention": "48h"}, off, false, "", list{kept(two, quarantined)}, "take 10.0.0.2", ""},
		{"ip-retention alone is not strict", on{"ipam.fenceline.io/ip-retention": "48h"}, prefer, false, "", list{kept(two, refused(otherNode))}, "leave 10.0.0.2", ""},
	}, {
		// Nothing is kept.
		{"Off: an address that was kept until now is used once more", nil, off, false, "", list{kept(two)}, "take 10.0.0.2", ""},
		{"Off: its pool is for another node", nil, off, false, "", list{kept(two, refused(otherNode))}, "leave 10.0.0.2", "statefulSet of the chart is Off"},
		{"Off: a Quarantined address is not waited for", nil, off, false, "", list{kept(two, quarantined)}, "leave 10.0.0.2", ""},
		{"Off: an address of the pod before is not waited for", on{alias: "false"}, prefer, false, "", list{kept(two, bound)}, "leave 10.0.0.2", "annotation " + alias + " is false"},
		{"Off: the address that the pod before kept for its next sandbox is the controller's to end", nil, off, false, "", list{kept(two, sandboxEnded)}, "leave 10.0.0.2", ""},
		{"Off: the address that the pod itself kept for its next sandbox is taken", nil, off, false, "", list{kept(two, own, sandboxRetained)}, "take 10.0.0.2", ""},
		{"Off: an older sandbox's address is the pod's", nil, off, false, "", list{kept(two, own)}, "take 10.0.0.2", ""},
		{"a lease that records that nothing is kept is nobody's, whatever is asked now", on{static: "true"}, prefer, false, "", list{kept(two, quarantined, recordedAs(v1alpha1.RetainNone))}, "", ""},
		{"the same of an older sandbox is the pod's", nil, off, false, "", list{kept(two, own, recordedAs(v1alpha1.RetainNone))}, "take 10.0.0.2", ""},
	}, {
		// Several leases.
		{"a proven address comes before a Quarantined one", nil, prefer, false, "", list{kept(two, quarantined), kept(three)}, "take 10.0.0.3", ""},
		{"a Quarantined address comes before one that is still Bound", nil, prefer, false, "", list{kept(two, bound), kept(three, quarantined)}, "take 10.0.0.3", ""},
		{"then the one whose pool is named", nil, prefer, false, "", list{kept(two, unnamed, since(5)), kept(three)}, "take 10.0.0.3", ""},
		{"then the later one", nil, prefer, false, "", list{kept(two), kept(three, since(5))}, "take 10.0.0.3", ""},
		{"the one that serves, also with Require", nil, require, false, "", list{kept(two, refused(otherNode)), kept(three)}, "take 10.0.0.3", ""},
		{"the one that serves, and the other one is left", nil, prefer, false, "", list{kept(two, refused(otherNode)), kept(three)}, "take 10.0.0.3, leave 10.0.0.2", ""},
	}, {
		// An address is requested.
		{"the kept address is requested", nil, prefer, false, two, list{kept(two)}, "take 10.0.0.2", ""},
		{"another address is requested", nil, prefer, false, three, list{kept(two)}, "refused", "requested address 10.0.0.3 for pod shop/web-0 interface eth0: 10.0.0.2 is kept for the pod; delete lease 10.0.0.2 to release it"},
		{"an address of the other family is requested", nil, prefer, false, six, list{kept(two)}, "take 10.0.0.2", ""},
		{"Off: another address is requested", nil, off, false, three, list{kept(two)}, "leave 10.0.0.2", ""},
		{"another address is requested, and the kept one is left", nil, prefer, false, three, list{kept(two, refused(otherNode))}, "leave 10.0.0.2", ""},
	}} {
		for _, row := range group {
			t.Run(row.name, func(t *testing.T) { row.check(t) })
		}
	}
}

func (c keptCase) check(t *testing.T) {
	asked := check.Value(v1alpha1.ParseFixedAddress(c.annotations))(t)
	k := keeping{
		pod: "shop/web-0", iface: "pod shop/web-0 interface eth0", node: "n1", uid: "u1",
		asked: asked, byDefault: c.chart, keepsName: !c.deployment, leases: c.leases,
	}
	if c.requested != "" {
		k.requested = []netip.Addr{netip.MustParseAddr(c.requested)}
	}
	d, err := decide(k)
	var got []string
	said := ""
	for _, l := range d.reused {
		got = append(got, "take "+l.Spec.Address)
	}
	for _, l := range d.left {
		got = append(got, "leave "+l.Spec.Address)
		said += l.Why
	}
	if err != nil {
		got, said = []string{"refused"}, err.Error()
	}
	check.That(t, strings.Join(got, ", ") == c.want && strings.Contains(said, c.says), "%s (%s), want %s (%s)", got, said, c.want, c.says)
}
