// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// indexes holds the indexes of the controller's cache by type and name. A list that asks for the key of
// an index reads all objects of its type, and keeps those with the key. So the controller's own
// functions work without its cache.
type indexes map[string]client.IndexerFunc

func indexName(o any, field string) string { return fmt.Sprintf("%T.%s", o, field) }

// IndexField implements client.FieldIndexer.
func (i indexes) IndexField(_ context.Context, o client.Object, field string, keys client.IndexerFunc) error {
	if !strings.HasPrefix(field, "spec.") { // the API server has these
		i[indexName(o, field)] = keys
	}
	return nil
}

// List reads a whole list in pages. It implements client.Reader also for the keys of indexes.
func (c *Cluster) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	keep := c.filter(list, &o)
	read := pager.New(func(_ context.Context, at metav1.ListOptions) (runtime.Object, error) {
		part := reflect.New(reflect.TypeOf(list).Elem()).Interface().(client.ObjectList)
		part.GetObjectKind().SetGroupVersionKind(list.GetObjectKind().GroupVersionKind()) // of lists of metadata
		o.Limit, o.Continue = at.Limit, at.Continue
		return part, c.Client.List(ctx, part, &o)
	})
	var all []runtime.Object
	err := read.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		if keep(item.(client.Object)) {
			all = append(all, item)
		}
		return nil
	})
	if err != nil {
		return advised(err)
	}
	return meta.SetList(list, all)
}

// filter removes the keys of indexes from the options, and returns their condition instead.
func (c *Cluster) filter(list client.ObjectList, o *client.ListOptions) (keep func(client.Object) bool) {
	keep = func(client.Object) bool { return true }
	if o.FieldSelector == nil {
		return keep
	}
	items, _ := reflect.TypeOf(list).Elem().FieldByName("Items")
	item := reflect.New(items.Type.Elem()).Interface()
	for _, r := range o.FieldSelector.Requirements() {
		keys, ok := c.indexes[indexName(item, r.Field)]
		if !ok {
			return keep // the API server has this field
		}
		narrower := keep
		keep = func(o client.Object) bool { return narrower(o) && slices.Contains(keys(o), r.Value) }
	}
	o.FieldSelector = nil
	return keep
}
