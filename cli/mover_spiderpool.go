// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/cli/movein"
)

// spiderpool is the API of Spiderpool.
var spiderpool = schema.GroupVersion{Group: "spiderpool.spidernet.io", Version: "v2beta1"}

// readSpiderpool reads what Spiderpool has in the cluster.
func readSpiderpool(ctx context.Context, c *cluster.Cluster) (s movein.Spiderpool, err error) {
	var read [4][]movein.SpiderObject
	for i, kind := range []string{"SpiderIPPool", "SpiderEndpoint", "SpiderReservedIP", "SpiderSubnet"} {
		all, err := listOf(ctx, c, spiderpool.WithKind(kind))
		if err != nil {
			return s, err
		}
		for j := range all.Items {
			var o movein.SpiderObject
			text, err := all.Items[j].MarshalJSON()
			if err == nil {
				err = json.Unmarshal(text, &o)
			}
			if err != nil {
				return s, fmt.Errorf("read %s %s: %w", kind, all.Items[j].GetName(), err)
			}
			read[i] = append(read[i], o)
		}
	}
	return movein.SpiderpoolOf(read[0], read[1], read[2], read[3]), nil
}

// reserve makes the SpiderReservedIPs of the move those of ranges. Spiderpool gives their addresses to nobody.
func (m *mover) reserve(ctx context.Context, ends []netip.Addr) error {
	for _, r := range movein.Reservations(m.network, ends) {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			if err := m.still(ctx); err != nil {
				return err
			}
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(spiderpool.WithKind("SpiderReservedIP"))
			o.SetName(r.Name)
			err := m.c.Get(ctx, client.ObjectKeyFromObject(o), o)
			isGone := apierrors.IsNotFound(err)
			switch {
			case err != nil && !isGone:
				return err
			case len(r.IPs) == 0 && isGone:
				return nil
			case len(r.IPs) == 0:
				return client.IgnoreNotFound(m.c.Delete(ctx, o))
			}
			o.Object["spec"] = map[string]any{"ipVersion": r.Version, "ips": r.IPs}
			if isGone {
				return m.c.Create(ctx, o)
			}
			return m.c.Update(ctx, o)
		})
		if err != nil {
			return fmt.Errorf("reserve addresses by the SpiderReservedIP %s: %w", r.Name, err)
		}
	}
	return nil
}
