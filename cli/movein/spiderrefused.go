// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Twice returns the pods with two interfaces of one pool, as clauses. By its records, Spiderpool gives a pod no second
// address of a SpiderIPPool, but the first one again.
func (f Facts) Twice(leases []v1alpha1.IPLease) (all []string) {
	if f.From != v1alpha1.MoveSpiderpool {
		return nil
	}
	type use struct{ uid, pool string }
	interfaces, told := map[use]string{}, map[string]bool{}
	for i := range leases {
		s := &leases[i].Spec
		at := slices.IndexFunc(f.Pods, func(p Pod) bool { return s.Holder != nil && s.State == v1alpha1.StateBound && p.UID == s.Holder.PodUID })
		if at < 0 {
			continue
		}
		pod, of := f.Pods[at], use{s.Holder.PodUID, s.Pool}
		first, known := interfaces[of]
		template := fmt.Sprint(pod.Namespace, pod.OwnerKind, pod.OwnerName, s.Pool)
		if known && first != s.Holder.Interface && !told[template] {
			told[template] = true // once for all pods of a Deployment
			all = append(all, fmt.Sprintf("pod %s has addresses of pool %s on the interfaces %s and %s, and Spiderpool would give its successor one address for both: have one interface choose another pool, and restart the pod", pod, s.Pool, first, s.Holder.Interface))
		}
		interfaces[of] = s.Holder.Interface
	}
	return all
}

// disagrees returns why Spiderpool cannot get a record of a pod's address, or "".
func (s Spiderpool) disagrees(pod Pod, nic string, a netip.Addr) string {
	if pod.OwnerKind == "VirtualMachineInstance" {
		return "Spiderpool keeps it for the virtual machine, not for its pod: restart it"
	}
	if uid, exists := s.owners[pod.String()]; exists && uid != pod.UID {
		return fmt.Sprintf("SpiderEndpoint %s is of an earlier pod, which a scan of Spiderpool frees", pod)
	}
	for other, endpoints := range s.endpoints {
		if other != a && other.Is4() == a.Is4() && slices.ContainsFunc(endpoints, func(e endpoint) bool { return e.name == pod.String() && e.nic == nic }) {
			return fmt.Sprintf("SpiderEndpoint %s has %s for its interface", pod, other)
		}
	}
	return ""
}

// Differs returns an error if Spiderpool would make another SpiderIPPool of it. It fills what a new one lacks from the
// SpiderSubnet of the same subnet, which a later update would take away again.
func (p SpiderIPPool) Differs(made map[string]any) error {
	for _, field := range []string{"gateway", "routes"} {
		theirs, _, _ := unstructured.NestedFieldNoCopy(made, "spec", field)
		if reflect.DeepEqual(theirs, p.Spec[field]) {
			continue
		}
		text, _ := json.Marshal(theirs)
		subnet, _, _ := unstructured.NestedString(made, "metadata", "labels", subnetLabel)
		return fmt.Errorf("SpiderSubnet %s of its subnet would give it the %s %s: give these to the pool, or take them out of the SpiderSubnet", subnet, field, text)
	}
	return nil
}
