// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

const (
	staticIP    = "ipam.fenceline.io/static-ip"
	ipRetention = "ipam.fenceline.io/ip-retention"
)

func ownedBy(kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, UID: "o", Controller: &yes}}
	}
}

func TestAFixedAddressIsRefusedWhereTheNameDoesNotComeBack(t *testing.T) {
	for _, row := range []struct {
		name string
		pod  []func(*corev1.Pod)
		says string
	}{
		{"a Deployment's pod", []func(*corev1.Pod){ownedBy("ReplicaSet", "web-7d4b9"), fakenode.Annotated(staticIP, "true")}, "its ReplicaSet web-7d4b9 makes pods of new names"},
		{"a Job's pod", []func(*corev1.Pod){ownedBy("Job", "import"), fakenode.Annotated(ipRetention, "48h")}, "its Job import makes pods of new names"},
		{"a DaemonSet's pod", []func(*corev1.Pod){ownedBy("DaemonSet", "probe"), fakenode.Annotated(staticIP, "true")}, "its DaemonSet probe makes pods of new names"},
		{"a bare pod", []func(*corev1.Pod){fakenode.Annotated(staticIP, "true")}, "no controller creates it again"},
		{"the other prefix", []func(*corev1.Pod){fakenode.Annotated("ipam.spidernet.io/ip-retention", "0")}, "no controller creates it again"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			said := r.Refused(agentapi.CodeInvalidNetworkConfig, r.Pod("web-0", "u", row.pod...))
			check.Says(t, said, row.says, "use a StatefulSet")
			r.Want()
		})
	}
}

func TestALeaseRecordsWhatThePodAsksFor(t *testing.T) {
	for _, row := range []struct {
		name string
		pod  []func(*corev1.Pod)
		want string
	}{
		{"a StatefulSet's pod that asks for nothing", []func(*corev1.Pod){fakenode.OfStatefulSet}, "nothing"},
		{"a Deployment's pod that says so", []func(*corev1.Pod){ownedBy("ReplicaSet", "web-7d4b9"), fakenode.Annotated(staticIP, "false")}, "nothing"},
		{"for ever", []func(*corev1.Pod){fakenode.OfStatefulSet, fakenode.Annotated(staticIP, "true")}, "Forever"},
		{"for a time", []func(*corev1.Pod){fakenode.OfStatefulSet, fakenode.Annotated(ipRetention, "48")}, "For 48h0m0s"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			web := r.Pod("web-0", "u", row.pod...)
			r.MustAdd(web)
			check.Equal(t, describe(r.Lease("10.0.0.2", v1alpha1.StateBound).Spec.Retention), row.want, "the lease asks for")
		})
	}
}

// The template may have been changed between two pods of a name.
func TestATakeOverRecordsWhatTheNewPodAsksFor(t *testing.T) {
	for _, row := range []struct {
		name     string
		was, now func(*corev1.Pod)
		want     string
	}{
		{"more", func(*corev1.Pod) {}, fakenode.Annotated(staticIP, "true"), "Forever"},
		{"something else", fakenode.Annotated(staticIP, "true"), fakenode.Annotated(ipRetention, "1h"), "For 1h0m0s"},
		{"nothing any more", fakenode.Annotated(staticIP, "true"), func(*corev1.Pod) {}, "nothing"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			first := r.Pod("web-0", "u1", fakenode.OfStatefulSet, row.was)
			r.MustAdd(first)
			r.MustDel(first)
			r.Lease("10.0.0.2", v1alpha1.StateRetained)
			r.End(first)
			r.MustAdd(r.Pod("web-0", "u2", fakenode.OfStatefulSet, row.now))
			check.Equal(t, describe(r.Lease("10.0.0.2", v1alpha1.StateBound).Spec.Retention), row.want, "the lease asks for")
		})
	}
}

func describe(r *v1alpha1.LeaseRetention) string {
	switch {
	case r == nil:
		return "nothing"
	case r.Duration == nil:
		return string(r.Policy)
	default:
		return string(r.Policy) + " " + r.Duration.Round(time.Second).String()
	}
}
