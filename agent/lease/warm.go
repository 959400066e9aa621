// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// first returns the first spec of the lease for a request.
func first(r Request, o Owner) v1alpha1.IPLeaseSpec {
	if r.Holder == (v1alpha1.Holder{}) {
		return Warm(r, o)
	}
	return Bind(r, o)
}

// Warm returns the first spec of a lease that is kept ready. It has no holder.
func Warm(r Request, o Owner) v1alpha1.IPLeaseSpec {
	return v1alpha1.IPLeaseSpec{
		Address: r.Addr.String(), Pool: r.Pool, Parent: r.Parent,
		State: v1alpha1.StateWarm, Since: metav1.NewTime(o.Now), NodeName: o.Node, Session: o.Session,
	}
}

// BindWarm binds a Warm lease of this node. A Warm lease has no last holder, so nothing needs
// proof. The caller knows that the address was proven in this session.
func BindWarm(r Request) Transition {
	return func(old v1alpha1.IPLeaseSpec, o Owner) (v1alpha1.IPLeaseSpec, error) {
		if old.State != v1alpha1.StateWarm || old.NodeName != o.Node {
			return old, fmt.Errorf("%w: %s", ErrState, describe(&old))
		}
		return bindAgain(old, r, o), nil
	}
}
