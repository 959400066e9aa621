// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"fmt"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Watching returns a Server.Watch that follows the informers of a cache.
func Watching(informers cache.Informers) func(context.Context, *Feed) error {
	return func(ctx context.Context, feed *Feed) error {
		leases := toolscache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(o any, isInInitialList bool) {
				if lease := o.(*v1alpha1.IPLease); isInInitialList {
					feed.Present(lease)
				} else {
					feed.Lease(nil, lease, time.Now())
				}
			},
			UpdateFunc: func(was, is any) { feed.Lease(was.(*v1alpha1.IPLease), is.(*v1alpha1.IPLease), time.Now()) },
			DeleteFunc: func(o any) {
				if lease, ok := last(o).(*v1alpha1.IPLease); ok {
					feed.Lease(lease, nil, time.Now())
				}
			},
		}
		pools := toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { feed.Pool(o.(*v1alpha1.IPPool)) },
			UpdateFunc: func(_, o any) { feed.Pool(o.(*v1alpha1.IPPool)) },
			DeleteFunc: func(o any) {
				if pool, ok := last(o).(*v1alpha1.IPPool); ok {
					feed.PoolGone(pool.Name)
				}
			},
		}
		for object, handler := range map[client.Object]toolscache.ResourceEventHandler{&v1alpha1.IPLease{}: leases, &v1alpha1.IPPool{}: pools} {
			informer, err := informers.GetInformer(ctx, object)
			if err == nil {
				_, err = informer.AddEventHandler(handler)
			}
			if err != nil {
				return fmt.Errorf("watch %T: %w", object, err)
			}
		}
		return nil
	}
}

// last returns the last known state of a deleted object.
func last(o any) any {
	if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return o
}
