// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/fenceline/fenceline/controller/agents"
)

// NoController describes the consequences if no controller is Ready.
const NoController = "no pod of it is Ready, so no address is reclaimed or verified"

const (
	oldestKubernetes, oldestKernel = "1.32", "5.10"
	// mostSkew is the greatest difference of clocks that is no fault.
	mostSkew = 10 * time.Second
	// longWait is the age from which a Quarantined lease is a fault.
	longWait = time.Minute
)

// Fault is something that is wrong, and what to do about it.
type Fault struct {
	Object string `json:"object"`
	What   string `json:"what"`
	Do     string `json:"do"`
}

// found records a fault.
type found func(object, what, do string)

// Faults applies all checks.
func (c *Cluster) Faults() []Fault {
	all := append([]Fault{}, c.Silent...)
	add := func(object, what, do string) { all = append(all, Fault{object, what, do}) }
	c.programs(add)
	c.versions(add)
	for _, check := range []func(Report, found){ready, c.parents, c.misplaced, configuration, c.forwarding, clock, c.answers} {
		for _, r := range c.Reports {
			check(r, add)
		}
	}
	for _, check := range []func(found){c.sameMACs, c.unknownNames, c.conditions, c.overlaps, c.waits, c.annotations, c.ports} {
		check(add)
	}
	return all
}

// programs finds programs that are missing or not Ready.
func (c *Cluster) programs(add found) {
	if !c.LacksPrograms && !agents.AnyAlive(c.Controllers) {
		add("controller", NoController, "look at its Deployment: kubectl describe deployment fenceline-controller -n "+c.Namespace)
	}
	on := map[string]bool{}
	for i := range c.Agents {
		p := &c.Agents[i]
		on[p.Spec.NodeName] = true
		if !agents.IsAlive(p) {
			add("node "+p.Spec.NodeName, "its agent "+p.Name+" is not Ready, so its pods get no address",
				"look at its status and log: kubectl describe pod "+p.Name+" -n "+c.Namespace)
		}
	}
	for i := range c.Nodes {
		if n := &c.Nodes[i]; !on[n.Name] && len(c.Agents) > 0 {
			add("node "+n.Name, "it has no agent, so its pods get no address",
				"compare its taints and labels with agent.tolerations and agent.nodeSelector of the chart")
		}
	}
}

// versions finds versions that are too old, or do not belong together.
func (c *Cluster) versions(add found) {
	if isOlder(c.Server, oldestKubernetes) {
		add("API server", "its version is "+c.Server, "use Kubernetes "+oldestKubernetes+" or newer")
	}
	for i := range c.Nodes {
		if kernel := c.Nodes[i].Status.NodeInfo.KernelVersion; isOlder(kernel, oldestKernel) {
			add("node "+c.Nodes[i].Name, "its kernel is "+kernel, "use Linux "+oldestKernel+" or newer")
		}
	}
	builds := map[string][]string{}
	for _, r := range c.Reports {
		builds[r.Version] = append(builds[r.Version], r.Node)
	}
	if len(builds) > 1 {
		var each []string
		for _, build := range slices.Sorted(maps.Keys(builds)) {
			each = append(each, fmt.Sprintf("%s on %s", build, Nodes(builds[build])))
		}
		add("agents", "they are of several builds: "+strings.Join(each, "; "),
			"finish the upgrade: kubectl rollout status daemonset fenceline-agent -n "+c.Namespace)
	}
}

// Nodes names nodes, and counts them if they are many.
func Nodes(nodes []string) string {
	const most = 5
	if len(nodes) > most {
		return fmt.Sprintf("%s and %d more nodes", strings.Join(nodes[:most], ", "), len(nodes)-most)
	}
	return strings.Join(nodes, ", ")
}

// isOlder compares versions such as v1.32.3 and 5.10.0-30-amd64. One that cannot be read is not older.
func isOlder(version, than string) bool {
	v, err := utilversion.ParseGeneric(version)
	if err != nil {
		return false
	}
	least := utilversion.MustParseGeneric(than)
	return cmp.Or(cmp.Compare(v.Major(), least.Major()), cmp.Compare(v.Minor(), least.Minor())) < 0
}

func ready(r Report, add found) {
	if r.NotReady != "" {
		add("node "+r.Node, "it serves no ADD: "+r.NotReady, "the reason names what is missing")
	}
}

func configuration(r Report, add found) {
	if r.OwnConfiguration != "" && r.Configuration != r.OwnConfiguration {
		add("node "+r.Node,
			fmt.Sprintf("%s comes before %s by name, so the runtime uses it for the first interface of pods", cmp.Or(r.Configuration, "unknown"), r.OwnConfiguration),
			"remove that file, set cni.conflist.name of the chart to a name that comes first, or set cni.conflist.enabled to false if Multus adds Fenceline's networks")
	}
}

func clock(r Report, add found) {
	if skew := r.Time.Sub(r.Asked).Abs(); skew > mostSkew {
		add("node "+r.Node, fmt.Sprintf("its clock differs from this machine's by %s", skew.Round(time.Second)), "synchronise the clocks (chrony, systemd-timesyncd)")
	}
}

func (c *Cluster) annotations(add found) {
	for _, text := range c.unread {
		add("annotation", text, "docs/cni.md lists all annotations")
	}
}

func (c *Cluster) ports(add found) {
	if c.MapsPorts {
		return
	}
	for _, pod := range c.hostPorts {
		add("pod "+pod, "it has a hostPort, and its network has no plugin with the capability portMappings, so nobody listens",
			"add the plugin portmap to the network configuration, or use a Service")
	}
}
