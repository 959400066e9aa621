package holder

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// configHash is the UID of a static pod's life.
const configHash = "0f343b0931126a20f133d67c2b018a3b"

// mirror makes a pod the mirror of a static pod.
func mirror(p *corev1.Pod) {
	p.Annotations = map[string]string{
		annotationConfigHash: configHash, corev1.MirrorPodAnnotationKey: configHash,
	}
}

// static makes a static pod's mirror and returns the ADD for its sandbox.
func (r *rig) static(mirrorUID string) agentapi.AddRequest {
	web := r.pod("web", mirrorUID, mirror)
	web.Pod.UID = configHash
	return web
}

func TestAStaticPodIsKnownByItsConfigHash(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.static("mirror-1")
	r.add(web)
	if l := r.lease("10.0.0.2", v1alpha1.StateBound); l.Spec.Holder.PodUID != configHash {
		t.Errorf("the lease is of pod UID %s", l.Spec.Holder.PodUID)
	}
	if e, _ := r.Journal.Get(web.ContainerID, web.Interface); e.PodUID != configHash {
		t.Errorf("the journal says pod UID %s", e.PodUID)
	}
}

func TestAStaticPodGoesOnWhenItsMirrorIsMadeAgain(t *testing.T) {
	for name, happen := range map[string]func(*rig){
		"its lease is there": func(*rig) {},
		"its lease is lost":  func(r *rig) { r.api.drop(held("10.0.0.2")) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, v4("10.0.0.2"))
			web := r.static("mirror-1")
			r.add(web)
			r.static("mirror-2")
			happen(r)
			r.restart()
			r.settle()
			if !r.speaks(web, "10.0.0.2") {
				t.Error("the static pod is mute")
			}
			r.holdsWhatTheJournalSays(web)
			if l := r.lease("10.0.0.2", v1alpha1.StateBound); l.Spec.Holder.PodUID != configHash {
				t.Errorf("the lease is of pod UID %s", l.Spec.Holder.PodUID)
			}
		})
	}
}

// lost lets a pod of this node lose its address, and returns the warnings that
// it got for it.
func (r *rig) lost(web agentapi.AddRequest) string {
	r.t.Helper()
	r.add(web)
	r.replace(held("10.0.0.2", quarantined(v1alpha1.ReasonPodGone)))
	r.settle()
	var said strings.Builder
	for len(r.events.Events) > 0 {
		said.WriteString(<-r.events.Events + "\n")
	}
	return said.String()
}

func TestAStaticPodThatLostItsAddressIsFencedAndPeopleAreTold(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.static("mirror-1")
	said := r.lost(web)
	if len(r.kernel.speakers(key("10.0.0.2"))) != 0 {
		t.Error("the static pod may speak for an address that it lost")
	}
	if !strings.Contains(said, "static pod") || strings.Contains(said, "fenced and deleted") {
		t.Errorf("said %q", said)
	}
	if r.calls("delete") != 0 {
		t.Error("the mirror pod was deleted, which does not end a static pod")
	}
}

// The annotation alone is anybody's to write: it makes no static pod.
func TestAPodThatCallsItselfStaticIsDeletedAsAnyOther(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1", func(p *corev1.Pod) { p.Annotations = map[string]string{annotationConfigHash: configHash} })
	if said := r.lost(web); !strings.Contains(said, "fenced and deleted") {
		t.Errorf("said %q", said)
	}
	if err := r.Reader.Get(t.Context(), clientObjectKey("web"), &corev1.Pod{}); err == nil {
		t.Error("the mute pod stays")
	}
}

func TestThePodThatCameAfterALoserIsNotDeleted(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	r.add(web)
	e, address, _ := r.Holder(key("10.0.0.2"))
	r.pod("web", "u2")
	if err := r.deletePod(t.Context(), &e, address); err != nil {
		t.Error(err)
	}
	next := &corev1.Pod{}
	if err := r.Reader.Get(t.Context(), clientObjectKey("web"), next); err != nil || next.UID != types.UID("u2") {
		t.Errorf("the next pod of that name: %v, %v", next.UID, err)
	}
}
