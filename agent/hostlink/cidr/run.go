// SPDX-License-Identifier: Apache-2.0

package cidr

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// period is the time between two reads in a small cluster. In a large one it is longer: each agent
	// reads each node.
	period = time.Minute
	// retry is the time after a failure. After one that only a person can end, it doubles up to longest.
	retry, longest = 10 * time.Second, 10 * time.Minute
	// perNode is the time for each pod CIDR, so ten minutes for 600 nodes.
	perNode = time.Second
)

// remedy says what to do while pod CIDRs are unknown.
const remedy = "name all in the chart's value cni.hostLink.podCIDRs"

// ErrNone: no source names a pod CIDR.
var ErrNoPods = errors.New("neither the Nodes (spec.podCIDRs) nor Calico nor Cilium name one; " + remedy)

// PodOptions of Pods. All are required.
type PodOptions struct {
	event.Reporter
	// API reads past any cache: the agent watches no node but its own.
	API client.Reader
	// Needed reports whether a pod of this node needs the pod CIDRs. Without one, nothing is read.
	Needed func() bool
	// Unknown sets whether pods lack pod CIDRs.
	Unknown func(bool)
}

// Run reads the pod CIDRs while a pod of this node needs them, until ctx ends. It keeps
// the CIDRs that it has read while the API server is away.
func (p *Pods) Run(ctx context.Context) error {
	if p.API == nil {
		return nil
	}
	return loop.Loop{Clock: p.Clock, Wake: p.wake}.Pace(ctx, func(ctx context.Context) (time.Duration, error) {
		pause := period
		if p.Needed() {
			pause = p.Pass(ctx)
		}
		return wait.Jitter(pause, .5), nil
	})
}

// Pass reads the pod CIDRs once, and returns the time until the next read. If ctx ends meanwhile,
// nothing changes.
func (p *Pods) Pass(ctx context.Context) time.Duration {
	found, unread, passing := readAll(ctx, p.API, sources())
	if ctx.Err() != nil {
		return retry
	}
	var failure error
	switch before, _ := p.Prefixes(); {
	case len(unread) > 0:
		failure = fmt.Errorf("%w; upgrade the chart's release if it is forbidden, or %s", errors.Join(unread...), remedy)
		found = append(found, before...) // what was known is not gone because it cannot be read
	case len(found) == 0:
		failure = ErrNoPods
	}
	p.set(found, failure)
	p.report(failure)
	switch {
	case passing:
		return retry
	case failure != nil: // each agent would list all Nodes again and again, and find the same
		return p.failures.Next()
	}
	p.failures.Reset()
	return max(period, time.Duration(len(found))*perNode)
}

// report reports a failure once, and again after a change.
func (p *Pods) report(failure error) {
	p.Unknown(failure != nil)
	if failure == nil || !p.failures.IsNew(failure) {
		return
	}
	p.Log.Error(failure, "pods whose default routes are on the underlay lack routes to pods of other networks")
	p.NodeEventf(corev1.EventTypeWarning, "PodCIDRsUnknown", "ReadPodCIDRs",
		"pods with default-route-nic reach pods of other networks by the underlay only: pod CIDRs are unknown: %s", failure)
}
