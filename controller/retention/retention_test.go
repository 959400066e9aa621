// SPDX-License-Identifier: Apache-2.0

package retention_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/retention"
)

func TestRetentionEnds(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	since := now.Add(-time.Hour)
	never := time.Time{}
	forever := &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainForever}
	for48h := lasting(48 * time.Hour)
	gone := retention.Owner{Known: true}
	scale := func(start, replicas int32) retention.Owner {
		return retention.Owner{Known: true, Exists: true, Start: start, Replicas: replicas}
	}
	asking := func(asked *v1alpha1.LeaseRetention, owner retention.Owner) retention.Owner {
		owner.Asked = asked
		return owner
	}

	for _, row := range []struct {
		name  string
		pod   string
		lease *v1alpha1.LeaseRetention
		owner retention.Owner
		limit time.Duration
		want  time.Time
	}{
		// The default: while the StatefulSet owns the name.
		{"kept for the last ordinal", "web-2", nil, scale(0, 3), 0, never},
		{"ends for the ordinal that was scaled in", "web-3", nil, scale(0, 3), 0, now},
		{"kept for the first ordinal of a shifted start", "web-5", nil, scale(5, 2), 0, never},
		{"ends below the start", "web-4", nil, scale(5, 2), 0, now},
		{"ends behind a shifted start", "web-7", nil, scale(5, 2), 0, now},
		{"ends with no replicas", "web-0", nil, scale(0, 0), 0, now},
		{"start + replicas beyond 32 bits", "web-2147483646", nil, scale(2147483646, 2147483647), 0, never},
		{"ends when the StatefulSet is gone", "web-0", nil, gone, 0, now},
		{"the policy WhileOwned is the same", "web-0", &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainWhileOwned}, gone, 0, now},
		{"a StatefulSet that could not be read ends nothing", "web-9", nil, retention.Owner{}, 0, never},
		{"a name without ordinal ends nothing", "web-x", nil, scale(0, 1), 0, never},

		{"the policy None ends nothing that the StatefulSet wants: the next pod of the name leaves it", "web-0", &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainNone}, scale(0, 1), 0, never},

		// While the StatefulSet exists its template decides.
		{"the template's forever keeps what was scaled in", "web-9", nil, asking(forever, scale(0, 1)), 0, never},
		{"the template's forever was taken away", "web-9", forever, scale(0, 1), 0, now},
		{"the template's duration counts from the pod's end", "web-9", nil, asking(for48h, scale(0, 1)), 0, since.Add(48 * time.Hour)},
		{"the template's duration was changed", "web-9", for48h, asking(lasting(time.Hour), scale(0, 1)), 0, now},
		{"no duration ends what the StatefulSet wants", "web-0", nil, asking(lasting(0), scale(0, 1)), 0, never},
		{"a duration of 0 ends what was scaled in at once", "web-9", nil, asking(lasting(0), scale(0, 1)), 0, since},
		{"a template that cannot be read ends nothing", "web-9", nil,
			retention.Owner{Known: true, Exists: true, Replicas: 1, Unreadable: "annotation x is y"}, 0, never},

		// Without a StatefulSet the lease decides.
		{"the lease's forever", "web-0", forever, gone, 0, never},
		{"the lease's duration", "web-0", for48h, gone, 0, since.Add(48 * time.Hour)},
		{"the lease's duration is over", "web-0", lasting(time.Minute), gone, 0, since.Add(time.Minute)},
		{"a lease that records that nothing is kept", "web-0", &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainNone}, gone, 0, now},
		{"a lease that names no duration ends nothing", "web-0", &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainFor}, gone, 0, never},

		// The pool caps.
		{"the pool's limit caps forever", "web-0", forever, gone, 2 * time.Hour, since.Add(2 * time.Hour)},
		{"the pool's limit caps what the StatefulSet wants", "web-0", nil, scale(0, 1), 2 * time.Hour, since.Add(2 * time.Hour)},
		{"the pool's limit caps a longer duration", "web-0", for48h, gone, 2 * time.Hour, since.Add(2 * time.Hour)},
		{"the pool's limit does not prolong a duration", "web-0", for48h, gone, 72 * time.Hour, since.Add(48 * time.Hour)},
	} {
		t.Run(row.name, func(t *testing.T) {
			spec := &v1alpha1.IPLeaseSpec{
				State:     v1alpha1.StateRetained,
				Since:     metav1.NewTime(since),
				Holder:    &v1alpha1.Holder{Namespace: "default", Pod: row.pod, OwnerKind: "StatefulSet", OwnerName: "web"},
				Retention: row.lease,
			}
			end := retention.Of(spec, row.owner, row.limit, now)
			if !end.At.Equal(row.want) {
				t.Errorf("ends %v (%s), want %v", end.At, end.Why, row.want)
			}
			if end.Why == "" {
				t.Error("it says no why")
			}
		})
	}
}

func lasting(d time.Duration) *v1alpha1.LeaseRetention {
	return &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainFor, Duration: &metav1.Duration{Duration: d}}
}

func TestOrdinalOfAPodName(t *testing.T) {
	for _, row := range []struct {
		pod, set string
		want     int64
		ok       bool
	}{
		{"web-0", "web", 0, true},
		{"web-12", "web", 12, true},
		{"web-1-3", "web-1", 3, true},
		{"web-1-3", "web", 0, false},
		{"web-01", "web", 0, false},
		{"web--1", "web", 0, false},
		{"web", "web", 0, false},
		{"api-1", "web", 0, false},
	} {
		if got, ok := retention.Ordinal(row.pod, row.set); got != row.want || ok != row.ok {
			t.Errorf("Ordinal(%q, %q) = %d, %v, want %d, %v", row.pod, row.set, got, ok, row.want, row.ok)
		}
	}
}
