// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// configHash is the UID of a static pod's life.
const configHash = "0f343b0931126a20f133d67c2b018a3b"

// mirror makes a pod the mirror of a static pod.
func mirror(p *corev1.Pod) {
	p.Annotations = map[string]string{"kubernetes.io/config.hash": configHash, corev1.MirrorPodAnnotationKey: configHash}
}

// static makes a static pod's mirror and returns the ADD for its sandbox.
func static(r *fakenode.Node, mirrorUID string) agentapi.AddRequest {
	web := r.Pod("web", mirrorUID, mirror)
	web.Pod.UID = configHash
	return web
}

func TestAStaticPodIsKnownByItsConfigHash(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := static(r, "mirror-1")
	r.MustAdd(web)
	l := r.Lease("10.0.0.2", v1alpha1.StateBound)
	check.That(t, l.Spec.Holder.PodUID == configHash, "the lease is of pod UID %s", l.Spec.Holder.PodUID)
	e, _ := r.Journal.Get(web.ContainerID, web.Interface)
	check.That(t, e.PodUID == configHash, "the journal says pod UID %s", e.PodUID)
}

func TestAStaticPodGoesOnWhenItsMirrorIsMadeAgain(t *testing.T) {
	for name, happen := range map[string]func(*fakenode.Node){
		"its lease is there": func(*fakenode.Node) {},
		"its lease is lost":  func(r *fakenode.Node) { r.API.Drop(fakenode.Held("10.0.0.2")) },
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			web := static(r, "mirror-1")
			r.MustAdd(web)
			static(r, "mirror-2")
			happen(r)
			r.Restart()
			r.Settle()
			check.That(t, r.Speaks(web, "10.0.0.2"), "the static pod is mute")
			r.HoldsWhatTheJournalSays(web)
			l := r.Lease("10.0.0.2", v1alpha1.StateBound)
			check.That(t, l.Spec.Holder.PodUID == configHash, "the lease is of pod UID %s", l.Spec.Holder.PodUID)
		})
	}
}

// lost lets a pod of this node lose its address, and returns the warnings that
// it got for it.
func lost(r *fakenode.Node, web agentapi.AddRequest) string {
	r.T.Helper()
	r.MustAdd(web)
	r.Replace(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodGone)))
	r.Settle()
	var said strings.Builder
	for len(r.Recorder.Events) > 0 {
		said.WriteString(<-r.Recorder.Events + "\n")
	}
	return said.String()
}

func TestAStaticPodThatLostItsAddressIsFencedAndPeopleAreTold(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	said := lost(r, static(r, "mirror-1"))
	check.That(t, len(r.Kernel.Speakers(fakenode.Key("10.0.0.2"))) == 0, "the static pod may speak for an address that it lost")
	check.That(t, strings.Contains(said, "static pod") && !strings.Contains(said, "fenced and deleted"), "said %q", said)
	check.That(t, r.Calls("delete") == 0, "the mirror pod was deleted, which does not end a static pod")
}

// The annotation alone is anybody's to write: it makes no static pod.
func TestAPodThatCallsItselfStaticIsDeletedAsAnyOther(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1", func(p *corev1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.hash": configHash} })
	said := lost(r, web)
	check.That(t, strings.Contains(said, "fenced and deleted"), "said %q", said)
	check.That(t, r.Reader.Get(t.Context(), fakenode.ClientObjectKey("web"), &corev1.Pod{}) != nil, "the mute pod stays")
}

func TestThePodThatCameAfterALoserIsNotDeleted(t *testing.T) {
	r, _ := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	e, address, _ := r.Holder(fakenode.Key("10.0.0.2"))
	r.Pod("web", "u2")
	check.Is(t, r.Recovery.DeletePod(t.Context(), &e, address), nil, "got")
	next := &corev1.Pod{}
	err := r.Reader.Get(t.Context(), fakenode.ClientObjectKey("web"), next)
	check.That(t, err == nil && next.UID == types.UID("u2"), "the next pod of that name: %v, %v", next.UID, err)
}
