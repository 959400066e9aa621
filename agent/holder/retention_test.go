package holder

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
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
		{"a Deployment's pod", []func(*corev1.Pod){ownedBy("ReplicaSet", "web-7d4b9"), annotated(staticIP, "true")}, "its ReplicaSet web-7d4b9 makes pods of new names"},
		{"a Job's pod", []func(*corev1.Pod){ownedBy("Job", "import"), annotated(ipRetention, "48h")}, "its Job import makes pods of new names"},
		{"a DaemonSet's pod", []func(*corev1.Pod){ownedBy("DaemonSet", "probe"), annotated(staticIP, "true")}, "its DaemonSet probe makes pods of new names"},
		{"a bare pod", []func(*corev1.Pod){annotated(staticIP, "true")}, "nobody makes it again"},
		{"the other prefix", []func(*corev1.Pod){annotated("ipam.spidernet.io/ip-retention", "0")}, "nobody makes it again"},
		{"a value that cannot be read, on a StatefulSet's pod", []func(*corev1.Pod){ofStatefulSet, annotated(ipRetention, "2d")},
			`pod shop/web-0: annotation ipam.fenceline.io/ip-retention is "2d"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, v4("10.0.0.2"))
			said := r.refused(agentapi.CodeInvalidNetworkConfig, r.pod("web-0", "u", row.pod...))
			if !strings.Contains(said, row.says) {
				t.Errorf("it says %q, want %q", said, row.says)
			}
			if !strings.Contains(row.says, "2d") && !strings.Contains(said, "use a StatefulSet") {
				t.Errorf("it says %q, and not what to use", said)
			}
			r.want()
		})
	}
}

func TestALeaseRecordsWhatThePodAsksFor(t *testing.T) {
	for _, row := range []struct {
		name string
		pod  []func(*corev1.Pod)
		want string
	}{
		{"a StatefulSet's pod that asks for nothing", []func(*corev1.Pod){ofStatefulSet}, "nothing"},
		{"a Deployment's pod that says so", []func(*corev1.Pod){ownedBy("ReplicaSet", "web-7d4b9"), annotated(staticIP, "false")}, "nothing"},
		{"for ever", []func(*corev1.Pod){ofStatefulSet, annotated(staticIP, "true")}, "Forever"},
		{"for a time", []func(*corev1.Pod){ofStatefulSet, annotated(ipRetention, "48")}, "For 48h0m0s"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, v4("10.0.0.2"))
			web := r.pod("web-0", "u", row.pod...)
			r.add(web)
			if got := describe(r.lease("10.0.0.2", v1alpha1.StateBound).Spec.Retention); got != row.want {
				t.Errorf("the lease asks for %s, want %s", got, row.want)
			}
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
		{"more", func(*corev1.Pod) {}, annotated(staticIP, "true"), "Forever"},
		{"something else", annotated(staticIP, "true"), annotated(ipRetention, "1h"), "For 1h0m0s"},
		{"nothing any more", annotated(staticIP, "true"), func(*corev1.Pod) {}, "nothing"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, v4("10.0.0.2"))
			first := r.pod("web-0", "u1", ofStatefulSet, row.was)
			r.add(first)
			r.del(first)
			r.lease("10.0.0.2", v1alpha1.StateRetained)
			r.end(first)
			r.add(r.pod("web-0", "u2", ofStatefulSet, row.now))
			if got := describe(r.lease("10.0.0.2", v1alpha1.StateBound).Spec.Retention); got != row.want {
				t.Errorf("the lease asks for %s, want %s", got, row.want)
			}
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
