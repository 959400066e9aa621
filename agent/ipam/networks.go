// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// defaultNamespace is where Multus looks for networks. Its pods get no additional networks.
const defaultNamespace = "kube-system"

// config is the part of the configuration of a plugin that Multus and the runtime read.
type config struct {
	Type             string            `json:"type"`
	ClusterNetwork   string            `json:"clusterNetwork"`
	DefaultNetworks  []string          `json:"defaultNetworks"`
	Delegates        []json.RawMessage `json:"delegates"`
	MultusNamespace  string            `json:"multusNamespace"`
	SystemNamespaces *[]string         `json:"systemNamespaces"`
	Capabilities     map[string]bool   `json:"capabilities"`
}

// Networks returns the networks of the pods of a node from its directory of network configurations.
// They are empty if the runtime does not call Multus. The directory need not exist. cluster is the
// definition of the cluster's network, if the operator names it. The daemon of Multus may have a
// configuration that is not on the node.
func Networks(dir, cluster string) (Multus, error) {
	plugins, err := podNetwork(dir)
	m := networks(plugins)
	if err == nil && cluster != "" {
		m.Cluster = cluster
	}
	return m, err
}

// podNetwork returns the plugins of the configuration that the runtime uses, if there is one.
func podNetwork(dir string) ([]config, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the configuration of the pod network: %w", err)
	}
	for _, e := range entries { // sorted by name, as runtimes sort them
		if e.IsDir() || !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("look for the configuration of the pod network: %w", err)
		}
		if plugins := parse(content); len(plugins) > 0 {
			return plugins, nil
		}
	}
	return nil, nil
}

// parse returns the plugins of a file in either form, or none if a runtime would pass over the file.
func parse(content []byte) []config {
	var file struct {
		config
		Plugins []config `json:"plugins"`
	}
	if err := json.Unmarshal(content, &file); err != nil {
		return nil
	}
	if file.Type != "" {
		return []config{file.config}
	}
	return file.Plugins
}

// networks returns the networks that the first plugin of the pod network gives to each pod.
func networks(plugins []config) Multus {
	at := slices.IndexFunc(plugins, isMultus)
	if at < 0 {
		return Multus{}
	}
	c := plugins[at]
	m := Multus{Namespace: cmp.Or(c.MultusNamespace, defaultNamespace)}
	if c.ClusterNetwork == "" {
		// The delegates are configurations, so no definition names them.
		m.Additional = make([]string, max(len(c.Delegates)-1, 0))
		return m
	}
	m.Cluster = definition(c.ClusterNetwork, m.Namespace)
	for _, name := range c.DefaultNetworks {
		m.Additional = append(m.Additional, definition(name, m.Namespace))
	}
	m.Without = []string{defaultNamespace}
	if c.SystemNamespaces != nil {
		m.Without = *c.SystemNamespaces
	}
	return m
}

// definition returns the NetworkAttachmentDefinition of a network; "" for a path or an empty name.
func definition(name, namespace string) string {
	if name == "" || strings.Contains(name, "/") {
		return ""
	}
	return namespace + "/" + name
}

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
