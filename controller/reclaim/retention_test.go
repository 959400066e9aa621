// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/test/check"
)

func TestRetentionEnds(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	since := now.Add(-time.Hour)
	never := time.Time{}
	forever := &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainForever}
	for48h := lasting(48 * time.Hour)
	set := owner.Ref{Group: "apps", Kind: "StatefulSet", Namespace: "default", Name: "web"}
	gone := of(owner.View{Ref: set})
	scale := func(replicas int32) of {
		return of(owner.View{Ref: set, Exists: true, Ordinals: owner.Ordinals{Replicas: replicas}})
	}
	machine := func(m owner.Machine) of {
		return of(owner.View{Ref: owner.Ref{Kind: "VirtualMachine", Namespace: "default", Name: "web"}, Exists: true, Machine: &m})
	}
	unknown := of(owner.View{Ref: set, Unknown: "no right to get it"})
	stopped := machine(owner.Machine{RunStrategy: "Halted"})
	none := &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainNone}

	for _, row := range []struct {
		name  string
		pod   string
		lease *v1alpha1.LeaseRetention
		owner of
		asked *v1alpha1.LeaseRetention
		limit time.Duration
		want  time.Time
	}{
		// The default: while the StatefulSet owns the name.
		{"kept for the last ordinal", "web-2", nil, scale(3), nil, 0, never},
		{"ends for the ordinal that was scaled in", "web-3", nil, scale(3), nil, 0, now},

		{"ends when the StatefulSet is gone", "web-0", nil, gone, nil, 0, now},
		{"the policy WhileOwned is the same", "web-0", &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainWhileOwned}, gone, nil, 0, now},
		{"a StatefulSet that could not be read ends nothing", "web-9", nil, of{}, nil, 0, never},
		{"a name without ordinal ends nothing", "web-x", nil, scale(1), nil, 0, never},

		{"the policy None ends nothing that the StatefulSet wants: the next pod of the name leaves it", "web-0", &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainNone}, scale(1), nil, 0, never},

		// While the StatefulSet exists its template decides.
		{"the template's forever keeps what was scaled in", "web-9", nil, scale(1), forever, 0, never},
		{"the template's forever was taken away", "web-9", forever, scale(1), nil, 0, now},
		{"the template's duration counts from the pod's end", "web-9", nil, scale(1), for48h, 0, since.Add(48 * time.Hour)},
		{"the template's duration was changed", "web-9", for48h, scale(1), lasting(time.Hour), 0, now},
		{"no duration ends what the StatefulSet wants", "web-0", nil, scale(1), lasting(0), 0, never},
		{"a duration of 0 ends what was scaled in at once", "web-9", nil, scale(1), lasting(0), 0, since},

		// A virtual machine that is stopped keeps its address, unless its template says something else.
		{"kept while the machine runs", "vm-x", nil, machine(owner.Machine{HasInstance: true}), nil, 0, never},
		{"kept while the machine is stopped", "vm-x", nil, stopped, nil, 0, never},
		{"the duration of a stopped machine counts from its pod's end", "vm-x", nil, stopped, for48h, 0, since.Add(48 * time.Hour)},
		{"the policy None ends with the stop of the machine", "vm-x", nil, stopped, none, 0, now},
		{"no duration ends while the machine restarts", "vm-x", nil, machine(owner.Machine{RunStrategy: "Always"}), lasting(0), 0, never},
		{"ends when the machine is gone", "vm-x", nil, gone, nil, 0, now},
		{"the lease's duration outlives the machine", "vm-x", for48h, gone, nil, 0, since.Add(48 * time.Hour)},
		{"the pool's limit caps a stopped machine", "vm-x", nil, stopped, nil, 2 * time.Hour, since.Add(2 * time.Hour)},

		{"an owner without a right to read it ends nothing", "web-9", lasting(0), unknown, nil, 0, never},

		// Without a StatefulSet the lease decides.
		{"the lease's forever", "web-0", forever, gone, nil, 0, never},
		{"the lease's duration", "web-0", for48h, gone, nil, 0, since.Add(48 * time.Hour)},
		{"the lease's duration is over", "web-0", lasting(time.Minute), gone, nil, 0, since.Add(time.Minute)},
		{"a lease that records that nothing is kept", "web-0", &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainNone}, gone, nil, 0, now},
		{"a lease that names no duration ends nothing", "web-0", &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainFor}, gone, nil, 0, never},

		// The pool caps.
		{"the pool's limit caps forever", "web-0", forever, gone, nil, 2 * time.Hour, since.Add(2 * time.Hour)},
		{"the pool's limit caps what the StatefulSet wants", "web-0", nil, scale(1), nil, 2 * time.Hour, since.Add(2 * time.Hour)},
		{"the pool's limit caps a longer duration", "web-0", for48h, gone, nil, 2 * time.Hour, since.Add(2 * time.Hour)},
		{"the pool's limit does not prolong a duration", "web-0", for48h, gone, nil, 72 * time.Hour, since.Add(48 * time.Hour)},
	} {
		t.Run(row.name, func(t *testing.T) {
			spec := &v1alpha1.IPLeaseSpec{
				State: v1alpha1.StateRetained, Since: metav1.NewTime(since), Retention: row.lease,
				Holder: &v1alpha1.Holder{Namespace: "default", Pod: row.pod, OwnerKind: "StatefulSet", OwnerName: "web"},
			}
			end := endOfRetention(spec, Owner{Need: owner.View(row.owner).Need(row.pod), Asked: row.asked}, row.limit, now)
			check.That(t, end.At.Equal(row.want), "ends %v (%s), want %v", end.At, end.Why, row.want)
			check.That(t, end.Why != "", "it says no why")
		})
	}
}

// of is the view of a row's owner.
type of owner.View

func TestATemplateThatCannotBeReadEndsNothing(t *testing.T) {
	spec := &v1alpha1.IPLeaseSpec{State: v1alpha1.StateRetained, Holder: &v1alpha1.Holder{Namespace: "default", Pod: "web-9"}}
	o := Owner{Need: owner.Need{Standing: owner.Unwanted, Why: "scaled in"}, Unreadable: "annotation x is y"}
	end := endOfRetention(spec, o, 0, time.Now())
	check.That(t, end.At.IsZero() && end.Why == o.Unreadable, "ends %v (%s)", end.At, end.Why)
}

func lasting(d time.Duration) *v1alpha1.LeaseRetention {
	return &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainFor, Duration: &metav1.Duration{Duration: d}}
}
