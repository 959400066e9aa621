// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

func TestErrorsAndTheirCodes(t *testing.T) {
	full := ipam.Rejection{Pool: "p", Reason: ipam.Exhausted, Detail: "it is full"}
	disabled := ipam.Rejection{Pool: "q", Reason: ipam.Disabled, Detail: "it is disabled"}
	webhook := apierrors.NewInternalError(errors.New(`failed calling webhook "validate.kyverno.svc-fail": connection refused`))
	for name, row := range map[string]struct {
		err  error
		code uint
		says string
	}{
		"a reason, wrapped":             {fmt.Errorf("bind: %w", New(NotHeld, "eth0 is not guarded")), agentapi.CodeNotHeld, "bind: eth0 is not guarded"},
		"a reason before its cause":     {New(TryAgain, "an earlier DEL failed: %w", syscall.EIO), agentapi.CodeTryAgainLater, "an earlier DEL failed"},
		"every pool is full":            {&ipam.NoPoolError{Rejected: []ipam.Rejection{full}}, agentapi.CodeExhausted, "enlarge a pool"},
		"no pool serves":                {&ipam.NoPoolError{Rejected: []ipam.Rejection{disabled}}, agentapi.CodeNoPool, "kubectl get flpool"},
		"a requested address":           {&ipam.RequestedError{}, agentapi.CodeAddressRefused, ""},
		"an interface without parent":   {fmt.Errorf("find eth0: %w", pod.ErrNoParent), agentapi.CodeInvalidNetworkConfig, "macvlan, ipvlan, SR-IOV"},
		"a VLAN of a bridge":            {fmt.Errorf("find eth0: %w: run ip link", pod.ErrNoVLAN), agentapi.CodeInvalidNetworkConfig, "run ip link"},
		"a bridge without uplink":       {fmt.Errorf("find eth0: %w", pod.ErrNoUplink), agentapi.CodeInvalidNetworkConfig, "with one port to the network"},
		"an ipvlan that routes":         {fmt.Errorf("use eth0: %w", pod.ErrLayer3), agentapi.CodeInvalidNetworkConfig, "mode to l2"},
		"a bond that changes MACs":      {fmt.Errorf("use eth0: %w", pod.ErrRewrites), agentapi.CodeInvalidNetworkConfig, "another mode of the bond"},
		"a fence":                       {segment.ErrFenced, agentapi.CodeTryAgainLater, "the next try chooses anew"},
		"a lease that changed":          {lease.ErrNotMine, agentapi.CodeTryAgainLater, "the next try chooses anew"},
		"an API server that is down":    {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, agentapi.CodeTryAgainLater, "API server is unreachable"},
		"a webhook that is down":        {fmt.Errorf("create lease a: %w: %w", lease.ErrUncertain, webhook), agentapi.CodeTryAgainLater, "exempt the API group fenceline.io"},
		"a call that waited":            {New(Queued, "wait for an earlier call: %w", context.DeadlineExceeded), agentapi.CodeTryAgainLater, "took too long"},
		"a call whose plugin left":      {context.Canceled, agentapi.CodeTryAgainLater, "cancelled"},
		"a full disk":                   {fmt.Errorf("journal: %w", syscall.ENOSPC), agentapi.CodeIOFailure, "journal"},
		"an error without another code": {errors.New("boom"), agentapi.CodeInternal, "boom"},
	} {
		t.Run(name, func(t *testing.T) {
			e := Answer(row.err)
			check.That(t, e.Code == row.code && strings.Contains(e.Msg, row.says) && errors.Is(e, row.err),
				"code %d, %q, want code %d and %q", e.Code, e.Msg, row.code, row.says)
		})
	}
}
