// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"os"
)

// Forward makes the namespace a router of both families.
func (n *Namespace) Forward() error {
	err := n.Do(func() error {
		for _, file := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
			if err := os.WriteFile(file, []byte("1"), 0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("forward packets in %s: %w", n.Name, err)
	}
	return nil
}
