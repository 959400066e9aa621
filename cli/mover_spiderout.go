// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/movein"
)

// recordInSpiderpool makes the SpiderIPPools of a move out, and gives the pods that leave their records. The record of a
// SpiderIPPool comes first: of a pod that ends meanwhile, Spiderpool frees it with or without a SpiderEndpoint.
func (m *mover) recordInSpiderpool(ctx context.Context, leave []v1alpha1.MoveRecord) error {
	for _, pool := range m.becoming {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			if err := m.still(ctx); err != nil {
				return err
			}
			o, err := m.makeSpiderIPPool(ctx, pool)
			if err != nil {
				return err
			}
			return m.allocateInSpiderpool(ctx, o, pool)
		})
		if err != nil {
			return fmt.Errorf("make SpiderIPPool %s with its records: %w", pool.Name, err)
		}
	}
	for _, e := range m.facts.SpiderEndpoints(m.move, leave) {
		if err := retry.RetryOnConflict(retry.DefaultRetry, func() error { return m.makeSpiderEndpoint(ctx, e) }); err != nil {
			return fmt.Errorf("make SpiderEndpoint %s: %w", e.Pod, err)
		}
	}
	return nil
}

// tryInSpiderpool asks Spiderpool whether it takes the SpiderIPPools of a move out, before anything is written.
func (m *mover) tryInSpiderpool(ctx context.Context) (err error) {
	for _, pool := range m.becoming {
		o, refused := m.makeSpiderIPPool(ctx, pool, metav1.DryRunAll)
		if refused == nil {
			refused = pool.Differs(o.Object)
		}
		if refused != nil {
			err = errors.Join(err, fmt.Errorf("spiderpool takes no SpiderIPPool %s, so nothing was changed: %w", pool.Name, refused))
		}
	}
	return err
}

// makeSpiderIPPool makes a SpiderIPPool, or has one that a network has left behind give the addresses of ours. dry has
// metav1.DryRunAll, or nothing.
func (m *mover) makeSpiderIPPool(ctx context.Context, pool movein.SpiderIPPool, dry ...string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(spiderpool.WithKind("SpiderIPPool"))
	o.SetName(pool.Name)
	err := m.c.Get(ctx, client.ObjectKeyFromObject(o), o)
	o.Object["spec"] = pool.Spec
	switch {
	case apierrors.IsNotFound(err):
		return o, m.c.Create(ctx, o, &client.CreateOptions{DryRun: dry})
	case err != nil:
		return nil, err
	}
	return o, m.c.Update(ctx, o, &client.UpdateOptions{DryRun: dry})
}

// allocateInSpiderpool adds records to a SpiderIPPool. One of another pod stays.
func (m *mover) allocateInSpiderpool(ctx context.Context, o *unstructured.Unstructured, pool movein.SpiderIPPool) error {
	text, _, _ := unstructured.NestedString(o.Object, "status", "allocatedIPs")
	all := map[string]movein.SpiderRecord{}
	if text != "" {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return fmt.Errorf("read status.allocatedIPs: %w", err)
		}
	}
	isWhole := true
	for address, record := range pool.Records {
		if _, exists := all[address]; !exists {
			all[address], isWhole = record, false
		}
	}
	if isWhole {
		return nil
	}
	records, err := json.Marshal(all)
	if err != nil {
		return err
	}
	o.Object["status"] = map[string]any{"allocatedIPs": string(records), "allocatedIPCount": int64(len(all)), "totalIPCount": pool.Total}
	return m.c.Status().Update(ctx, o)
}

// makeSpiderEndpoint adds interfaces to the SpiderEndpoint of a pod. That of a StatefulSet's pod outlives the pod, for the
// next one of its name, and others end with their pods. Spiderpool removes the finalizer once it has freed the addresses.
func (m *mover) makeSpiderEndpoint(ctx context.Context, e movein.SpiderEndpoint) error {
	if err := m.still(ctx); err != nil {
		return err
	}
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(spiderpool.WithKind("SpiderEndpoint"))
	o.SetNamespace(e.Pod.Namespace)
	o.SetName(e.Pod.Name)
	err := m.c.Get(ctx, client.ObjectKeyFromObject(o), o)
	isNew := apierrors.IsNotFound(err)
	if err != nil && !isNew {
		return err
	}
	if isNew {
		o.SetFinalizers([]string{spiderpool.Group})
		if !e.Pod.IsStateful {
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: e.Pod.Name, UID: types.UID(e.Pod.UID)}})
		}
		o.Object["status"] = map[string]any{
			"current":             map[string]any{"uid": e.Pod.UID, "node": e.Pod.Node, "ips": []any{}},
			"ownerControllerType": e.Pod.OwnerKind, "ownerControllerName": e.Pod.OwnerName,
		}
	}
	if uid, _, _ := unstructured.NestedString(o.Object, "status", "current", "uid"); uid != e.Pod.UID {
		return fmt.Errorf("it is of an earlier pod: repeat the command once a scan of Spiderpool has freed it")
	}
	old, _, err := unstructured.NestedSlice(o.Object, "status", "current", "ips")
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedSlice(o.Object, e.With(old), "status", "current", "ips"); err != nil {
		return err
	}
	if isNew {
		return m.c.Create(ctx, o)
	}
	return m.c.Update(ctx, o)
}
