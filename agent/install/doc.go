// Package install puts the CNI plugin and its network configuration into the
// node's directories.
//
// A runtime may look at any moment, so a file appears by rename and is whole
// from then on. Nothing is ever removed: pods that run need the plugin for
// their DEL, and the runtime keeps the node ready by the configuration, also
// while the agent is being replaced.
package install
