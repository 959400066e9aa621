// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// first and most are the shortest and the longest pause after a failure.
const first, most = 5 * time.Millisecond, 5 * time.Second

// Limiter limits the pause after a failed reconcile. While the API server is unavailable,
// every reconcile fails. A pause that doubles without a limit lasts as long as the outage, so a
// lease that became due during the outage would wait as long again.
//
// Limiter returns the rate limiter of one controller.
func Limiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, most)
}
