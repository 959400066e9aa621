// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

var (
	// ErrTaken: the lease of the address is not this container's. The error is a *TakenError.
	ErrTaken = errors.New("address is taken")
	// ErrNotMine: the lease has another holder, state, node or session than the caller knows.
	ErrNotMine = errors.New("lease is not mine any more")
	// ErrGone: there is no such lease.
	ErrGone = errors.New("lease is gone")
	// ErrUncertain: the API server did not answer, and the write may have happened. Keep the
	// journal entry and clean up by name and container ID later. IsUnavailable is true as well.
	ErrUncertain = errors.New("write may have happened")
	// ErrIdentity: the lease is kept for another pod.
	ErrIdentity = errors.New("lease is kept for another pod")
	// ErrState: the lease's state does not allow the transition.
	ErrState = errors.New("no such transition from this state")
)

// TakenError holds the lease of an address that is taken.
type TakenError struct{ Lease *v1alpha1.IPLease }

func (e *TakenError) Error() string {
	return "address " + e.Lease.Spec.Address + " is taken: " + e.Holder()
}

// Holder says who has the address.
func (e *TakenError) Holder() string { return describe(&e.Lease.Spec) }

// Is makes errors.Is(err, ErrTaken) true.
func (e *TakenError) Is(target error) bool { return target == ErrTaken }

// IsUnavailable reports whether an error means that the API server is unavailable now, so that a
// later try may succeed (CNI code 11). An answer of the API server is not such an error.
func IsUnavailable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	// A status is an answer. Only a status about the server itself means that it is unavailable. 401
	// is one of them, since a bound token is rotated while the agent runs.
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
			apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsUnauthorized(err) ||
			apierrors.IsUnexpectedServerError(err) || status.Status().Code >= 500
	}
	return errors.Is(err, context.DeadlineExceeded) || isOfConnection(err) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) ||
		utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err)
}

// isOfConnection reports whether an error comes from a network connection. A bare
// errno implements net.Error too, but may come from a full disk.
func isOfConnection(err error) bool {
	netErr, ok := errors.AsType[net.Error](err)
	_, alone := any(netErr).(syscall.Errno)
	return ok && !alone
}

// uncertain marks an error after which a write may have happened. A failed dial wrote nothing.
func uncertain(err error) error {
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return err
	}
	if IsUnavailable(err) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return err
}
