// SPDX-License-Identifier: Apache-2.0

package poolset_test

import (
	"fmt"
	"net/netip"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// A pool hands out its ips without its gateway, its exclusions and the reserved addresses.
func ExampleAddresses() {
	gateway := "10.20.0.1"
	pool := &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{
		Subnet:     "10.20.0.0/24",
		IPs:        []string{"10.20.0.1-10.20.0.20"},
		ExcludeIPs: []string{"10.20.0.5"},
		Gateway:    &gateway,
	}}
	reserved := poolset.ReservedSet([]v1alpha1.ReservedIP{
		{Spec: v1alpha1.ReservedIPSpec{IPs: []string{"10.20.0.10-10.20.0.19", "10.20.0.200"}}},
	})
	addresses, err := poolset.Addresses(pool)
	if err != nil {
		fmt.Println(err)
		return
	}
	free := addresses.Minus(reserved)
	fmt.Println(addresses.Len(), free.Len())
	for i := range free.Len() {
		fmt.Print(free.At(i), " ")
	}
	// Output:
	// 18 8
	// 10.20.0.2 10.20.0.3 10.20.0.4 10.20.0.6 10.20.0.7 10.20.0.8 10.20.0.9 10.20.0.20
}

func ExampleParse() {
	set, err := poolset.Parse([]string{"10.20.0.0/30", "10.20.0.4", "10.20.0.9-10.20.0.12"})
	fmt.Println(set.Len(), set.Contains(netip.MustParseAddr("10.20.0.11")), err)

	_, err = poolset.Parse([]string{"10.20.0.12-10.20.0.9"})
	fmt.Println(err)
	// Output:
	// 9 true <nil>
	// entry 0: range 10.20.0.12-10.20.0.9 ends before it starts
}

// The bitmap of a pool's status marks the addresses in use, by their offset in the subnet.
func ExampleEncodeBitmap() {
	subnet := netip.MustParsePrefix("10.20.0.0/24")
	var used poolset.Bitmap
	for _, addr := range []string{"10.20.0.2", "10.20.0.9"} {
		offset, ok := poolset.Offset(subnet, netip.MustParseAddr(addr))
		if !ok {
			fmt.Println(addr, "is not in", subnet)
			return
		}
		used = used.Mark(offset)
	}
	text := poolset.EncodeBitmap(used)

	read, err := poolset.DecodeBitmap(text)
	fmt.Println(read.Has(2), read.Has(3), read.Has(9), err)
	// Output: true false true <nil>
}
