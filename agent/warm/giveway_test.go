// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"testing"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

func TestWhileADDsAreUnderWayLeasesAreGivenUpButNoneIsMade(t *testing.T) {
	inBubble(t, func(_ *testing.T, r *rig) {
		ended := make(chan struct{})
		r.set(func() { r.adds = ended })
		r.keeper.Used("v4", "eth1")
		r.pass(time.Minute)
		r.want()
		close(ended)
		r.pass(proofTakes + time.Second)
		r.want(warm2, warm3)

		ended = make(chan struct{})
		r.set(func() { r.adds = ended })
		disabled := true
		r.changePool(func(p *v1alpha1.IPPool) { p.Spec.Disable = &disabled })
		r.pass(time.Minute)
		r.want()
		close(ended)
	})
}
