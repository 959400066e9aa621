// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/netip"
	"os"
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

// netConf is the network configuration that the runtime, or the delegating plugin, passes on stdin.
// Fields of other plugins are ignored.
type netConf struct {
	types.PluginConf
	routingConf
	Master string   `json:"master"`
	IPAM   ipamConf `json:"ipam"`
	// MACSpoofChk, IsGateway and IsDefaultGateway are bridge's.
	MACSpoofChk      bool `json:"macspoofchk"`
	IsGateway        bool `json:"isGateway"`
	IsDefaultGateway bool `json:"isDefaultGateway"`
	// DeviceID and PCIBusID are the names of sriov and host-device for a PCI address.
	DeviceID string `json:"deviceID"`
	PCIBusID string `json:"pciBusID"`
	// Args and RuntimeConfig carry requested addresses by the CNI conventions.
	Args struct {
		CNI struct {
			IPs []string `json:"ips"`
		} `json:"cni"`
	} `json:"args"`
	RuntimeConfig struct {
		IPs      []string        `json:"ips"`
		IPRanges json.RawMessage `json:"ipRanges"`
		DeviceID string          `json:"deviceID"`
	} `json:"runtimeConfig"`
	// Valid are the attachments that a GC keeps, and Attachments is their name in drafts of CNI 1.1.
	// libcni writes an empty list as null. Only a GC decodes them.
	Valid       json.RawMessage `json:"cni.dev/valid-attachments"`
	Attachments json.RawMessage `json:"cni.dev/attachments"`
	// ignored are the fields that the plugin does not read, such as ipam.ranges.
	ignored []string
}

// ipamConf is the "ipam" part. A chained configuration may set it without a type, for the paths.
type ipamConf struct {
	Type              string   `json:"type"`
	DefaultIPv4IPPool []string `json:"default_ipv4_ippool"`
	DefaultIPv6IPPool []string `json:"default_ipv6_ippool"`
	Socket            string   `json:"socket"`
	Spool             string   `json:"spool"`
	StatusGrace       *string  `json:"status_grace"`
	// Routes are CNI routes. CleanGateway removes the default route. Only an ADD decodes them.
	Routes       json.RawMessage `json:"routes"`
	CleanGateway json.RawMessage `json:"clean_gateway"`
	// Standalone decides whether the agent serves the call. Without it, ranges and the runtime decide.
	Standalone *bool `json:"standalone"`
	// Ranges and Subnet are host-local's. Only a stand-alone call decodes them.
	Ranges json.RawMessage `json:"ranges"`
	Subnet json.RawMessage `json:"subnet"`
	// routingConf has no place here. An ADD refuses it.
	routingConf
	// grace is StatusGrace, or its default.
	grace time.Duration
}

func parseNetConf(stdin []byte) (*netConf, error) {
	c := &netConf{}
	if err := json.Unmarshal(stdin, c); err != nil {
		return nil, agentapi.Errorf(agentapi.CodeDecodingFailure, "decode the network configuration: %w; correct the JSON of the CNI configuration", err)
	}
	c.ignored = ignoredFields(stdin, c.chained())
	c.IPAM.Socket = cmp.Or(c.IPAM.Socket, agentapi.DefaultSocket)
	c.IPAM.Spool = cmp.Or(c.IPAM.Spool, agentapi.DefaultSpool)
	c.IPAM.grace = defaultGrace
	if text := c.IPAM.StatusGrace; text != nil {
		var err error
		if c.IPAM.grace, err = time.ParseDuration(*text); err != nil || c.IPAM.grace < 0 {
			return nil, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `"ipam.status_grace" is %q: write a duration such as "30s", or "0s" for none`, *text)
		}
	}
	return c, c.validate()
}

func (c *netConf) validate() error {
	switch {
	case c.Type == pluginType && c.IPAM.Type != "":
		return agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `"type" is %q and "ipam.type" is %q: a chained fenceline returns no addresses; remove "ipam.type" here, or name it under the plugin that makes the interface`, c.Type, c.IPAM.Type)
	case c.Type != pluginType && c.IPAM.Type != pluginType:
		return agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `neither "type" (%q) nor "ipam.type" (%q) is %q: set "ipam": {"type": %[3]q} to get addresses, or chain {"type": %[3]q}`, c.Type, c.IPAM.Type, pluginType)
	}
	if err := c.IPAM.checkPaths(); err != nil {
		return err
	}
	for _, list := range []struct {
		key   string
		pools []string
	}{{"default_ipv4_ippool", c.IPAM.DefaultIPv4IPPool}, {"default_ipv6_ippool", c.IPAM.DefaultIPv6IPPool}} {
		if slices.Contains(list.pools, "") {
			return agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `"ipam.%s" is %q: a pool name is empty; remove it`, list.key, list.pools)
		}
	}
	return nil
}

// chained reports whether another plugin has created and configured the interface.
func (c *netConf) chained() bool { return c.Type == pluginType }

