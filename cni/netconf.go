package main

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// pluginType is the name of the plugin in configurations, and of its binary.
const pluginType = "fenceline"

// netConf is the network configuration as the runtime, or the delegating
// plugin, passes it on stdin. Fields of other plugins are ignored.
type netConf struct {
	types.PluginConf
	Master string   `json:"master"`
	IPAM   ipamConf `json:"ipam"`
	// Args and RuntimeConfig carry requested addresses by the CNI conventions.
	Args struct {
		CNI struct {
			IPs []string `json:"ips"`
		} `json:"cni"`
	} `json:"args"`
	RuntimeConfig struct {
		IPs []string `json:"ips"`
	} `json:"runtimeConfig"`
	// OldAttachments is what CNI 1.1 called cni.dev/valid-attachments before a correction.
	OldAttachments []types.GCAttachment `json:"cni.dev/attachments"`
}

// ipamConf is the "ipam" part. Chained, it may be there without a type, for the paths.
type ipamConf struct {
	Type              string   `json:"type"`
	DefaultIPv4IPPool []string `json:"default_ipv4_ippool"`
	DefaultIPv6IPPool []string `json:"default_ipv6_ippool"`
	Socket            string   `json:"socket"`
	Spool             string   `json:"spool"`
	StatusGrace       *string  `json:"status_grace"`
	// grace is StatusGrace, or its default.
	grace time.Duration
}

// parseNetConf decodes and checks a configuration and fills in the defaults.
func parseNetConf(stdin []byte) (*netConf, error) {
	c := &netConf{}
	if err := json.Unmarshal(stdin, c); err != nil {
		return nil, agentapi.Errorf(agentapi.CodeDecodingFailure, "decode the network configuration: %w", err)
	}
	if c.IPAM.Socket == "" {
		c.IPAM.Socket = agentapi.DefaultSocket
	}
	if c.IPAM.Spool == "" {
		c.IPAM.Spool = agentapi.DefaultSpool
	}
	c.IPAM.grace = defaultGrace
	if text := c.IPAM.StatusGrace; text != nil {
		var err error
		if c.IPAM.grace, err = time.ParseDuration(*text); err != nil || c.IPAM.grace < 0 {
			return nil, invalid(`"ipam.status_grace" is %q: write a duration such as "30s", or "0s" for none`, *text)
		}
	}
	return c, c.validate()
}

func (c *netConf) validate() error {
	switch {
	case c.Type == pluginType && c.IPAM.Type != "":
		return invalid(`"type" is %q and "ipam.type" is %q: chained, fenceline gives no addresses; remove "ipam.type" here, or name it under the plugin that makes the interface`, c.Type, c.IPAM.Type)
	case c.Type != pluginType && c.IPAM.Type != pluginType:
		return invalid(`neither "type" (%q) nor "ipam.type" (%q) is %q: set "ipam": {"type": %[3]q} to get addresses, or chain {"type": %[3]q}`, c.Type, c.IPAM.Type, pluginType)
	case !filepath.IsAbs(c.IPAM.Socket):
		return invalid(`"ipam.socket" is %q: set an absolute path, or leave it out for %s`, c.IPAM.Socket, agentapi.DefaultSocket)
	case !filepath.IsAbs(c.IPAM.Spool):
		return invalid(`"ipam.spool" is %q: set an absolute path, or leave it out for %s`, c.IPAM.Spool, agentapi.DefaultSpool)
	}
	for _, list := range []struct {
		key   string
		pools []string
	}{
		{"default_ipv4_ippool", c.IPAM.DefaultIPv4IPPool},
		{"default_ipv6_ippool", c.IPAM.DefaultIPv6IPPool},
	} {
		if slices.Contains(list.pools, "") {
			return invalid(`"ipam.%s" is %q: a name in it is empty; remove it`, list.key, list.pools)
		}
	}
	return nil
}

// chained says that another plugin has made and configured the interface.
func (c *netConf) chained() bool { return c.Type == pluginType }

func (c *netConf) network() agentapi.Network {
	return agentapi.Network{
		Name:              c.Name,
		Type:              c.Type,
		Master:            c.Master,
		DefaultIPv4IPPool: c.IPAM.DefaultIPv4IPPool,
		DefaultIPv6IPPool: c.IPAM.DefaultIPv6IPPool,
	}
}

// requestedIPs gathers the requested addresses from all places where CNI's
// conventions put them, in the order in which they were found. A prefix length
// is accepted and ignored: the subnet is the pool's to know.
func (c *netConf) requestedIPs(env environment) ([]netip.Addr, error) {
	var found []netip.Addr
	for _, source := range []struct {
		key string
		ips []string
	}{
		{`"args.cni.ips"`, c.Args.CNI.IPs},
		{`"runtimeConfig.ips"`, c.RuntimeConfig.IPs},
		{"IP in CNI_ARGS", env.ips},
	} {
		for _, text := range source.ips {
			bare, _, _ := strings.Cut(text, "/")
			addr, err := netip.ParseAddr(bare)
			if err != nil || addr.Zone() != "" {
				return nil, invalid("%s holds %q, which is no address: write it as 192.0.2.7 or 192.0.2.7/24", source.key, text)
			}
			if addr = addr.Unmap(); !slices.Contains(found, addr) {
				found = append(found, addr)
			}
		}
	}
	return found, nil
}

// previous decodes prevResult.
func (c *netConf) previous() (*types100.Result, error) {
	if c.RawPrevResult == nil {
		return nil, invalid(`there is no "prevResult": chain fenceline after the plugin that makes the interface, not before it`)
	}
	if err := version.ParsePrevResult(&c.PluginConf); err != nil {
		return nil, agentapi.Errorf(agentapi.CodeDecodingFailure, "decode prevResult: %w", err)
	}
	r, err := types100.NewResultFromResult(c.PrevResult)
	if err != nil {
		return nil, agentapi.Errorf(agentapi.CodeDecodingFailure, "convert prevResult: %w", err)
	}
	return r, nil
}

// validAttachments returns the attachments that a GC must leave. A missing list
// is refused: read as an empty one it would take the addresses of every pod.
func (c *netConf) validAttachments() ([]agentapi.Attachment, error) {
	list := c.ValidAttachments
	if list == nil {
		list = c.OldAttachments
	}
	if list == nil {
		return nil, invalid(`GC without "cni.dev/valid-attachments": nothing is released; the runtime must list the attachments that are still valid`)
	}
	valid := make([]agentapi.Attachment, 0, len(list))
	for _, a := range list {
		valid = append(valid, agentapi.Attachment{ContainerID: a.ContainerID, Interface: a.IfName})
	}
	return valid, nil
}

func invalid(format string, args ...any) *agentapi.Error {
	return agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, format, args...)
}
