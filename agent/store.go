package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/apis/revision"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// watchStore ends the agent when the API server's store went back: its caches
// are of a time that never was, and the next agent asks for every lease (R7).
func (a *agent) watchStore(outages *revision.Outages) *revision.Watch {
	return &revision.Watch{
		Reader: a.mgr.GetAPIReader(), Outages: outages, Live: a.storeIsAt,
		Cached: func(ctx context.Context) (uint64, error) {
			return revision.Greatest(ctx, a.mgr.GetClient(), &v1alpha1.IPLeaseList{}, &v1alpha1.IPPoolList{}, &corev1.PodList{})
		},
		Clock: clock.RealClock{}, Log: a.log,
	}
}

// storeIsAt tells people of holders whose tokens are ahead of the store, once.
func (a *agent) storeIsAt(live uint64) {
	ahead := 0
	for e := range a.holders.Bound() {
		for _, address := range e.Addresses {
			if address.Token > live {
				ahead++
			}
		}
	}
	a.counters.TokensAhead(ahead)
	switch {
	case ahead > 0 && a.wentBack:
		return
	case ahead == 0 && a.wentBack:
		a.holders.LookAgain() // their leases can be written anew
	}
	if a.wentBack = ahead > 0; !a.wentBack {
		return
	}
	a.log.Error(nil, "the store went back: addresses held here have tokens that it has not reached", "addresses", ahead, "revision", live)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.node}}
	node.APIVersion, node.Kind = "v1", "Node"
	a.events.Eventf(node, nil, corev1.EventTypeWarning, string(v1alpha1.ReasonStoreWentBack), "Watch",
		"the API server's store is at revision %d, behind the tokens of %d addresses held here: they keep their pods and cannot be taken by force; was a backup restored without --bump-revision?",
		live, ahead)
}
