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
	later := metav1.NewTime(now.Add(time.Minute))
	never := time.Time{}
	scale := func(start, replicas int32) retention.Owner {
		return retention.Owner{Known: true, Exists: true, Start: start, Replicas: replicas}
	}

	for _, row := range []struct {
		name      string
		pod       string
		retention *v1alpha1.LeaseRetention
		owner     retention.Owner
		limit     time.Duration
		want      time.Time
	}{
		{"without a policy: kept while the ordinal is wanted", "web-2", nil, scale(0, 3), 0, never},
		{"WhileOwned: kept for the last ordinal", "web-2", policy(v1alpha1.RetainWhileOwned, nil), scale(0, 3), 0, never},
		{"WhileOwned: ends for the ordinal that was scaled in", "web-3", policy(v1alpha1.RetainWhileOwned, nil), scale(0, 3), 0, now},
		{"WhileOwned: kept for the first ordinal of a shifted start", "web-5", policy(v1alpha1.RetainWhileOwned, nil), scale(5, 2), 0, never},
		{"WhileOwned: ends below the start", "web-4", policy(v1alpha1.RetainWhileOwned, nil), scale(5, 2), 0, now},
		{"WhileOwned: ends behind a shifted start", "web-7", policy(v1alpha1.RetainWhileOwned, nil), scale(5, 2), 0, now},
		{"WhileOwned: ends with no replicas", "web-0", policy(v1alpha1.RetainWhileOwned, nil), scale(0, 0), 0, now},
		{"WhileOwned: start + replicas beyond 32 bits", "web-2147483646", policy(v1alpha1.RetainWhileOwned, nil), scale(2147483646, 2147483647), 0, never},
		{"WhileOwned: ends when the StatefulSet is gone", "web-0", policy(v1alpha1.RetainWhileOwned, nil), retention.Owner{Known: true}, 0, now},
		{"WhileOwned: a StatefulSet that nobody could read ends nothing", "web-9", policy(v1alpha1.RetainWhileOwned, nil), retention.Owner{}, 0, never},
		{"WhileOwned: a name without ordinal ends nothing", "web-x", policy(v1alpha1.RetainWhileOwned, nil), scale(0, 1), 0, never},
		{"Forever: kept without a StatefulSet", "web-0", policy(v1alpha1.RetainForever, nil), retention.Owner{Known: true}, 0, never},
		{"For: kept until its time", "web-9", policy(v1alpha1.RetainFor, &later), scale(0, 1), 0, later.Time},
		{"For: without a time ends nothing", "web-9", policy(v1alpha1.RetainFor, nil), scale(0, 1), 0, never},
		{"the pool's limit caps Forever", "web-0", policy(v1alpha1.RetainForever, nil), scale(0, 1), 2 * time.Hour, since.Add(2 * time.Hour)},
		{"the pool's limit does not prolong For", "web-0", policy(v1alpha1.RetainFor, &later), scale(0, 1), 48 * time.Hour, later.Time},
	} {
		t.Run(row.name, func(t *testing.T) {
			spec := &v1alpha1.IPLeaseSpec{
				State:     v1alpha1.StateRetained,
				Since:     metav1.NewTime(since),
				Holder:    &v1alpha1.Holder{Namespace: "default", Pod: row.pod, OwnerKind: "StatefulSet", OwnerName: "web"},
				Retention: row.retention,
			}
			if end := retention.Of(spec, row.owner, row.limit, now); !end.At.Equal(row.want) {
				t.Errorf("ends %v (%s), want %v", end.At, end.Why, row.want)
			}
		})
	}
}

func policy(p v1alpha1.RetentionPolicy, until *metav1.Time) *v1alpha1.LeaseRetention {
	return &v1alpha1.LeaseRetention{Policy: p, Until: until}
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
