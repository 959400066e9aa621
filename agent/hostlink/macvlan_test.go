// SPDX-License-Identifier: Apache-2.0

//go:build (kernel || bench) && !guest

package hostlink

import "github.com/vishvananda/netlink"

// child is the interface of a pod on its parent.
func child() netlink.Link { return &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE} }
