// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/allocator"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/cni/prober"
)

// load reads the configuration as host-local does.
func (c Call) load() (*allocator.IPAMConfig, error) {
	conf, _, err := allocator.LoadIPAMConfig(c.Conf, c.Args)
	if err != nil {
		return nil, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, "read the ranges: %w", explain(c.Conf, err))
	}
	if err := checkRanges(conf); err != nil {
		return nil, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, "read the ranges: %w", err)
	}
	return conf, nil
}

// mode is the effect of a host that answers for an address.
type mode string

// The modes have the names and meanings of conflictDetection.mode of an IPPool.
const (
	enforce mode = "Enforce"
	observe mode = "Observe"
	off     mode = "Off"
)

// The bounds are those of an IPPool.
const (
	leastRounds   = 3
	mostRounds    = 10
	leastInterval = 10 * time.Millisecond
	mostInterval  = 2 * time.Second
	// defaultInterval between the rounds.
	defaultInterval = "50ms"
)

// detection is the block "ipam.conflictDetection".
type detection struct {
	mode   mode
	params prober.Params
}

func parseDetection(stdin []byte) (detection, error) {
	var conf struct {
		IPAM struct {
			ConflictDetection struct {
				Mode       mode     `json:"mode"`
				Probes     int      `json:"probes"`
				Interval   string   `json:"interval"`
				IgnoreMACs []string `json:"ignoreMACs"`
			} `json:"conflictDetection"`
		} `json:"ipam"`
	}
	c := &conf.IPAM.ConflictDetection
	c.Mode, c.Probes, c.Interval = enforce, leastRounds, defaultInterval
	if err := json.Unmarshal(stdin, &conf); err != nil {
		return detection{}, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `read "ipam.conflictDetection": %w`, err)
	}
	d := detection{c.Mode, prober.Params{Rounds: c.Probes}}
	if d.mode != enforce && d.mode != observe && d.mode != off {
		return d, wrong("mode", d.mode, `write "Enforce", "Observe" or "Off"`)
	}
	if n := d.params.Rounds; n < leastRounds || n > mostRounds {
		return d, wrong("probes", n, fmt.Sprintf("write a number from %d to %d", leastRounds, mostRounds))
	}
	var err error
	d.params.Interval, err = time.ParseDuration(c.Interval)
	if err != nil || d.params.Interval < leastInterval || d.params.Interval > mostInterval {
		return d, wrong("interval", c.Interval, fmt.Sprintf(`write a duration from %s to %s, such as "50ms"`, leastInterval, mostInterval))
	}
	for _, text := range c.IgnoreMACs {
		mac, err := net.ParseMAC(text)
		if err != nil || len(mac) != 6 {
			return d, wrong("ignoreMACs", text, `write MACs such as "02:00:00:00:00:01"`)
		}
		d.params.Ignore = append(d.params.Ignore, mac)
	}
	return d, nil
}

func wrong(field string, value any, remedy string) error {
	return agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `"ipam.conflictDetection.%s" holds "%v": %s`, field, value, remedy)
}

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
