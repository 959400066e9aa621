// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"fmt"
)

// Masters returns the field master of the plugins in a network configuration whose addresses come
// from Fenceline. It is empty for a plugin that uses the interface of the node's default route.
func Masters(conflist []byte) ([]string, error) {
	var config struct {
		Plugins []struct {
			Master string `json:"master"`
			IPAM   struct {
				Type string `json:"type"`
			} `json:"ipam"`
		} `json:"plugins"`
	}
	if err := json.Unmarshal(conflist, &config); err != nil {
		return nil, fmt.Errorf("read the masters of the network configuration: %w", err)
	}
	var masters []string
	for _, p := range config.Plugins {
		if p.IPAM.Type == "fenceline" {
			masters = append(masters, p.Master)
		}
	}
	return masters, nil
}
