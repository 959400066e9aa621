// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// What looks like an API server that is away may be about one lease, as a
// webhook that does not answer is.
func TestALeaseThatCannotBeGivenUpKeepsNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.warmed()
		r.set(func() { r.stuck = "delete 10.0.0.2" })
		err := r.api.Create(t.Context(), &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: v1alpha1.ReservedIPSpec{IPs: []string{"10.0.0.2"}}})
		check.OK(t, err)
		r.wake()
		r.pass(time.Minute)
		r.want(warm2, warm3, warm4)
		r.set(func() { r.stuck = "" })
		r.pass(2 * retryMost)
		r.want(warm3, warm4)
	})
}
