// SPDX-License-Identifier: Apache-2.0

package defence

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
)

// Once a split network is healed, the pod that has the turn may become a backup, and the other one, which never
// ceased to be the master, does not announce the address again. So the agent looks whether the pod with the turn
// still has the address on an interface. If not, the turn passes to a pod that has.

// lookPause is the time between two looks.
const lookPause = time.Second

// look records the pods with a turn that do not have the address any more, or have it again. speaks: a pod has a turn.
func (ref *referee) look(ctx context.Context) (speaks bool, err error) {
	ref.s.mu.Lock()
	turns := map[bpf.Key]*turn{}
	for key, v := range ref.s.heard {
		if v.turn != nil {
			turns[key] = v.turn
		}
	}
	ref.s.mu.Unlock()
	var errs []error
	for key, t := range turns {
		_, has, err := ref.s.Configured(t.e, key.Addr)
		if err != nil {
			continue // the pod ends
		}
		t.had = t.had || has
		if idle := t.had && !has; idle != t.Idle {
			errs = append(errs, ref.setIdle(ctx, key, t, idle))
		}
	}
	return len(turns) > 0, errors.Join(errs...)
}

// setIdle records whether the pod with a turn has the address, unless another pod is on record.
func (ref *referee) setIdle(ctx context.Context, key bpf.Key, t *turn, idle bool) error {
	ref.s.mu.Lock()
	name := ""
	if v := ref.s.heard[key]; v != nil {
		name = v.by.Name
	}
	ref.s.mu.Unlock()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		r := &v1alpha1.ReservedIP{}
		if err := ref.s.Live.Get(ctx, client.ObjectKey{Name: name}, r); err != nil {
			return client.IgnoreNotFound(err)
		}
		for i := range r.Status.Speakers {
			if on := &r.Status.Speakers[i]; on.Address == t.Address && on.Token == t.Token {
				on.Idle = idle
				return ref.s.Client.Status().Update(ctx, r)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("record on ReservedIP %s that pod %s has %s no more: %w", name, t.Pod, key.Addr, err)
	}
	t.Idle = idle
	return nil
}

// fill lets a pod of this node that has an address wish for the turn of one that does not.
func (ref *referee) fill(key bpf.Key, v *virtual, on v1alpha1.Speaker) {
	for _, e := range v.pods {
		mac, has, err := ref.s.Configured(e, key.Addr)
		if err != nil || !has || e.PodName == on.Pod && ref.s.Node == on.Node {
			continue
		}
		if !v.mayBe(e, mac, key.Addr) {
			mac, _ = net.ParseMAC(e.MAC)
		}
		ref.s.mu.Lock()
		if h := ref.s.heard[key]; h != nil && h.wish == nil {
			h.wish = &wish{e: e, mac: mac.String(), at: ref.s.Clock.Now(), fills: true}
			ref.asked.Up()
		}
		ref.s.mu.Unlock()
	}
}
