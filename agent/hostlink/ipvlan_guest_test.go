// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package hostlink

import "github.com/vishvananda/netlink"

// child is the interface of a pod on its parent. In a guest, all tests run on ipvlan.
func child() netlink.Link { return &netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L2} }
