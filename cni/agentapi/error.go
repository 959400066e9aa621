package agentapi

import (
	"fmt"
	"net/http"
)

// Error codes of the CNI specification (section 5, "Error") that Fenceline uses.
const (
	// CodeInvalidEnvironment: CNI_ARGS lacks or garbles what the call needs.
	CodeInvalidEnvironment uint = 4
	// CodeIOFailure: a file or a socket failed in a way that is not the agent's absence.
	CodeIOFailure uint = 5
	// CodeDecodingFailure: the configuration, or a message, is not the JSON it should be.
	CodeDecodingFailure uint = 6
	// CodeInvalidNetworkConfig: the configuration is readable and wrong.
	CodeInvalidNetworkConfig uint = 7
	// CodeTryAgainLater: the same call will succeed without anybody changing
	// anything: the agent or the API server is away, or a verification still runs.
	CodeTryAgainLater uint = 11
	// CodeNotAvailable: STATUS only. ADD cannot be served.
	CodeNotAvailable uint = 50
	// CodeInternal: a fault of Fenceline that has no better code.
	CodeInternal uint = 999
)

// Fenceline's own error codes. From 100 on the specification leaves them to the plugin.
const (
	// CodeNoPool: no pool is left for the pod. The message lists each candidate with its reason.
	CodeNoPool uint = 100
	// CodeExhausted: pools fit, and no address in them is free. It is not
	// CodeTryAgainLater: nothing promises that an address comes free by itself.
	CodeExhausted uint = 101
	// CodeAddressRefused: a requested address is a gateway, outside the pools, or taken.
	CodeAddressRefused uint = 102
	// CodeNotHeld: CHECK found that the attachment does not hold what prevResult says,
	// or that its guard is missing.
	CodeNotHeld uint = 103
)

// Error is the agent's answer to a call that failed. Its JSON is a CNI error
// without cniVersion.
type Error struct {
	// Code is one of the Code constants.
	Code uint `json:"code"`
	// Msg is one sentence: what was attempted on what, why it failed, what to do.
	Msg string `json:"msg"`
	// Details may hold the longer story, one line for each fact.
	Details string `json:"details,omitempty"`

	cause error
}

// Errorf makes an Error. A %w in format keeps its operand reachable by
// errors.Is and errors.As on this side of the socket.
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

// HTTPStatus returns the HTTP status under which the error travels. Clients
// decide by Code alone.
func (e *Error) HTTPStatus() int {
	switch e.Code {
	case CodeInvalidEnvironment, CodeDecodingFailure, CodeInvalidNetworkConfig:
		return http.StatusBadRequest
	case CodeNoPool, CodeExhausted, CodeAddressRefused, CodeNotHeld:
		return http.StatusConflict
	case CodeTryAgainLater, CodeNotAvailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// AwayError says that no answer came from the agent: it is not running, it
// died during the call, or the deadline passed. Nothing is known about what
// the agent has done.
type AwayError struct {
	Socket string
	Err    error
}

func (e *AwayError) Error() string {
	return fmt.Sprintf("no answer from the agent on %s: %v", e.Socket, e.Err)
}

func (e *AwayError) Unwrap() error { return e.Err }
