// SPDX-License-Identifier: Apache-2.0

// Fenceline is the CNI plugin. It is the IPAM plugin to which macvlan, ipvlan, sriov and
// host-device delegate. Chained after them, it has their interfaces guarded. The plugin sends the
// runtime's call to the agent and prints the answer (package agentapi). It makes no decision. Its
// only state is the time since which STATUS fails.
package main

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/fenceline/fenceline/internal/version"
)

// plugin carries out one call. Tests replace the writers and the clock.
type plugin struct {
	stdout io.Writer
	stderr io.Writer
	now    func() (moment, error)
}

// cniVersions returns the versions of the CNI specification that the plugin supports. Version 0.3.1
// is the oldest in which a result has several addresses and a chain passes results on.
func cniVersions() cniversion.PluginInfo {
	return cniversion.PluginSupports("0.3.1", "0.4.0", "1.0.0", "1.1.0")
}

func main() {
	// A runtime passes no arguments; a person asks.
	if slices.Equal(os.Args[1:], []string{"--version"}) {
		fmt.Println("fenceline version", version.String())
		return
	}
	p := plugin{stdout: os.Stdout, stderr: os.Stderr, now: thisMoment}
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add:    p.verb("ADD", p.add),
		Del:    p.verb("DEL", p.del),
		Check:  p.verb("CHECK", p.check),
		GC:     p.verb("GC", p.gc),
		Status: p.verb("STATUS", p.status),
	}, cniVersions(), "CNI plugin fenceline")
}
