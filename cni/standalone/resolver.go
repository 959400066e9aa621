// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// resolver reads the settings of a resolv.conf as host-local does.
func resolver(path string) (types.DNS, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return types.DNS{}, agentapi.Errorf(agentapi.CodeIOFailure, `read "ipam.resolvConf": %w`, err)
	}
	var dns types.DNS
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0][0] == '#' || fields[0][0] == ';' {
			continue
		}
		switch fields[0] {
		case "nameserver":
			dns.Nameservers = append(dns.Nameservers, fields[1])
		case "domain":
			dns.Domain = fields[1]
		case "search":
			dns.Search = append(dns.Search, fields[1:]...)
		case "options":
			dns.Options = append(dns.Options, fields[1:]...)
		}
	}
	return dns, nil
}
