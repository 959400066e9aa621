// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/diagnosis"
	"github.com/fenceline/fenceline/internal/poolset"
)

const noController = "no pod of it is Ready, so no address is reclaimed or verified"

const (
	oldestKubernetes, oldestKernel = "1.32", "5.10"
	// mostSkew is the greatest difference of clocks that is no fault.
	mostSkew = 10 * time.Second
	// longWait is the age from which a Quarantined lease is a fault.
	longWait = time.Minute
)

// fault is something that is wrong, and what to do about it.
type fault struct {
	Object string `json:"object"`
	What   string `json:"what"`
	Do     string `json:"do"`
}

// examined is everything that doctor looks at. It lacks what the reader may not read.
type examined struct {
	now time.Time
	// namespace is that of Fenceline.
	namespace string
	// server is the version of the API server.
	server              string
	nodes               []corev1.Node
	agents, controllers []podview.Pod
	pools               []v1alpha1.IPPool
	leases              []v1alpha1.IPLease
	// services are the ranges of ClusterIPs.
	services []netip.Prefix
	// hostPorts names the pods with a hostPort, and mapsPorts tells whether the chart's network configuration
	// serves it.
	hostPorts []string
	mapsPorts bool
	// unread describes annotations that nobody reads.
	unread []string
	// reports are the agents' answers, and asked when each was asked for.
	reports []answered
	// silent are the faults of agents that gave no report.
	silent []fault
}

// answered is the report of an agent.
type answered struct {
	diagnosis.Report
	asked time.Time
}

// faults applies all checks.
func (e *examined) faults() []fault {
	all := slices.Clone(e.silent)
	for _, check := range []func() []fault{
		e.programs, e.versions, e.ready, e.parents, e.sameMACs, e.configurations, e.forwarding, e.clocks, e.answers,
		e.poolConditions, e.overlaps, e.waits, e.annotations, e.ports,
	} {
		all = append(all, check()...)
	}
	return all
}

// programs finds programs that are missing or not Ready.
func (e *examined) programs() (all []fault) {
	if !slices.ContainsFunc(e.controllers, func(p podview.Pod) bool { return agents.IsAlive(&p) }) {
		all = append(all, fault{"controller", noController,
			"look at its Deployment: kubectl describe deployment fenceline-controller -n " + e.namespace})
	}
	on := map[string]bool{}
	for i := range e.agents {
		p := &e.agents[i]
		on[p.Spec.NodeName] = true
		if !agents.IsAlive(p) {
			all = append(all, fault{"node " + p.Spec.NodeName, "its agent " + p.Name + " is not Ready, so its pods get no address",
				"look at its status and log: kubectl describe pod " + p.Name + " -n " + e.namespace})
		}
	}
	for i := range e.nodes {
		if n := &e.nodes[i]; !on[n.Name] && len(e.agents) > 0 {
			all = append(all, fault{"node " + n.Name, "it has no agent, so its pods get no address",
				"compare its taints and labels with agent.tolerations and agent.nodeSelector of the chart"})
		}
	}
	return all
}

// versions finds versions that are too old, or do not belong together.
func (e *examined) versions() (all []fault) {
	if isOlder(e.server, oldestKubernetes) {
		all = append(all, fault{"API server", "its version is " + e.server, "use Kubernetes " + oldestKubernetes + " or newer"})
	}
	for i := range e.nodes {
		if kernel := e.nodes[i].Status.NodeInfo.KernelVersion; isOlder(kernel, oldestKernel) {
			all = append(all, fault{"node " + e.nodes[i].Name, "its kernel is " + kernel, "use Linux " + oldestKernel + " or newer"})
		}
	}
	builds := map[string][]string{}
	for _, r := range e.reports {
		builds[r.Version] = append(builds[r.Version], r.Node)
	}
	if len(builds) > 1 {
		var each []string
		for _, build := range slices.Sorted(maps.Keys(builds)) {
			each = append(each, fmt.Sprintf("%s on %s", build, nodesInWords(builds[build])))
		}
		all = append(all, fault{"agents", "they are of several builds: " + strings.Join(each, "; "), "finish the upgrade: kubectl rollout status daemonset fenceline-agent -n " + e.namespace})
	}
	return all
}

// isOlder compares versions such as v1.32.3 and 5.10.0-30-amd64. One that cannot be read is not older.
func isOlder(version, than string) bool {
	v, err := utilversion.ParseGeneric(version)
	if err != nil {
		return false
	}
	major, minor := utilversion.MustParseGeneric(than).Major(), utilversion.MustParseGeneric(than).Minor()
	return v.Major() < major || v.Major() == major && v.Minor() < minor
}

