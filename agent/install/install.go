// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/internal/wholefile"
)

// PluginName is the file name of the plugin. Runtimes find it by the type in the configuration.
const PluginName = "fenceline"

// ErrNotConflist: a runtime would not load the text as a configuration.
var ErrNotConflist = errors.New("not a CNI network configuration list")

// Plugin installs the plugin at source in the node's directory of plugins, and reports whether the
// directory has changed. It returns an error if the plugin cannot be executed there: runtimes only say
// so for each pod. Only one agent may call it at a time.
func Plugin(source, dir string) (changed bool, err error) {
	content, err := os.ReadFile(source)
	if err == nil {
		changed, err = replace(dir, PluginName, content, 0o755)
	}
	if path := filepath.Join(dir, PluginName); err == nil && unix.Access(path, unix.X_OK) != nil {
		err = fmt.Errorf("execute %s: %w, as by the option noexec of its mount", path, fs.ErrPermission)
	}
	if err != nil {
		return false, fmt.Errorf("install the CNI plugin: %w", err)
	}
	return changed, nil
}

// Conflist installs a network configuration under the name in the node's directory
// of configurations, and reports whether the directory has changed. It makes the
// node ready, so call it when ADD can be served. One agent at a time may call it.
func Conflist(dir, name string, content []byte) (changed bool, err error) {
	if err := validate(name, content); err != nil {
		return false, fmt.Errorf("install the CNI configuration %s: %w", name, err)
	}
	// Configurations may hold secrets of other plugins. Only the runtime reads them.
	changed, err = replace(dir, name, content, 0o600)
	if err != nil {
		return false, fmt.Errorf("install the CNI configuration: %w", err)
	}
	return changed, nil
}

// configuration is the part of a network configuration that the agent reads.
type configuration struct {
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	Plugins    []struct {
		Type   string `json:"type"`
		Master string `json:"master"`
		Bridge string `json:"bridge"`
		IPAM   struct {
			Type string `json:"type"`
		} `json:"ipam"`
	} `json:"plugins"`
}

// Masters returns the name of a network configuration, and the field master of those of its plugins
// whose addresses come from Fenceline. It is empty for a plugin that uses the interface of the node's
// default route. A plugin that makes ports of a bridge has none: the parent is the uplink of the bridge.
func Masters(conflist []byte) (name string, masters []string, err error) {
	var list configuration
	if err := json.Unmarshal(conflist, &list); err != nil {
		return "", nil, fmt.Errorf("read the masters of the network configuration: %w", err)
	}
	for _, p := range list.Plugins {
		if p.IPAM.Type == PluginName && p.Bridge == "" && p.Type != "bridge" {
			masters = append(masters, p.Master)
		}
	}
	return list.Name, masters, nil
}

// validate refuses a configuration that would leave the node without network, or
// that takes addresses from another IPAM.
func validate(name string, content []byte) error {
	if filepath.Base(name) != name || filepath.Ext(name) != ".conflist" {
		return fmt.Errorf("%w: name it like 10-fenceline.conflist", ErrNotConflist)
	}
	var list configuration
	if err := json.Unmarshal(content, &list); err != nil {
		return fmt.Errorf("%w: %w", ErrNotConflist, err)
	}
	switch {
	case list.CNIVersion == "":
		return fmt.Errorf(`%w: "cniVersion" is missing; set it to "1.0.0"`, ErrNotConflist)
	case list.Name == "":
		return fmt.Errorf(`%w: "name" is missing`, ErrNotConflist)
	case len(list.Plugins) == 0:
		return fmt.Errorf(`%w: "plugins" is empty`, ErrNotConflist)
	}
	var types []string
	for i, p := range list.Plugins {
		if p.Type == "" {
			return fmt.Errorf(`%w: plugin %d has no "type"`, ErrNotConflist, i)
		}
		if p.Type == PluginName || p.IPAM.Type == PluginName {
			return nil
		}
		types = append(types, p.Type)
	}
	return fmt.Errorf(`%w that uses %s: none of %v has "ipam": {"type": %[2]q}`, ErrNotConflist, PluginName, types)
}

// RemoveConflist removes a network configuration that Conflist has installed, and reports whether
// the configuration was there. A configuration that does not use the plugin stays. The plugin
// always stays: running pods need it for their DEL.
func RemoveConflist(dir, name string) (changed bool, err error) {
	path := filepath.Join(dir, name)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, sweep(dir)
	}
	if err != nil {
		return false, fmt.Errorf("remove the CNI configuration: %w", err)
	}
	if ours := validate(name, content) == nil; !ours {
		return false, nil
	}
	if err := errors.Join(os.Remove(path), sweep(dir)); err != nil {
		return false, fmt.Errorf("remove the CNI configuration: %w", err)
	}
	return true, wholefile.SyncDir(dir)
}
