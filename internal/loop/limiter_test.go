// SPDX-License-Identifier: Apache-2.0

package loop_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fenceline/fenceline/internal/loop"
	"github.com/fenceline/fenceline/test/check"
)

func TestWhatWaitedForTheAPIServerIsLookedAtSoonAfterItsReturn(t *testing.T) {
	limiter := loop.Limiter()
	request := reconcile.Request{NamespacedName: types.NamespacedName{Name: "10.6.0.10"}}
	var outage, pause time.Duration
	for outage < time.Hour {
		pause = limiter.When(request)
		outage += pause
	}
	check.That(t, pause <= 5*time.Second, "after an outage of %s the next look comes up to %s late", outage, pause)
	limiter.Forget(request)
	check.That(t, limiter.When(request) <= 10*time.Millisecond, "a first failure waits for longer than a lost race takes")
}
