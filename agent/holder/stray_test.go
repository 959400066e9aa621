package holder

import (
	"errors"
	"syscall"
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// lateCreate has the create of an ADD fail, and come to pass once the undo has
// found nothing. It returns the lease.
func lateCreate(t *testing.T, r *rig) *v1alpha1.IPLease {
	t.Helper()
	r.api.before = func(verb, _ string) error {
		if verb == "create" {
			return syscall.ECONNRESET
		}
		return nil
	}
	web := r.pod("web", "u1")
	if _, err := r.Holders.Add(t.Context(), web); err == nil {
		t.Fatal("ADD succeeds")
	}
	if left := r.Journal.All(); len(left) != 0 {
		t.Fatalf("journal %+v", left)
	}
	r.api.before = nil
	l := held("10.0.0.2", func(s *v1alpha1.IPLeaseSpec) {
		s.NodeName, s.Session = thisNode, thisSession
		s.Holder = &v1alpha1.Holder{Namespace: "shop", Pod: "web", PodUID: "u1", Interface: web.Interface, ContainerID: web.ContainerID, MAC: macOf(web.NetNS).String()}
	})
	r.api.put(l)
	return l
}

func TestALeaseThatIsWrittenAfterItsADDGaveItUpIsFreed(t *testing.T) {
	for name, look := range map[string]func(*rig, *v1alpha1.IPLease){
		"when its watch tells":  func(r *rig, l *v1alpha1.IPLease) { r.Changed(l.Name) },
		"by the audit":          func(r *rig, _ *v1alpha1.IPLease) { r.suspect(r.t.Context()) },
		"by another agent then": func(r *rig, l *v1alpha1.IPLease) { r.restart(); r.Changed(l.Name) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, v4("10.0.0.2"))
			look(r, lateCreate(t, r))
			if left, err := r.resume(t.Context(), askTimeout); left != 0 {
				t.Fatalf("left %d: %v", left, err)
			}
			r.want()
			r.add(r.pod("next", "u2"))
		})
	}
}

func TestALeaseWithoutAnEntryStays(t *testing.T) {
	for name, c := range map[string]struct {
		happen func(*rig, *v1alpha1.IPLease)
		left   int
	}{
		"while its API server is away": {func(r *rig, _ *v1alpha1.IPLease) {
			r.api.before = func(string, string) error { return errors.New("away") }
		}, 1},
		"while a call of the runtime is on": {func(r *rig, l *v1alpha1.IPLease) { r.attachments.lock(attachment{l.Spec.Holder.ContainerID, "eth0"}) }, 1},
		"of an earlier life of the node":    {func(r *rig, l *v1alpha1.IPLease) { l.Spec.Session = "node-1/boot-0"; r.replace(l) }, 0},
		"of another node":                   {func(r *rig, l *v1alpha1.IPLease) { l.Spec.NodeName = "n2"; r.replace(l) }, 0},
		"that is kept":                      {func(r *rig, l *v1alpha1.IPLease) { l.Spec.State = v1alpha1.StateRetained; r.replace(l) }, 0},
		"whose pod speaks, with a damaged entry": {func(r *rig, l *v1alpha1.IPLease) {
			r.api.drop(l)
			web := r.pod("web", "u1")
			r.add(web)
			if err := r.Journal.Remove(web.ContainerID, web.Interface); err != nil {
				r.t.Fatal(err)
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, v4("10.0.0.2"))
			l := lateCreate(t, r)
			c.happen(r, l)
			r.pending.add(attachment{l.Spec.Holder.ContainerID, "eth0"})
			if left, err := r.resume(t.Context(), askTimeout); left != c.left {
				t.Errorf("left %d, want %d: %v", left, c.left, err)
			}
			if len(r.names()) != 1 {
				t.Errorf("leases %v", r.names())
			}
		})
	}
}
