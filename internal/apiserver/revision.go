// SPDX-License-Identifier: Apache-2.0

// Package apiserver tells how far the answers of the API server can be trusted: its time, the revision of
// its store, and the age of a read. A store that was restored from a backup goes back, and gives out
// revisions a second time.
package apiserver

import (
	"context"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Revision returns the store's revision. The reader reads past any cache.
func Revision(ctx context.Context, reader client.Reader) (uint64, error) {
	pools := &v1alpha1.IPPoolList{}
	if err := reader.List(ctx, pools, client.Limit(1)); err != nil {
		return 0, fmt.Errorf("read the revision of the store: %w", err)
	}
	live, err := strconv.ParseUint(pools.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the revision of the store: resourceVersion %q: %w", pools.ResourceVersion, err)
	}
	return live, nil
}

// RevisionOf returns the revision of an object's last write, or 0 if the object has none.
func RevisionOf(o client.Object) uint64 {
	n, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// GreatestRevision fills the lists with the reader, and returns the greatest revision of their objects.
func GreatestRevision(ctx context.Context, reader client.Reader, lists ...client.ObjectList) (uint64, error) {
	var greatest uint64
	for _, list := range lists {
		if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return 0, fmt.Errorf("find the greatest revision: %w", err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			if object, ok := o.(client.Object); ok {
				greatest = max(greatest, RevisionOf(object))
			}
			return nil
		})
		if err != nil {
			return 0, fmt.Errorf("find the greatest revision: %w", err)
		}
	}
	return greatest, nil
}

// WentBackError reports that the store has lost writes that were read from it.
type WentBackError struct{ Known, Live uint64 }

func (e *WentBackError) Error() string {
	return fmt.Sprintf("the store went back: it is at revision %d, and %d was read from it before; "+
		"was a backup restored without --bump-revision?", e.Live, e.Known)
}
