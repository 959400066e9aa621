// Fenceline is the CNI plugin: the IPAM of macvlan, ipvlan, sriov and
// host-device when they delegate to it, and a guard for their interfaces when
// chained after them. It takes no decision, and remembers nothing but since when
// STATUS fails; it carries the runtime's call to the agent and the answer back
// (package agentapi).
package main

import (
	"io"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"
)

// plugin carries out one call. The writers are those of the process, except in tests.
type plugin struct {
	stdout io.Writer
	stderr io.Writer
	now    func() (moment, error)
}

// cniVersions are the versions of the specification that the plugin speaks. 0.3.1
// is the oldest in which a result has several addresses and a chain has results.
func cniVersions() version.PluginInfo {
	return version.PluginSupports("0.3.1", "0.4.0", "1.0.0", "1.1.0")
}

func main() {
	p := plugin{stdout: os.Stdout, stderr: os.Stderr, now: thisMoment}
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add:    p.verb("ADD", p.add),
		Del:    p.verb("DEL", p.del),
		Check:  p.verb("CHECK", p.check),
		GC:     p.verb("GC", p.gc),
		Status: p.verb("STATUS", p.status),
	}, cniVersions(), "CNI plugin fenceline")
}
