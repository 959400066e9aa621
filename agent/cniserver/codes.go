// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"

	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// Errors of the server itself.
var (
	errUnreadable  = refusal.New(refusal.Unreadable, "read the request of the plugin")
	errUndecodable = refusal.New(refusal.Undecodable, "decode the request of the plugin")
	// errSuperseded is the cause with which a DEL cancels an ADD or CHECK of its attachment.
	errSuperseded = refusal.New(refusal.Cancelled, "a DEL of the same interface arrived")
	errEarlierDEL = refusal.New(refusal.TryAgain, "carry out the earlier DEL of the same interface first")
	// errNoList: the list is missing. As an empty list, it would release all addresses.
	errNoList = refusal.New(refusal.InvalidRequest, "the runtime must list the valid attachments; nothing was released")
)

// cniError returns the CNI error for the error of a verb.
func cniError(verb string, err error) *agentapi.Error {
	e := refusal.Answer(err)
	if verb == "STATUS" {
		// The CNI specification names this code for a plugin that cannot serve ADD.
		e.Code = agentapi.CodeNotAvailable
	}
	return e
}

// outcome is the value of the metric label "result".
type outcome string

const (
	outcomeOK outcome = "ok"
	// outcomeRetry: CNI code 11 or 50. The runtime repeats the call, which may succeed then.
	outcomeRetry outcome = "retry"
	// outcomeExhausted: pools match the pod and are full.
	outcomeExhausted outcome = "exhausted"
	// outcomeRefused: the configuration or the request has to change.
	outcomeRefused outcome = "refused"
	// outcomeCancelled: the plugin has disconnected, or a DEL has cancelled the call.
	outcomeCancelled outcome = "cancelled"
	outcomeError     outcome = "error"
)

// outcomeOf classifies the end of a call. client is the context of its connection.
func outcomeOf(client context.Context, err error) outcome {
	if err == nil {
		return outcomeOK
	}
	if client.Err() != nil || errors.Is(err, errSuperseded) {
		return outcomeCancelled
	}
	switch refusal.Answer(err).Code {
	case agentapi.CodeTryAgainLater, agentapi.CodeNotAvailable:
		return outcomeRetry
	case agentapi.CodeExhausted:
		return outcomeExhausted
	case agentapi.CodeInternal, agentapi.CodeIOFailure:
		return outcomeError
	}
	return outcomeRefused
}
