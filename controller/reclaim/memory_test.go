// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
)

// TestWhoWasSeen: only a holder whose own pod was there can have been deleted;
// of any other it is said that it does not exist.
func TestWhoWasSeen(t *testing.T) {
	holder := func(uid string) *v1alpha1.Holder {
		return &v1alpha1.Holder{Namespace: "default", Pod: "web-0", PodUID: uid}
	}
	type look struct {
		pod    *podview.Pod
		holder *v1alpha1.Holder
	}
	for _, row := range []struct {
		name  string
		looks []look
		want  bool
	}{
		{"a pod that is there", []look{{pod(holderUID), holder(holderUID)}}, true},
		{"a pod that was there", []look{{pod(holderUID), holder(holderUID)}, {nil, holder(holderUID)}}, true},
		{"a pod that was never there", []look{{nil, holder(holderUID)}}, false},
		{"another pod of that name", []look{{pod(otherUID), holder(holderUID)}}, false},
		{"the lease now belongs to another holder", []look{{pod(holderUID), holder(holderUID)}, {nil, holder(otherUID)}}, false},
		{"a record without UID", []look{{pod(""), holder("")}}, false},
		{"a record without holder", []look{{pod(holderUID), nil}}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			n, seen := &note{}, false
			for _, l := range row.looks {
				seen = n.saw(l.pod, l.holder)
			}
			if seen != row.want {
				t.Errorf("seen: %v, want %v", seen, row.want)
			}
		})
	}
}

// TestSinceWhenAPodIsFinished: the first look that found it so tells.
func TestSinceWhenAPodIsFinished(t *testing.T) {
	running, finished := pod(holderUID), pod(holderUID)
	finished.Status.Phase = corev1.PodSucceeded
	n := &note{}
	for i, look := range []struct {
		pod  *podview.Pod
		at   time.Time
		want time.Time
	}{
		{running, ago(9 * time.Second), time.Time{}},
		{finished, ago(8 * time.Second), ago(8 * time.Second)},
		{finished, ago(7 * time.Second), ago(8 * time.Second)},
		{nil, ago(6 * time.Second), time.Time{}},
		{finished, ago(5 * time.Second), ago(5 * time.Second)},
	} {
		if got := n.sawFinished(look.pod, look.at); !got.Equal(look.want) {
			t.Errorf("look %d: since %s, want %s", i, got, look.want)
		}
	}
}
