package ipam

import (
	"errors"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// ChoosePools finds the pools for one interface: candidates from the first
// source that names any, filtered, and sorted by how closely they are meant
// for this pod. Addresses of reserved are not handed out.
//
// The error is a *NoPoolError, an *AnnotationError or a *RequestedError.
// The result points into pools.
func ChoosePools(req Request, pools []v1alpha1.IPPool, reserved Set) (Choice, error) {
	return Choice{}, errors.ErrUnsupported
}
