// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"context"
	"fmt"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// withinLimits returns the family without the pools whose maxPerNamespace is reached.
func (s *search) withinLimits(ctx context.Context) (ipam.Family, error) {
	return s.family.Without(func(c ipam.Candidate) (*ipam.Rejection, error) {
		limit := c.Pool.Spec.MaxPerNamespace
		if limit == nil {
			return nil, nil
		}
		leases, err := s.a.Leases.InNamespace(ctx, c.Pool.Name, s.d.Holder.Namespace)
		if err != nil || int64(len(leases)) < *limit {
			return nil, err
		}
		return &ipam.Rejection{Pool: c.Pool.Name, Reason: ipam.NamespaceFull, Detail: limitText(s.d.Holder.Namespace, *limit)}, nil
	})
}

// confirmLimit counts the addresses of the namespace again, with the lease that this ADD has just
// written. Of the ADDs that raced, those with the newest tokens give way.
func (s *search) confirmLimit(ctx context.Context, pool *v1alpha1.IPPool, l *v1alpha1.IPLease) outcome {
	limit := pool.Spec.MaxPerNamespace
	if limit == nil {
		return outcome{}
	}
	leases, err := s.a.Leases.InNamespace(ctx, pool.Name, s.d.Holder.Namespace)
	if err != nil || olderThan(l, leases) < *limit {
		return ends(err)
	}
	return outcome{poolRejected, refusal.New(refusal.NoPool, "no address of pool %s for pod %s/%s: %s",
		pool.Name, s.d.Holder.Namespace, s.d.Holder.Pod, limitText(s.d.Holder.Namespace, *limit))}
}

// olderThan counts the leases that a holder got before the holder of a Bound lease got this one. The
// token orders them: it is the version of the write that gave the address. A lease without a record
// of its token counts as older.
func olderThan(l *v1alpha1.IPLease, leases []v1alpha1.IPLease) int64 {
	mine, n := l.LastToken(), int64(0)
	for i := range leases {
		if other := &leases[i]; other.Name != l.Name && tokenOfHolder(other) < mine {
			n++
		}
	}
	return n
}

// tokenOfHolder is the token of the holder, also if the lease names a predecessor.
func tokenOfHolder(l *v1alpha1.IPLease) uint64 {
	held := *l
	held.Spec.Previous = nil
	return held.LastToken()
}

func limitText(namespace string, limit int64) string {
	return fmt.Sprintf("namespace %s has its %d addresses of the pool (maxPerNamespace), with those that are Retained or Quarantined", namespace, limit)
}