func (e *examined) ready() (all []fault) {
	for _, r := range e.reports {
		if r.NotReady != "" {
			all = append(all, fault{"node " + r.Node, "it serves no ADD: " + r.NotReady, "the reason names what is missing"})
		}
	}
	return all
}

// parents finds parents on which a fence or a probe proves nothing.
func (e *examined) parents() (all []fault) {
	for _, r := range e.reports {
		for _, p := range r.Parents {
			f := fault{Object: fmt.Sprintf("parent %s of node %s", p.Name, r.Node)}
			for _, text := range p.Hazards {
				what, do, _ := strings.Cut(text, "; ")
				all = append(all, fault{f.Object, what, do})
			}
			switch {
			case !p.Carrier:
				f.What, f.Do = "it has no carrier", "look at the cable and the switch port"
			case !p.Observed:
				f.What, f.Do = "the agent does not hear its frames", "look at the agent's log"
			case p.Mute:
				f.What, f.Do = "no other host answers there, so addresses that this node verifies stay Quarantined", "look at the VLAN, and at port security of the switch"
			case p.Deaf && e.othersSpeak(r.Node, p.Name):
				f.What, f.Do = "it hears no other agent, so silence there proves nothing", "look at the VLAN of the parent and of the switch port"
			default:
				continue
			}
			all = append(all, f)
		}
	}
	return all
}

// othersSpeak reports whether pods of other nodes have addresses on a parent of that name. Their claims
// should be heard. A new cluster has none.
func (e *examined) othersSpeak(node, parent string) bool {
	return slices.ContainsFunc(e.leases, func(l v1alpha1.IPLease) bool {
		return l.Spec.State == v1alpha1.StateBound && l.Spec.NodeName != node && l.Spec.Parent == parent
	})
}

// sameMACs finds parents of two nodes with one MAC: a switch sends the frames of both to one of them.
func (e *examined) sameMACs() (all []fault) {
	of := map[string][]string{}
	for _, r := range e.reports {
		macs := map[string]bool{}
		for _, p := range r.Parents {
			// A VLAN subinterface has the MAC of its device.
			if !macs[p.MAC] && p.MAC != "" {
				macs[p.MAC] = true
				of[p.MAC] = append(of[p.MAC], p.Name+" of node "+r.Node)
			}
		}
	}
	for _, mac := range slices.Sorted(maps.Keys(of)) {
		if parents := of[mac]; len(parents) > 1 {
			all = append(all, fault{"parents " + strings.Join(parents, ", "), "they have one MAC, " + mac, "give each machine its own MAC: cloned machines often share it"})
		}
	}
	return all
}

func (e *examined) configurations() (all []fault) {
	for _, r := range e.reports {
		if r.OwnConfiguration != "" && r.Configuration != r.OwnConfiguration {
			all = append(all, fault{"node " + r.Node,
				fmt.Sprintf("%s comes before %s by name, so the runtime uses it for the first interface of pods", orNone(r.Configuration), r.OwnConfiguration),
				"remove that file, set cni.conflist.name of the chart to a name that comes first, or set cni.conflist.enabled to false if Multus adds Fenceline's networks"})
		}
	}
	return all
}

// forwarding finds nodes that do not forward a family that pools have.
func (e *examined) forwarding() (all []fault) {
	has := map[string]bool{}
	for i := range e.pools {
		family := "ipv4"
		if strings.Contains(e.pools[i].Spec.Subnet, ":") {
			family = "ipv6"
		}
		has[family] = true
	}
	for _, r := range e.reports {
		for _, family := range r.ForwardingOff {
			if has[family] {
				all = append(all, fault{"node " + r.Node, "it does not forward " + family + ", so its pods get no answers of Services",
					"sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1, and keep it over a restart"})
			}
		}
	}
	return all
}

func (e *examined) clocks() (all []fault) {
	for _, r := range e.reports {
		if skew := r.Time.Sub(r.asked).Abs(); skew > mostSkew {
			all = append(all, fault{"node " + r.Node, fmt.Sprintf("its clock differs from this machine's by %s", skew.Round(time.Second)), "synchronise the clocks (chrony, systemd-timesyncd)"})
		}
	}
	return all
}

