// Package retry says how soon a look that failed is taken again. While the API
// server is away every look fails, and a pause that doubles for ever outlasts an
// outage by as long again: what became due meanwhile would wait for nothing.
package retry

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// first and most are the first pause after a failure and the longest.
const first, most = 5 * time.Millisecond, 5 * time.Second

// Limiter returns the pauses of one controller's looks.
func Limiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, most)
}
