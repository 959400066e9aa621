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
	// ErrTaken: the address has a lease that is not this container's. The
	// error is a *TakenError, which holds that lease.
	ErrTaken = errors.New("address is taken")
	// ErrNotMine: the lease has another holder, state, node or session than the one the caller knows.
	ErrNotMine = errors.New("lease is not mine any more")
	// ErrGone: there is no such lease.
	ErrGone = errors.New("lease is gone")
	// ErrUncertain: the API server did not answer, and the write may have
	// happened. Keep the journal entry and clean up by name and container ID
	// later. IsUnavailable is true as well.
	ErrUncertain = errors.New("write may have happened")
	// ErrIdentity: the lease is kept for another pod.
	ErrIdentity = errors.New("lease is kept for another pod")
	// ErrState: the transition is not one of those of the lease's state.
	ErrState = errors.New("no such transition from this state")
)

// TakenError says whose the address is.
type TakenError struct{ Lease *v1alpha1.IPLease }

func (e *TakenError) Error() string {
	return "address " + e.Lease.Spec.Address + " is taken: " + describe(&e.Lease.Spec)
}

// Is makes errors.Is(err, ErrTaken) true.
func (e *TakenError) Is(target error) bool { return target == ErrTaken }

// IsUnavailable tells whether an error means that the API server cannot be
// asked now, so that trying again later may help (CNI code 11), as opposed to
// an answer.
func IsUnavailable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	// A status is an answer; of these only the ones that speak of the server itself count.
	// 401 is among them: a bound token is rotated under a running agent.
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
			apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsUnauthorized(err) ||
			apierrors.IsUnexpectedServerError(err) || status.Status().Code >= 500
	}
	return errors.Is(err, context.DeadlineExceeded) || isOfConnection(err) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) ||
		utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err)
}

// isOfConnection tells whether an error is one of a network connection. An errno
// alone looks like one, and is a full disk's as well.
func isOfConnection(err error) bool {
	var netErr net.Error
	if !errors.As(err, &netErr) {
		return false
	}
	_, alone := any(netErr).(syscall.Errno)
	return !alone
}

// uncertain marks an error after which nobody knows whether a write happened.
// Who got no connection has written nothing.
func uncertain(err error) error {
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return err
	}
	if IsUnavailable(err) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return err
}
