// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Leases follows the leases of a pool at the API server. Only their metadata is transferred.
type Leases struct {
	Client client.WithWatch
}

// errClosed is the end of a watch that the server closed.
var errClosed = errors.New("the API server closed the watch")

// Follow lists the leases of a pool, and then reports each change, until ctx ends or the watch does.
// The error says why the watch ended.
func (l Leases) Follow(ctx context.Context, pool string, n News) error {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind("IPLeaseList"))
	selector := client.MatchingFields{"spec.pool": pool}
	if err := l.Client.List(ctx, &list, selector); err != nil {
		return fmt.Errorf("list the leases of pool %s: %w", pool, err)
	}
	taken := make(map[netip.Addr]struct{}, len(list.Items))
	for _, item := range list.Items {
		if _, addr, err := v1alpha1.ParseLeaseName(item.Name); err == nil {
			taken[addr] = struct{}{}
		}
	}
	n.Listed(taken)
	// The watch continues at the version of the list: no change is missed.
	w, err := l.Client.Watch(ctx, &list, selector, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		return fmt.Errorf("watch the leases of pool %s: %w", pool, err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			return fmt.Errorf("watch the leases of pool %s: %w", pool, apierrors.FromObject(event.Object))
		}
		o, ok := event.Object.(*metav1.PartialObjectMetadata)
		if !ok {
			continue
		}
		if _, addr, err := v1alpha1.ParseLeaseName(o.Name); err == nil {
			n.Changed(addr, event.Type != watch.Deleted)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("watch the leases of pool %s: %w", pool, errClosed)
}
