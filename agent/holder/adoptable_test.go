// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// adoptable are the facts about a dual-stack interface beside eth0 that may be adopted.
func adoptable(changes ...func(*adoptFacts)) *adoptFacts {
	const mac = "02:00:00:00:00:05"
	hardware, _ := net.ParseMAC(mac)
	at := func(text ...string) (all []netip.Addr) {
		for _, t := range text {
			all = append(all, netip.MustParseAddr(t))
		}
		return all
	}
	f := &adoptFacts{
		Node: "n1",
		Hold: &v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{
			Address: "10.1.0.5", Pool: "lan", State: v1alpha1.StateQuarantined, Reason: v1alpha1.ReasonMovingIn, NodeName: "n1",
			Holder:   &v1alpha1.Holder{Namespace: "default", Pod: "web", PodUID: "u", Interface: "net1", MAC: mac},
			Previous: &v1alpha1.PreviousHolder{Node: "n1", PodUID: "u", Reason: v1alpha1.ReasonMovingIn},
		}},
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u", Annotations: map[string]string{
				ipam.AnnotationNetworkStatus: `[{"name":"cni0","interface":"eth0","ips":["10.244.0.5"]},{"name":"default/lan","interface":"net1","ips":["10.1.0.5","fd00:1::5"],"mac":"02:00:00:00:00:05"}]`,
			}},
			Spec:   corev1.PodSpec{NodeName: "n1"},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.244.0.5"}}},
		},
		Places: []pod.Place{
			{NetNS: "/ns/other", Interface: "eth0", Addresses: at("10.244.0.6")},
			{NetNS: "/ns/web", Interface: "eth0", Addresses: at("10.244.0.5", "fe80::1")},
			{NetNS: "/ns/web", Interface: "net1", Addresses: at("10.1.0.5", "fd00:1::5", "fe80::5"), MAC: hardware},
		},
		Pool:   &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "lan"}, Spec: v1alpha1.IPPoolSpec{Subnet: "10.1.0.0/24", Parents: []string{"eth1"}}},
		Ours:   at("10.1.0.5", "fd00:1::5"),
		Link:   pod.Interface{Name: "net1", MAC: hardware, Up: true, Kind: pod.MACVLAN, Parent: pod.Parent{Index: 3, Name: "eth1"}},
		Parent: ipam.Parent{Name: "eth1", Names: []string{"eth1"}},
	}
	for _, change := range changes {
		change(f)
	}
	return f
}

