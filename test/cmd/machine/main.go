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
	"github.com/fenceline/fenceline/test/must"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "machine:", err)
		os.Exit(1)
	}
}

func run(args []string) (err error) {
	defer must.Catch(&err)
	must.That(len(args) == 2, "usage: machine boot CONFIG | machine start DAEMON")
	switch args[0] {
	case "start":
		return machine.StartDaemon(args[1])
	case "boot":
		var c machine.Config
		must.Done(json.Unmarshal(must.Value(os.ReadFile(args[1])), &c), "read the node's configuration %s", args[1])
		return machine.Boot(c)
	default:
		return fmt.Errorf("no verb %q", args[0])
	}
}
