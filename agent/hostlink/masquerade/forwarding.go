// SPDX-License-Identifier: Apache-2.0

package masquerade

import (
	"fmt"
	"strings"

	"github.com/containernetworking/plugins/pkg/utils/sysctl"
)

// forwards returns an error if the node in whose network namespace the calling thread is does not
// forward packets of the family.
func (f Family) forwards() error {
	value, err := sysctl.Sysctl(f.forwarding)
	if err != nil {
		return fmt.Errorf("read %s: %w", f.forwarding, err)
	}
	if value == "0" {
		name := strings.ReplaceAll(f.forwarding, "/", ".")
		return fmt.Errorf("%s is 0, so pods do not reach Services and other nodes do not reach these pods through their node; set it to 1 on the node, as kube-proxy requires", name)
	}
	return nil
}

// ForwardingOff returns the errors of the families that the node does not forward, by name: ipv4, ipv6.
func ForwardingOff() map[string]error {
	off := map[string]error{}
	for _, f := range families() {
		if err := f.forwards(); err != nil {
			off[f.Name] = err
		}
	}
	return off
}
