// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// remedyNoAnswer is the remedy when no answer came from the agent.
const remedyNoAnswer = "the runtime repeats the call; if this goes on, look at the agent of this node: " +
	"kubectl -n fenceline-system get pods -o wide"

// cniError returns the error that skel prints. An error of the agent keeps its code. Without an
// answer of the agent, STATUS has a code of its own in the CNI specification.
func cniError(verb, subject string, err error) error {
	if err == nil {
		return nil
	}
	sentence := func(text string) string { return fmt.Sprintf("fenceline %s%s: %s", verb, subject, text) }
	if decided, ok := errors.AsType[*agentapi.Error](err); ok {
		return types.NewError(decided.Code, sentence(decided.Msg), decided.Details)
	}
	if _, ok := errors.AsType[*agentapi.NoAnswerError](err); ok {
		code := agentapi.CodeTryAgainLater
		if verb == "STATUS" {
			code = agentapi.CodeNotAvailable
		}
		return types.NewError(code, sentence(err.Error()), remedyNoAnswer)
	}
	return types.NewError(agentapi.CodeInternal, sentence(err.Error()), "")
}