// answers finds gateways, and pods of other nodes, that do not answer on the segment.
func (e *examined) answers() (all []fault) {
	gateways := map[string]string{}
	for i := range e.pools {
		if g := e.pools[i].Spec.Gateway; g != nil {
			gateways[*g] = e.pools[i].Name
		}
	}
	for _, r := range e.reports {
		for _, a := range r.Answers {
			if a.MAC != "" || a.OfNode {
				continue
			}
			what, do := "no host answers for "+a.Address.String(), "look at the VLAN of the parent, and at the switch"
			if pool, ok := gateways[a.Address.String()]; ok {
				what, do = fmt.Sprintf("the gateway %s of pool %s does not answer", a.Address, pool), "look at the router, at spec.gateway of the pool, and at the VLAN of the parent"
			} else if l := e.lease(a.Address); l != nil {
				what = fmt.Sprintf("%s, pod%s of node %s, does not answer", a.Address, strings.TrimPrefix(ofHolder(l), ", held by pod"), l.Spec.NodeName)
			}
			if a.Error != "" {
				what = a.Error
			}
			all = append(all, fault{fmt.Sprintf("parent %s of node %s", a.Parent, r.Node), what, do})
		}
	}
	return all
}

func (e *examined) lease(addr netip.Addr) *v1alpha1.IPLease {
	for i := range e.leases {
		if e.leases[i].Spec.Addr() == addr {
			return &e.leases[i]
		}
	}
	return nil
}

func (e *examined) poolConditions() (all []fault) {
	if len(e.pools) == 0 {
		all = append(all, fault{"cluster", "it has no pool, so no pod gets an address", "make one, as docs/pools.md says"})
	}
	for i := range e.pools {
		for _, c := range e.pools[i].Status.Conditions {
			if (c.Type == v1alpha1.ConditionReady) != (c.Status == metav1.ConditionTrue) {
				all = append(all, fault{"pool " + e.pools[i].Name, fmt.Sprintf("%s is %s (%s): %s", c.Type, c.Status, c.Reason, c.Message), "docs/pools.md explains the condition"})
			}
		}
	}
	return all
}

// overlaps finds pools that hand out addresses of nodes, Services or other networks of pods.
func (e *examined) overlaps() (all []fault) {
	ranges := map[netip.Prefix]string{}
	for i := range e.nodes {
		n := &e.nodes[i]
		for _, cidr := range n.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(cidr); err == nil {
				ranges[p] = "the pod range of node " + n.Name
			}
		}
		for _, a := range n.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil {
				ranges[netip.PrefixFrom(addr, addr.BitLen())] = "the address of node " + n.Name
			}
		}
	}
	for _, p := range e.services {
		ranges[p] = "the range of Services"
	}
	for i := range e.pools {
		set, err := poolset.Addresses(&e.pools[i])
		if err != nil {
			continue // the condition Ready says so
		}
		for p, what := range ranges {
			if other, err := poolset.Parse([]string{p.String()}); err == nil && set.Overlaps(other) {
				all = append(all, fault{"pool " + e.pools[i].Name, fmt.Sprintf("it hands out addresses of %s, %s", p, what), "exclude them by spec.excludeIPs or a ReservedIP"})
			}
		}
	}
	slices.SortFunc(all, func(a, b fault) int { return strings.Compare(a.Object+a.What, b.Object+b.What) })
	return all
}

func (e *examined) waits() (all []fault) {
	for i := range e.leases {
		l := &e.leases[i]
		if l.Spec.State == v1alpha1.StateQuarantined && e.now.Sub(l.Spec.Since.Time) > longWait {
			all = append(all, fault{"address " + l.Spec.Address, fmt.Sprintf("it is Quarantined (%s) for %s: %s", l.Spec.Reason, age(e.now, l.Spec.Since.Time), whyQuarantined(l)),
				"kubectl fenceline explain " + l.Name})
		} else if l.Spec.State != v1alpha1.StateQuarantined && l.Spec.Conflict != nil {
			all = append(all, fault{"address " + l.Spec.Address, disputed(l), "find that host by its MAC in the tables of the switch, and give it another address"})
		}
	}
	return all
}

func (e *examined) annotations() (all []fault) {
	for _, text := range e.unread {
		all = append(all, fault{"annotation", text, "docs/cni.md lists all annotations"})
	}
	return all
}

func (e *examined) ports() (all []fault) {
	if e.mapsPorts {
		return nil
	}
	for _, pod := range e.hostPorts {
		all = append(all, fault{"pod " + pod, "it has a hostPort, and its network has no plugin with the capability portMappings, so nobody listens",
			"add the plugin portmap to the network configuration, or use a Service"})
	}
	return all
}
