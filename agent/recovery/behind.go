// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/agent/holder/node"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
)

// errBehind: the source of a live migration still has the address.
var errBehind = errors.New("the source of the migration has the address")

// followTurn resumes an address of a pod that stands behind the holder (R15). gone reports that the
// entry is gone.
func (w *Worker) followTurn(ctx context.Context, e journal.Entry, address journal.Address, l *v1alpha1.IPLease) (gone bool, err error) {
	who := owner.MachinePod(e.PodNamespace, e.PodName, e.PodUID, e.Machine)
	switch lease.TurnOf(&who, w.Node, e.Created, w.Clock.Now(), l) {
	case lease.StayBehind:
		return false, errBehind
	case lease.LoseTurn:
		w.Log.Info("the target of a migration never gets its address", "address", address.Addr, "pod", e.PodNamespace+"/"+e.PodName)
		return true, w.yield(ctx, e, address)
	}
	pod := &corev1.Pod{}
	err = w.Reader.Get(ctx, types.NamespacedName{Namespace: e.PodNamespace, Name: e.PodName}, pod)
	if apierrors.IsNotFound(err) || err == nil && (!node.IsUID(pod, e.PodUID) || pod.DeletionTimestamp != nil) {
		return true, w.releaseAfterNewer(ctx, e)
	}
	if err != nil {
		return false, fmt.Errorf("read pod %s/%s: %w", e.PodNamespace, e.PodName, err)
	}
	return false, w.Holders.TakeTurn(ctx, e, address, l, pod)
}
