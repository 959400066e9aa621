// SPDX-License-Identifier: Apache-2.0

// Package refusal holds the one table that gives each error of the agent its CNI code and its
// remedy. The code is looked up where the answer is written.
package refusal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fenceline/fenceline/agent/hostlink"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/pod/vf"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// Reason is the reason for the failure of a call, for errors that have no type of their own.
type Reason int

// The reasons.
const (
	// TryAgain: the same call may succeed later without a change.
	TryAgain Reason = iota + 1
	// NotReady: the agent cannot serve ADD for any pod.
	NotReady
	// InvalidPod: the pod, or its annotation, asks for something that is impossible.
	InvalidPod
	// NoPool: no pool may serve the pod.
	NoPool
	// NotHeld: the attachment does not hold its addresses, or is not guarded.
	NotHeld
	// InvalidRequest: the runtime's request lacks a part.
	InvalidRequest
	// Unreadable: the plugin's request could not be read.
	Unreadable
	// Undecodable: the plugin's request is not the JSON that it should be.
	Undecodable
	// Cancelled: a DEL has cancelled the call.
	Cancelled
	// Queued: the call waited for an earlier call of its attachment.
	Queued
)

// Error is an error with a reason.
type Error struct {
	Reason Reason
	err    error
}

// New returns an Error. errors.Is and errors.As find the operand of a %w in format.
func New(r Reason, format string, args ...any) error {
	return &Error{Reason: r, err: fmt.Errorf(format, args...)}
}

func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns the error that New made from its format.
func (e *Error) Unwrap() error { return e.err }

