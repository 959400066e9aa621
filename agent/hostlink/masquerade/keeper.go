// SPDX-License-Identifier: Apache-2.0

package masquerade

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/nftables"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/hostlink"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// checkInterval is the time between two checks. New connections through host links may hang for
	// that long after something else flushed the rules. A check of both families takes half a millisecond.
	checkInterval = 5 * time.Second
	// tellInterval is the shortest time between two events about rules that were put back.
	tellInterval = 10 * time.Minute
)

// Reasons of faults, which are labels of the metric.
const (
	reasonRules      = "rules"
	reasonForwarding = "forwarding"
	reasonServices   = "services"
	reasonReach      = "reach"
)

// Options of a Keeper. All are required.
type Options struct {
	event.Reporter
	// Entries returns the entries of the journal, which are read-only.
	Entries func() []*attachment.Entry
	// Services returns an error while the service CIDRs are unknown.
	Services func() error
	// Reach returns an error if this node does not reach pods of other nodes by the family.
	Reach func(v4 bool) error
	// SetFault sets the gauge that says whether host links of a family lack something on the node.
	SetFault func(family, reason string, present bool)
}

// Keeper makes the rules on the node before its first host link, keeps them, and reports what host
// links lack. Its methods are safe for concurrent use.
type Keeper struct {
	Options

	mu sync.Mutex
	// made are the families whose rules were complete once.
	made map[string]bool
	// faults are those that were reported, by family and reason.
	faults loop.Told[[2]string]
	// told is the time of the last event about rules that were put back.
	told time.Time
}

// NewKeeper returns a Keeper for the network namespace of the calling thread.
func NewKeeper(o Options) *Keeper {
	return &Keeper{Options: o, made: map[string]bool{}, faults: loop.Told[[2]string]{}}
}

// Prepare makes the rules, unless they were made before. Call it before a host link is made. A node
// without host links has no rules, since a NAT rule makes the kernel track all connections of the node.
// Run reports a failure, and a host link without rules serves all but Services.
func (k *Keeper) Prepare() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range families() {
		if !k.made[f.Name] {
			_ = k.ensure(f)
		}
	}
}

// Run keeps the rules while there are host links, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	wait.NonSlidingUntil(k.look, checkInterval, ctx.Done())
	return nil
}

// look checks the families in which pods have host links, and repairs them.
func (k *Keeper) look() {
	used := usedFamilies(k.Entries())
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range families() {
		var rules, forwarding, services, reach error
		if used[f.Name] {
			rules, forwarding = k.ensure(f), f.forwards()
			services, reach = k.Services(), k.Reach(f.nft == nftables.TableFamilyIPv4)
		}
		k.report(f, reasonRules, rules)
		k.report(f, reasonForwarding, forwarding)
		k.report(f, reasonServices, services)
		k.report(f, reasonReach, reach)
	}
}

// usedFamilies returns the families of the addresses with host links.
func usedFamilies(entries []*attachment.Entry) map[string]bool {
	used := map[string]bool{}
	for _, e := range entries {
		if e.Routing == nil || !e.Routing.HostLink {
			continue
		}
		for _, a := range e.Addresses {
			if a.Addr.Is4() {
				used["ipv4"] = true
			} else {
				used["ipv6"] = true
			}
		}
	}
	return used
}

// ensure makes the rules of a family. It reports a loss of rules that were complete before.
func (k *Keeper) ensure(f Family) error {
	missing := f.do(hostlink.Ruleset.Check)
	if errors.Is(missing, hostlink.ErrIncomplete) {
		if err := f.do(hostlink.Ruleset.Ensure); err != nil {
			return err
		}
		if k.made[f.Name] {
			k.restored(missing)
		}
		missing = nil
	}
	if missing == nil {
		k.made[f.Name] = true
	}
	return missing
}

// restored reports that rules were put back, by one event in tellInterval at most.
func (k *Keeper) restored(missing error) {
	k.Log.Info("the rules of host links were changed or removed, and the agent put them back", "missing", missing.Error())
	if now := k.Clock.Now(); k.told.IsZero() || now.Sub(k.told) >= tellInterval {
		k.told = now
		k.NodeEventf(corev1.EventTypeWarning, "HostLinkRulesRestored", "KeepHostLinks",
			"%s, and the agent put it back; connections of pods to Services that began meanwhile may hang", missing)
	}
}

// report reports a fault once, and its end.
func (k *Keeper) report(f Family, reason string, fault error) {
	k.SetFault(f.Name, reason, fault != nil)
	if !k.faults.IsNew([2]string{f.Name, reason}, fault) {
		return
	}
	k.Log.Error(fault, "host links of this node do not work fully", "family", f.Name)
	switch reason {
	case reasonRules:
		k.NodeEventf(corev1.EventTypeWarning, "HostLinkRulesMissing", "KeepHostLinks",
			"%s: without these rules pods get no answers of Services; the agent tries again", fault)
	case reasonForwarding:
		k.NodeEventf(corev1.EventTypeWarning, "ForwardingOff", "KeepHostLinks", "%s", fault)
	case reasonServices:
		k.NodeEventf(corev1.EventTypeWarning, "ServiceCIDRsUnknown", "KeepHostLinks", "pods get no routes to Services: %s", fault)
	case reasonReach:
		k.NodeEventf(corev1.EventTypeWarning, "PodsOfOthersUnreachable", "KeepHostLinks", "%s", fault)
	}
}
