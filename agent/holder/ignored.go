// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/event"
)

// mostNetworks bounds the networks that are remembered.
const mostNetworks = 256

// ignored are the networks whose configuration has fields that Fenceline does not read, and that an
// event has reported. Safe for concurrent use.
type ignored struct {
	mu   sync.Mutex
	told map[string]bool
}

// isNew reports whether the fields of a network were not reported before.
func (i *ignored) isNew(n agentapi.Network) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	key := n.Name + "\n" + strings.Join(n.Ignored, "\n")
	if i.told[key] {
		return false
	}
	if i.told == nil || len(i.told) >= mostNetworks {
		i.told = map[string]bool{}
	}
	i.told[key] = true
	return true
}

// tell reports the fields of a network in an event of the pod, once for each configuration.
func (i *ignored) tell(recorder events.EventRecorder, pod *corev1.Pod, n agentapi.Network) {
	if len(n.Ignored) == 0 || !i.isNew(n) {
		return
	}
	recorder.Eventf(pod, nil, corev1.EventTypeWarning, "ConfigurationIgnored", "Bind", "%s", ignoredNote(n))
}

// ignoredNote names the fields and their substitutes. It counts the fields that do not fit.
func ignoredNote(n agentapi.Network) string {
	const more, digits = ", and %d more fields", 4
	text := fmt.Sprintf("the configuration of network %.64s has fields without effect: ", n.Name)
	for i, key := range n.Ignored {
		part := fmt.Sprintf("%.64s (%s)", key, insteadOf(key))
		if i > 0 {
			part = ", " + part
		}
		if len(text)+len(part)+len(more)+digits > event.MaxNote {
			return text + fmt.Sprintf(more, len(n.Ignored)-i)
		}
		text += part
	}
	return text
}

// insteadOf returns the setting that has the effect of a field of another plugin: of an IPAM plugin,
// or of Spiderpool's coordinator, whose place a chained fenceline takes.
func insteadOf(key string) string {
	switch key {
	case "ipam.ranges", "ipam.range", "ipam.rangeStart", "ipam.rangeEnd", "ipam.range_start", "ipam.range_end",
		"ipam.subnet", "ipam.addresses", "ipam.ipRanges":
		return "use ips of a pool"
	case "ipam.exclude":
		return "use excludeIPs of a pool"
	case "ipam.gateway":
		return "use gateway of a pool"
	case "ipam.match_master_subnet":
		return "use default_ipv4_ippool or nodeName of a pool"
	case "ipam.dns", "ipam.resolvConf":
		return "use dnsConfig of the pod"
	case "ipam.dataDir":
		return "leases are objects of Kubernetes"
	case "ipam.default_ipv4_ippool", "ipam.default_ipv6_ippool", "ipam.routes", "ipam.clean_gateway":
		return "write it in the ipam of the plugin that makes the interface"
	case "hijackCIDR", "overlayPodCIDR":
		return "use hostLinkCIDRs"
	case "serviceCIDR":
		return "use cni.hostLink.serviceCIDRs of the chart"
	case "podDefaultRouteNic", "podDefaultRouteNIC":
		return "use the annotation default-route-nic"
	case "podMACPrefix":
		return "use macPolicy of a pool"
	case "detectGateway":
		return "use gatewayCheck of a pool"
	case "detectIPConflict", "detectOptions":
		return "every address is probed"
	case "tunePodRoutes":
		return "use mode"
	case "hostRPFilter", "podRPFilter":
		return "it is set for each interface"
	}
	return "remove it"
}
