// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Lease watches one lease by its name, so that the writes of other leases cost the API server no more. It calls changed
// at the start and at each change, and returns when the watch or ctx ends.
func Lease(ctx context.Context, c client.WithWatch, name string, changed func()) error {
	w, err := c.Watch(ctx, &v1alpha1.IPLeaseList{}, client.MatchingFields{metav1.ObjectNameField: name})
	if err != nil {
		return fmt.Errorf("watch lease %s: %w", name, err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return fmt.Errorf("watch lease %s: %w", name, apierrors.FromObject(e.Object))
		}
		changed()
	}
	return nil
}
