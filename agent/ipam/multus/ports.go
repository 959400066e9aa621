// SPDX-License-Identifier: Apache-2.0

package multus

import "strings"

// PassesPorts reports whether the runtime passes the hostPorts of pods to a plugin of the pod network:
// only plugins with the capability portMappings get them. It is true if the files do not tell, as when
// Multus takes its cluster network from a NetworkAttachmentDefinition.
func PassesPorts(dir string) (bool, error) {
	plugins, err := podNetwork(dir)
	return len(plugins) == 0 || passesPorts(plugins), err
}

func passesPorts(plugins []config) bool {
	for _, c := range plugins {
		if !c.Capabilities["portMappings"] {
			continue // the runtime passes it nothing, and so Multus none of its networks
		}
		if !isMultus(c) || len(c.Delegates) == 0 || passesPorts(parse(c.Delegates[0])) {
			return true
		}
	}
	return false
}

func isMultus(c config) bool { return strings.HasPrefix(c.Type, "multus") }
