// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"fmt"
	"net/http"
)

// Error codes of the CNI specification (section 5, "Error") that Fenceline uses.
const (
	// CodeInvalidEnvironment: CNI_ARGS lacks a value that the call needs, or holds a malformed one.
	CodeInvalidEnvironment uint = 4
	// CodeIOFailure: an operation on a file or a socket failed, although the agent runs.
	CodeIOFailure uint = 5
	// CodeDecodingFailure: the configuration, or a message, cannot be decoded.
	CodeDecodingFailure uint = 6
	// CodeInvalidNetworkConfig: the configuration can be decoded, but is wrong.
	CodeInvalidNetworkConfig uint = 7
	// CodeTryAgainLater: the same call succeeds later without a change by people. The agent or the
	// API server is unavailable, or a verification is under way.
	CodeTryAgainLater uint = 11
	// CodeNotAvailable: STATUS only. The agent cannot serve ADD.
	CodeNotAvailable uint = 50
	// CodeInternal: all other errors.
	CodeInternal uint = 999
)

// Fenceline's own error codes. The specification reserves codes from 100 on for plugins.
const (
	// CodeNoPool: no pool serves the pod. The message lists each candidate with its reason.
	CodeNoPool uint = 100
	// CodeExhausted: pools serve the pod, and no address in them is free. This is not
	// CodeTryAgainLater, because an address may never become free without a change by people.
	CodeExhausted uint = 101
	// CodeAddressRefused: a requested address is a gateway, outside the pools, or taken.
	CodeAddressRefused uint = 102
	// CodeNotHeld: CHECK found an address of prevResult that is not held, or no guard.
	CodeNotHeld uint = 103
)

// Error is the agent's answer to a call that failed. Its JSON is a CNI error without cniVersion.
type Error struct {
	// Code is one of the Code constants.
	Code uint `json:"code"`
	// Msg is one sentence: the attempt and its subject, the reason of the failure, the remedy.
	Msg string `json:"msg"`
	// Details may hold more facts, one on each line.
	Details string `json:"details,omitempty"`

	cause error
}

// Errorf returns an Error. It wraps the operand of a %w on this side of the socket.
func Errorf(code uint, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Msg: err.Error(), cause: err}
}

func (e *Error) Error() string {
	if e.Details == "" {
		return e.Msg
	}
	return e.Msg + "; " + e.Details
}

func (e *Error) Unwrap() error { return e.cause }

// HTTPStatus returns the HTTP status of an answer with this error. Clients decide by Code alone.
func (e *Error) HTTPStatus() int {
	switch e.Code {
	case CodeInvalidEnvironment, CodeDecodingFailure, CodeInvalidNetworkConfig:
		return http.StatusBadRequest
	case CodeNoPool, CodeExhausted, CodeAddressRefused, CodeNotHeld:
		return http.StatusConflict
	case CodeTryAgainLater, CodeNotAvailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// NoAnswerError means that no answer came from the agent: the agent does not run, it ended during
// the call, or the deadline passed. The agent may or may not have carried out the call.
type NoAnswerError struct {
	Socket string
	Err    error
}

func (e *NoAnswerError) Error() string {
	return fmt.Sprintf("no answer from the agent on %s: %v", e.Socket, e.Err)
}

func (e *NoAnswerError) Unwrap() error { return e.Err }
