// SPDX-License-Identifier: Apache-2.0

package ipam

const (
	subnetsForm = `[{"interface": "eth0", "ipv4": ["subnet-a"], "ipv6": ["subnet-b"]}]`
	subnetForm  = `{"ipv4": ["subnet-a"], "ipv6": ["subnet-b"]}`
)

// refuseSubnets returns an error for a pod with the annotation subnets or subnet. Such a pod asks
// for an address of an IPSubnet, and must not get one of another pool instead.
func refuseSubnets(pod Pod) error {
	for _, wanted := range []struct{ name, form string }{{annotationSubnets, subnetsForm}, {annotationSubnet, subnetForm}} {
		if a, ok := find(pod.describe(), pod.Annotations, wanted.form, wanted.name); ok {
			return a.wrong("IPSubnet is not available in this version: name pools with the annotation ippool or ippools")
		}
	}
	return nil
}