func TestTheReasonsAgainstAnAdoption(t *testing.T) {
	status := func(text string) func(*adoptFacts) {
		return func(f *adoptFacts) { f.Pod.Annotations[ipam.AnnotationNetworkStatus] = text }
	}
	podIPs := func(all ...string) func(*adoptFacts) {
		return func(f *adoptFacts) {
			f.Pod.Status.PodIPs = nil
			for _, ip := range all {
				f.Pod.Status.PodIPs = append(f.Pod.Status.PodIPs, corev1.PodIP{IP: ip})
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*adoptFacts)
		want   string
	}{
		"none": {func(*adoptFacts) {}, ""},
		"none without a MAC and an interface in the record": {func(f *adoptFacts) { f.Hold.Spec.Holder.MAC, f.Hold.Spec.Holder.Interface = "", "" }, ""},
		"none for the first interface, which podIPs name": {func(f *adoptFacts) {
			podIPs("10.1.0.5", "fd00:1::5")(f)
			status("")(f)
		}, ""},
		"none for an address of router advertisements": {func(f *adoptFacts) {
			f.Pool.Spec.RouterAdvertisements, f.Ours = v1alpha1.RoutersAccepted, f.Ours[:1]
		}, ""},

		"the move names one": {func(f *adoptFacts) {
			f.Hold.Annotations = map[string]string{v1alpha1.AnnotationMoveHold: "two records"}
		}, "two records"},
		"its pod is gone, and its interface not": {func(f *adoptFacts) { f.Pod = nil }, "its pod does not exist any more, but interface net1 in /ns/web still has it"},
		"its pod is on another node":             {func(f *adoptFacts) { f.Pod.Spec.NodeName = "n2" }, "its pod is on node n2, and the record says n1"},
		"its pod is on the host's network":       {func(f *adoptFacts) { f.Pod.Spec.HostNetwork = true }, "host's network"},
		"its pod is being deleted":               {func(f *adoptFacts) { f.Pod.DeletionTimestamp = &metav1.Time{} }, "its pod ends"},
		"its pod has finished":                   {func(f *adoptFacts) { f.Pod.Status.Phase = corev1.PodSucceeded }, "its pod ends"},
		"its pool is gone":                       {func(f *adoptFacts) { f.Pool = nil }, "pool lan does not exist"},
		"no interface has it":                    {func(f *adoptFacts) { f.Places = f.Places[:2] }, "no network namespace of the node has it"},
		"two interfaces of the pod have it": {func(f *adoptFacts) {
			f.Places[1].Addresses = append(f.Places[1].Addresses, netip.MustParseAddr("10.1.0.5"))
			f.Places[1].Parent, f.Places[2].Parent = f.Link.Parent, f.Link.Parent
		}, "interfaces eth0 in /ns/web and net1 in /ns/web both have it"},
		"another pod has it too": {func(f *adoptFacts) {
			f.Places[0].Addresses = append(f.Places[0].Addresses, netip.MustParseAddr("10.1.0.5"))
			f.Places[0].Parent = pod.Parent{Index: 3, Name: "eth1"}
		}, "interface eth0 in /ns/other, which is not the pod's, has it too"},
		"none if it is elsewhere on no parent of the node": {func(f *adoptFacts) {
			f.Places[0].Addresses = append(f.Places[0].Addresses, netip.MustParseAddr("10.1.0.5"))
		}, ""},
		"podIPs are not known yet":           {podIPs(), "no podIPs yet"},
		"a pod claims a foreign one":         {podIPs("10.244.0.6"), "not the pod's: no interface there has its podIP 10.244.0.6"},
		"one podIP is elsewhere":             {podIPs("10.244.0.5", "fd00:244::5"), "podIP fd00:244::5"},
		"a kind without a segment":           {func(f *adoptFacts) { f.Unfit = errors.New("interface has no parent") }, "no kind that can be guarded: interface has no parent"},
		"another interface":                  {func(f *adoptFacts) { f.Hold.Spec.Holder.Interface = "net2" }, "it is on interface net1, and the record says net2"},
		"another MAC":                        {func(f *adoptFacts) { f.Hold.Spec.Holder.MAC = "02:00:00:00:00:09" }, "has the MAC 02:00:00:00:00:05, and the record says 02:00:00:00:00:09"},
		"a port of a bridge":                 {func(f *adoptFacts) { f.Link.NodeEnd = 7 }, "net1 is a port of a bridge"},
		"the interface is down":              {func(f *adoptFacts) { f.Link.Up = false }, "net1 is down"},
		"another parent":                     {func(f *adoptFacts) { f.Parent = ipam.Parent{Name: "eth2", Names: []string{"eth2"}} }, "on another parent than its pool"},
		"no annotation":                      {status(""), "neither podIPs nor a network-status of its pod has it"},
		"an annotation of others":            {status(`[{"interface":"net1","ips":["10.1.0.6"]}]`), "neither podIPs nor the network-status"},
		"an annotation of another interface": {status(`[{"interface":"net2","ips":["10.1.0.5"]}]`), "the network-status of its pod says net2"},
		"an annotation of another MAC":       {status(`[{"interface":"net1","ips":["10.1.0.5"],"mac":"02:00:00:00:00:09"}]`), "the network-status of its pod says 02:00:00:00:00:09"},
		"an address without a hold":          {func(f *adoptFacts) { f.Ours = f.Ours[:1] }, "interface net1 also has fd00:1::5"},
		"a pod of Fenceline has it":          {func(f *adoptFacts) { f.Taken = true }, "another pod of this node has it under Fenceline"},
	} {
		t.Run(name, func(t *testing.T) {
			got := adoptable(c.change).against()
			check.That(t, (got == "") == (c.want == "") && strings.Contains(got, c.want), "against it is %q, not %q", got, c.want)
		})
	}
}

func TestTheEndOfAHeldPod(t *testing.T) {
	without := func(f *adoptFacts) { f.Places = f.Places[:2] }
	for name, c := range map[string]struct {
		changes []func(*adoptFacts)
		want    bool
	}{
		"it runs":                       {nil, false},
		"it runs without its interface": {[]func(*adoptFacts){without}, false},
		"it does not exist, and no namespace is left": {[]func(*adoptFacts){without, func(f *adoptFacts) { f.Pod = nil }}, true},
		"it has finished":                       {[]func(*adoptFacts){without, func(f *adoptFacts) { f.Pod.Status.Phase = corev1.PodFailed }}, true},
		"its next sandbox asks for the address": {[]func(*adoptFacts){without, func(f *adoptFacts) { f.Asked = true }}, true},
		"it asks while the old sandbox has it":  {[]func(*adoptFacts){func(f *adoptFacts) { f.Asked = true }}, false},
		"it does not exist, and runs on":        {[]func(*adoptFacts){func(f *adoptFacts) { f.Pod = nil }}, false},
	} {
		t.Run(name, func(t *testing.T) { check.Equal(t, adoptable(c.changes...).isGone(), c.want, "gone") })
	}
}
