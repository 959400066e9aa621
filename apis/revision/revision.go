// Package revision compares how far the API server's store has come with what
// was read from it before. A store that was restored from a backup goes back,
// and hands out a second time what it has handed out already.
package revision

import (
	"context"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Live returns how far the store has come. The reader reads past any cache.
func Live(ctx context.Context, reader client.Reader) (uint64, error) {
	pools := &v1alpha1.IPPoolList{}
	if err := reader.List(ctx, pools, client.Limit(1)); err != nil {
		return 0, fmt.Errorf("ask how far the store has come: %w", err)
	}
	live, err := strconv.ParseUint(pools.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("ask how far the store has come: resourceVersion %q: %w", pools.ResourceVersion, err)
	}
	return live, nil
}

// Of returns the revision of the write that an object is as read; 0 where it tells none.
func Of(o client.Object) uint64 {
	n, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Greatest returns the greatest revision among the objects of some lists, which
// the reader fills.
func Greatest(ctx context.Context, reader client.Reader, lists ...client.ObjectList) (uint64, error) {
	var greatest uint64
	for _, list := range lists {
		if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return 0, fmt.Errorf("look for the greatest revision: %w", err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			if object, ok := o.(client.Object); ok {
				greatest = max(greatest, Of(object))
			}
			return nil
		})
		if err != nil {
			return 0, fmt.Errorf("look for the greatest revision: %w", err)
		}
	}
	return greatest, nil
}

// WentBackError says that the store does not know any more what was read from it.
type WentBackError struct{ Known, Live uint64 }

func (e *WentBackError) Error() string {
	return fmt.Sprintf("the store went back: it is at revision %d, and %d was read from it before; "+
		"was a backup restored without --bump-revision?", e.Live, e.Known)
}
