// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"net/netip"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// The name of a lease is the lock: two nodes that create a lease of one address create one name.
func ExampleLeaseName() {
	fmt.Println(v1alpha1.LeaseName("", netip.MustParseAddr("10.20.0.14")))
	fmt.Println(v1alpha1.LeaseName("", netip.MustParseAddr("fd00:20::e")))
	// Equal addresses on networks that are not connected have different names.
	fmt.Println(v1alpha1.LeaseName("lab", netip.MustParseAddr("10.20.0.14")))
	// Output:
	// 10.20.0.14
	// fd00-0020-0000-0000-0000-0000-0000-000e
	// lab.10.20.0.14
}

func ExampleParseLeaseName() {
	network, addr, err := v1alpha1.ParseLeaseName("lab.fd00-0020-0000-0000-0000-0000-0000-000e")
	fmt.Println(network, addr, err)
	// Output: lab fd00:20::e <nil>
}

// A pod of a StatefulSet asks for its address to be kept for two days after a scale-in.
func ExampleParseRetention() {
	retention, err := v1alpha1.ParseRetention(map[string]string{
		"ipam.fenceline.io/static-ip":    "true",
		"ipam.fenceline.io/ip-retention": "48h",
	})
	fmt.Println(retention.Policy, retention.Duration.Duration, err)

	_, err = v1alpha1.ParseRetention(map[string]string{"ipam.fenceline.io/static-ip": "yes"})
	fmt.Println(err)
	// Output:
	// For 48h0m0s <nil>
	// annotation ipam.fenceline.io/static-ip is "yes", expected true or false
}
