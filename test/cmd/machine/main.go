// SPDX-License-Identifier: Apache-2.0

// Machine is the part of the cluster rig that runs inside a node.
//
//	machine boot CONFIG     as the first process: bring the node up and stay
//	machine start DAEMON    start containerd, kubelet or kube-proxy again
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/fenceline/fenceline/test/machine"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "machine:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: machine boot CONFIG | machine start DAEMON")
	}
	switch args[0] {
	case "start":
		return machine.StartDaemon(args[1])
	case "boot":
		data, err := os.ReadFile(args[1])
		if err != nil {
			return fmt.Errorf("read the node's configuration: %w", err)
		}
		var c machine.Config
		if err := json.Unmarshal(data, &c); err != nil {
			return fmt.Errorf("read the node's configuration %s: %w", args[1], err)
		}
		return machine.Boot(c)
	default:
		return fmt.Errorf("no verb %q", args[0])
	}
}
