// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// attachAt requests one more interface with this address.
func attachAt(definition string, addr netip.Addr) func(*corev1.Pod) {
	text := value(json.Marshal([]any{map[string]any{"name": definition, "ips": []netip.Addr{addr}}}))
	return attach(string(text))
}

// requests: an attachment that requests an address by the capability ips gets it. An event says why
// it cannot have an address that is taken or outside its pool.
func (a *act) requests(ctx context.Context, pool string) {
	first, count := 120, 2
	a.addPool(ctx, pool, v1alpha1.IPPoolSpec{Subnet: underlay.String(), IPs: a.ips(first, count)})
	a.define(ctx, a.namespace, "requested", map[string]any{"ips": true}, pool)
	wanted, outside := a.address(first+1), a.address(first+count)
	pod := a.runPod(ctx, "asking", a.Node(1), attachAt("requested", wanted))
	interfaces := a.interfaces(ctx, pod)
	must(len(interfaces) == 2 && interfaces[1].addr == wanted, "pod asking was to get %s as its second address: %v", wanted, interfaces)
	a.boundTo(ctx, wanted, pod.UID)
	a.story.Say("Pod asking requests %s on %s by Multus, and gets it.", wanted, interfaces[1].name)
	for _, refused := range []struct {
		pod  string
		addr netip.Addr
		why  string
	}{
		{"late", wanted, fmt.Sprintf("address %s", wanted)},
		{"astray", outside, fmt.Sprintf("requested address %s for pod %s/astray interface net1: it is outside of the ips of pool %s", outside, a.namespace, pool)},
	} {
		a.startPod(ctx, refused.pod, a.Node(2), attachAt("requested", refused.addr))
		a.isRefused(ctx, refused.pod, refused.why)
	}
}

// isRefused: the agent reports why a pod cannot have an address. The kubelet reports it too, after
// Multus has removed the other interfaces.
func (a *act) isRefused(ctx context.Context, pod, why string) {
	event := a.event(ctx, pod, "AddressRefused", why)
	a.event(ctx, pod, "FailedCreatePodSandBox", why)
	a.story.Say("Pod %s waits. Its event: %q", pod, event.Message)
}