func (c *netConf) network() agentapi.Network {
	return agentapi.Network{
		Name: c.Name, Type: c.Type, Master: c.Master, Device: cmp.Or(c.RuntimeConfig.DeviceID, c.DeviceID, c.PCIBusID),
		DefaultIPv4IPPool: c.IPAM.DefaultIPv4IPPool, DefaultIPv6IPPool: c.IPAM.DefaultIPv6IPPool, MACSpoofCheck: c.MACSpoofChk,
		IsGateway: c.IsGateway || c.IsDefaultGateway,
	}
}

// requestedIPs returns the requested addresses from all places that the CNI conventions name, in
// the order of these places. It ignores prefix lengths: the pool knows its subnet.
func (c *netConf) requestedIPs(env environment) ([]netip.Addr, error) {
	var found []netip.Addr
	for _, source := range []struct {
		key string
		ips []string
	}{{`"args.cni.ips"`, c.Args.CNI.IPs}, {`"runtimeConfig.ips"`, c.RuntimeConfig.IPs}, {"IP in CNI_ARGS", env.ips}} {
		for _, text := range source.ips {
			bare, _, _ := strings.Cut(text, "/")
			addr, err := netip.ParseAddr(bare)
			if err != nil || addr.Zone() != "" {
				return nil, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, "%s holds %q, which is not an address: write it as 192.0.2.7 or 192.0.2.7/24", source.key, text)
			}
			if addr = addr.Unmap(); !slices.Contains(found, addr) {
				found = append(found, addr)
			}
		}
	}
	return found, nil
}

func (c *netConf) previous() (*types100.Result, error) {
	if c.RawPrevResult == nil {
		return nil, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `there is no "prevResult": chain fenceline after the plugin that makes the interface, not before it`)
	}
	if listsNull(c.RawPrevResult) {
		return nil, agentapi.Errorf(agentapi.CodeDecodingFailure, `decode "prevResult" of the plugin before fenceline: a list holds null instead of an interface, address or route`)
	}
	if err := version.ParsePrevResult(&c.PluginConf); err != nil {
		return nil, agentapi.Errorf(agentapi.CodeDecodingFailure, `decode "prevResult" of the plugin before fenceline: %w`, err)
	}
	r, err := types100.NewResultFromResult(c.PrevResult)
	if err != nil {
		return nil, agentapi.Errorf(agentapi.CodeDecodingFailure, `convert "prevResult" of the plugin before fenceline: %w`, err)
	}
	return r, nil
}

// listsNull reports whether a list in decoded JSON holds null. The library that converts results of
// earlier CNI versions ends the process there.
func listsNull(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(value)), listsNull)
	case []any:
		return slices.Contains(value, nil) || slices.ContainsFunc(value, listsNull)
	}
	return false
}

// validAttachments returns the attachments that a GC must keep. A missing list is an error: read as
// an empty list, it would release the addresses of all pods.
func (c *netConf) validAttachments() ([]agentapi.Attachment, error) {
	if c.Valid == nil && c.Attachments == nil {
		return nil, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `"cni.dev/valid-attachments" is missing, so nothing is released: the runtime must list the attachments that are still valid`)
	}
	var list []types.GCAttachment
	for _, text := range []json.RawMessage{c.Valid, c.Attachments} { // libcni writes both
		if text == nil || len(list) > 0 {
			continue
		}
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, agentapi.Errorf(agentapi.CodeDecodingFailure, `decode "cni.dev/valid-attachments", so nothing is released: %w`, err)
		}
	}
	valid := make([]agentapi.Attachment, 0, len(list))
	for _, a := range list {
		valid = append(valid, agentapi.Attachment{ContainerID: a.ContainerID, Interface: a.IfName})
	}
	return valid, nil
}

// dirsVariable is the environment variable of the container runtime that lists further directories
// for "ipam.socket" and "ipam.spool", separated by colons. The author of a network configuration may
// be a tenant, who must not make the plugin write elsewhere as root. The environment is that of the
// node's administrator.
const dirsVariable = "FENCELINE_CNI_DIRS"

// checkPath returns an error unless the path of a field is absolute, and the default or inside of a
// directory: dir, or one that the node allows.
func checkPath(field, path, byDefault, dir string) error {
	if !filepath.IsAbs(path) {
		return agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `%q is %q: set an absolute path, or remove it to use %s`, field, path, byDefault)
	}
	allowed := append([]string{dir}, filepath.SplitList(os.Getenv(dirsVariable))...)
	for _, dir := range allowed {
		below, err := filepath.Rel(dir, path)
		if filepath.Clean(path) == byDefault || filepath.IsAbs(dir) && err == nil && below != "." && filepath.IsLocal(below) {
			return nil
		}
	}
	return agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `%q is %q, which is outside of %s: remove it to use %s, or let the administrator of the node add the directory to %s in the environment of the container runtime`,
		field, path, strings.Join(allowed, " and "), byDefault, dirsVariable)
}

func (c *ipamConf) checkPaths() error {
	if err := checkPath("ipam.socket", c.Socket, agentapi.DefaultSocket, filepath.Dir(agentapi.DefaultSocket)); err != nil {
		return err
	}
	// The journal is beside the spool.
	return checkPath("ipam.spool", c.Spool, agentapi.DefaultSpool, agentapi.DefaultSpool)
}
