// SPDX-License-Identifier: Apache-2.0

// Package install installs the CNI plugin and its network configuration in the node's directories.
//
// A runtime may read at any moment, so a file appears complete, by rename. While the agent runs, it
// puts back what another program removes or changes. An agent that ends removes no file: running pods
// need the plugin for their DEL, and the configuration keeps the node ready while the agent is
// replaced.
package install
