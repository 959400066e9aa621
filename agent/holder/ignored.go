// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/fenceline/fenceline/cni/agentapi"
)

const (
	// mostNetworks bounds the networks that are remembered.
	mostNetworks = 256
	// mostFields is the number of fields that an event names.
	mostFields = 8
)

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

// tell reports the fields of a network in an event of the pod: once for each configuration, and not
// for each of its pods.
func (i *ignored) tell(recorder events.EventRecorder, pod *corev1.Pod, n agentapi.Network) {
	if len(n.Ignored) == 0 || !i.isNew(n) {
		return
	}
	recorder.Eventf(pod, nil, corev1.EventTypeWarning, "ConfigurationIgnored", "Bind", "%s", ignoredNote(n))
}

// ignoredNote names the fields, and the settings that have their effect.
func ignoredNote(n agentapi.Network) string {
	var parts []string
	for i, key := range n.Ignored {
		if i == mostFields {
			parts = append(parts, fmt.Sprintf("and %d more fields", len(n.Ignored)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("ipam.%.64s (%s)", key, insteadOf(key)))
	}
	return fmt.Sprintf("the configuration of network %.64s has fields without effect: %s", n.Name, strings.Join(parts, ", "))
}

// insteadOf returns the setting that has the effect of a field of another IPAM.
func insteadOf(key string) string {
	switch key {
	case "ranges", "range", "rangeStart", "rangeEnd", "range_start", "range_end", "subnet", "addresses", "ipRanges":
		return "use ips of a pool"
	case "exclude":
		return "use excludeIPs of a pool"
	case "gateway":
		return "use gateway of a pool"
	case "match_master_subnet":
		return "use default_ipv4_ippool or nodeName of a pool"
	case "dns", "resolvConf":
		return "use dnsConfig of the pod"
	case "dataDir":
		return "leases are objects of Kubernetes"
	}
	return "remove it"
}