// rows are the table. The first row that matches counts. %w stands for the error.
var rows = []struct {
	matches func(error) bool
	code    uint
	message string
}{
	{because(TryAgain, NotReady), agentapi.CodeTryAgainLater, "%w"},
	{because(InvalidPod, InvalidRequest), agentapi.CodeInvalidNetworkConfig, "%w"},
	{because(NoPool), agentapi.CodeNoPool, "%w"},
	{because(NotHeld), agentapi.CodeNotHeld, "%w"},
	{because(Unreadable), agentapi.CodeIOFailure, "%w"},
	{because(Undecodable), agentapi.CodeDecodingFailure, "%w; are plugin and agent of the same release?"},

	// The rules of the pools.
	{IsExhausted, agentapi.CodeExhausted, "%w; enlarge a pool or free addresses (kubectl get fllease)"},
	{is[*ipam.PoolAwaitedError], agentapi.CodeNoPool, "%w; see kubectl get flsubnet, and the events of the application"},
	{is[*ipam.NoPoolError], agentapi.CodeNoPool, "%w; see kubectl get flpool"},
	{is[*ipam.AnnotationError], agentapi.CodeInvalidNetworkConfig, "%w"},
	{is[*ipam.RequestedError], agentapi.CodeAddressRefused, "%w"},
	{is[*ipam.ReservationError], agentapi.CodeAddressRefused, "%w"},
	{wraps(lease.ErrTaken), agentapi.CodeAddressRefused, "%w"},

	// The pod's interface.
	{wraps(pod.ErrNoParent), agentapi.CodeInvalidNetworkConfig,
		"%w; Fenceline guards macvlan, ipvlan, SR-IOV virtual functions and ports of a bridge: set macvlan, ipvlan, sriov, host-device or bridge as the type of the plugin that calls it"},
	{wraps(pod.ErrNoUplink), agentapi.CodeInvalidNetworkConfig,
		"%w; Fenceline guards a veth on a bridge with one port to the network: set such a bridge, or use macvlan on that interface"},
	{wraps(pod.ErrNoVLAN, pod.ErrUnfitOVS), agentapi.CodeInvalidNetworkConfig, "%w"},
	{wraps(pod.ErrNoOVS), agentapi.CodeTryAgainLater,
		"%w; set agent.openvswitch in the values of the chart, and start ovsdb-server on the node"},
	{wraps(vf.ErrNoPF), agentapi.CodeInvalidNetworkConfig,
		"%w; keep the PF in the node's network namespace: claims and probes leave there"},
	{wraps(vf.ErrNoInfo), agentapi.CodeTryAgainLater, "%w; the next try asks again"},
	{wraps(vf.ErrNoVLAN), agentapi.CodeInvalidNetworkConfig,
		"%w; make a subinterface of this VLAN on the PF, or on its bond, and set it up"},
	{wraps(pod.ErrInfiniBand), agentapi.CodeInvalidNetworkConfig, "%w; Fenceline serves Ethernet only"},
	{wraps(pod.ErrLayer3), agentapi.CodeInvalidNetworkConfig,
		"%w, on which an address could be proven free; set the plugin's mode to l2, or remove it"},
	{wraps(pod.ErrRewrites), agentapi.CodeInvalidNetworkConfig,
		"%w; set another mode of the bond, such as active-backup or 802.3ad"},
	{wraps(pod.ErrForeignParent), agentapi.CodeInvalidNetworkConfig,
		"%w; set the plugin's master to an interface of the node, and run the agent with hostNetwork"},
	{wraps(pod.ErrNoNetNS, pod.ErrNoInterface, bpf.ErrNoDevice), agentapi.CodeTryAgainLater,
		"%w; the sandbox or its parent was changed or deleted meanwhile, the runtime's next try makes a new sandbox"},

	// The routing of the pod.
	{wraps(hostlink.ErrOverlap), agentapi.CodeInvalidNetworkConfig, "%w"},
	{wraps(hostlink.ErrBroken), agentapi.CodeNotHeld, "%w; the agent completes host links and routes within a minute, and only a new sandbox replaces the rest"},
	{wraps(hostlink.ErrGone), agentapi.CodeTryAgainLater, "%w; the runtime's next try makes a new sandbox"},

	// Another node was faster, or does not have the same information yet.
	{wraps(segment.ErrFenced, segment.ErrNoKey, lease.ErrNotMine, lease.ErrGone, lease.ErrState),
		agentapi.CodeTryAgainLater, "%w; the next try chooses anew"},

	// The call itself.
	{because(Cancelled), agentapi.CodeTryAgainLater, "the call was cancelled: %w"},
	{because(Queued), agentapi.CodeTryAgainLater, "the call took too long, or was cancelled: %w"},
	{isOfWebhook, agentapi.CodeTryAgainLater,
		"%w; all pods wait for this admission webhook, perhaps its own too: exempt the API group fenceline.io from it"},
	{lease.IsUnavailable, agentapi.CodeTryAgainLater, "%w; the API server is unreachable, addresses are given once it answers"},
	{wraps(context.Canceled), agentapi.CodeTryAgainLater, "the call was cancelled: %w"},
	{wraps(context.DeadlineExceeded), agentapi.CodeTryAgainLater, "the call took too long: %w; the agent's log names the step"},
	{is[syscall.Errno], agentapi.CodeIOFailure, "%w; look at the disks and the kernel log of this node"},
	{func(error) bool { return true }, agentapi.CodeInternal, "%w"},
}

// Answer returns the plugin's answer to a call that failed.
func Answer(err error) *agentapi.Error {
	for _, row := range rows {
		if row.matches(err) {
			return agentapi.Errorf(row.code, row.message, err)
		}
	}
	return nil // not reached: the last row matches every error
}

// because matches errors that have one of the reasons.
func because(reasons ...Reason) func(error) bool {
	return func(err error) bool {
		e, ok := errors.AsType[*Error](err)
		return ok && slices.Contains(reasons, e.Reason)
	}
}

// wraps matches errors that wrap one of the sentinels.
func wraps(sentinels ...error) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(sentinels, func(s error) bool { return errors.Is(err, s) })
	}
}

// is matches errors that wrap an error of type T.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// isOfWebhook matches an answer of the API server about an admission webhook that fails closed and does
// not answer. Only its text tells (apiserver/pkg/admission/plugin/webhook/errors).
func isOfWebhook(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
}

// Waits reports whether an ADD with this error may get its address soon: its pools are full, or another
// node is asked to release the address.
func Waits(err error) bool {
	_, keptReady := ipam.KeptReady(err)
	return keptReady || IsExhausted(err)
}

// IsExhausted reports whether an error means that a pool was excluded only because it is full.
func IsExhausted(err error) bool {
	none, ok := errors.AsType[*ipam.NoPoolError](err)
	return ok && none.Exhausted()
}
