package reclaim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

func TestQuarantineKeepsWhatIsNeededLater(t *testing.T) {
	old := facts().Lease.Spec
	old.Message = "pool blue does not exist"
	before := *old.DeepCopy()

	got := quarantined(old, v1alpha1.ReasonPodTerminating, "n2", noon())

	if diff := cmp.Diff(before, old); diff != "" {
		t.Errorf("the old spec was changed:\n%s", diff)
	}
	want := before
	want.State, want.Reason, want.Since = v1alpha1.StateQuarantined, v1alpha1.ReasonPodTerminating, metav1.NewTime(noon())
	want.NodeName = "n2"
	want.Session = ""
	want.Message = ""
	want.Previous = &v1alpha1.PreviousHolder{
		Node: "n1", Session: "node-uid/boot-id", PodUID: holderUID, MAC: "02:00:00:00:00:0a", Guarded: true,
		Reason: v1alpha1.ReasonPodTerminating, Since: metav1.NewTime(noon()),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("quarantined (-want +got):\n%s", diff)
	}
}

func TestQuarantineForAnotherReasonKeepsThePreviousHolder(t *testing.T) {
	first := quarantined(facts().Lease.Spec, v1alpha1.ReasonPodGone, "n2", ago(time.Minute))
	second := quarantined(first, v1alpha1.ReasonNodeGone, "n3", noon())

	if second.Previous.Node != "n1" || second.Previous.PodUID != holderUID {
		t.Errorf("the previous holder was lost: %+v", second.Previous)
	}
	if second.Previous.Reason != v1alpha1.ReasonNodeGone || second.NodeName != "n3" {
		t.Errorf("reason %s at %s, want NodeGone at n3", second.Previous.Reason, second.NodeName)
	}
}

func TestQuarantineWithoutAVerifierStaysWithTheNode(t *testing.T) {
	if got := quarantined(facts().Lease.Spec, v1alpha1.ReasonPodGone, "", noon()).NodeName; got != "n1" {
		t.Errorf("node %q, want n1", got)
	}
}

func TestReassignmentForgetsTheAnswer(t *testing.T) {
	spec := quarantined(facts().Lease.Spec, v1alpha1.ReasonPodGone, "n2", noon())
	spec.Message = "hears nobody"
	if got := reassigned(spec, "n3"); got.Message != "" || got.NodeName != "n3" {
		t.Errorf("node %q, message %q", got.NodeName, got.Message)
	}
}
