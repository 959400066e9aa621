package holder

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

const nextSession = "node-1/boot-2"

// reboot is the end of the machine with its power, after which the journal's
// files are what the test makes of them.
func (r *rig) reboot(damage func(file string) error) {
	r.t.Helper()
	r.Wait()
	files, err := filepath.Glob(filepath.Join(r.dir, "journal", "*.json"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, file := range files {
		if err := damage(file); err != nil {
			r.t.Fatal(err)
		}
	}
	r.session, r.kernel, r.wire = nextSession, newMemKernel(), newMemWire(newMemKernel())
	r.restart()
}

// The journal does not wait for the disk. Whatever a loss of power makes of
// it, the leases of the last boot are set aside, and none is freed unproven
// (the rig watches each write).
func TestWhateverALossOfPowerLeavesOfTheJournal(t *testing.T) {
	older := map[string][]byte{}
	for name, damage := range map[string]func(file string) error{
		"everything":            func(string) error { return nil },
		"nothing":               os.Remove,
		"empty files":           func(file string) error { return os.Truncate(file, 0) },
		"torn files":            func(file string) error { return os.Truncate(file, 100) },
		"what was there before": func(file string) error { return os.WriteFile(file, older[filepath.Base(file)], 0o600) },
	} {
		for what, end := range map[string]func(*rig, agentapi.AddRequest){
			"bound": func(*rig, agentapi.AddRequest) {},
			"released without API server": func(r *rig, web agentapi.AddRequest) {
				r.api.setAway(true)
				r.del(web)
				r.api.setAway(false)
			},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				r := newRig(t, v4("10.0.0.2-10.0.0.9"))
				web := r.pod("web", "u1")
				r.add(web)
				file := filepath.Join(r.dir, "journal", "c-u1@eth0.json")
				var err error
				if older[filepath.Base(file)], err = os.ReadFile(file); err != nil {
					t.Fatal(err)
				}
				end(r, web)
				r.reboot(damage)
				r.settle()
				if err := r.setAsideLastBoot(t.Context()); err != nil {
					t.Fatal(err)
				}
				l := r.lease("10.0.0.2", v1alpha1.StateQuarantined)
				if p := l.Spec.Previous; p == nil || p.Session != thisSession || l.Spec.Reason != v1alpha1.ReasonPodGone {
					t.Errorf("lease %+v", l.Spec)
				}
				if left := r.Journal.All(); len(left) > 0 {
					t.Errorf("journal %v", left)
				}
				if damaged := name == "empty files" || name == "torn files"; damaged != (len(r.book.Corrupt()) == 1) {
					t.Errorf("set aside %v", r.book.Corrupt())
				}
			})
		}
	}
}

// A machine that was installed anew under the same name: another Node UID,
// another boot ID, an empty directory. What it held is another session's, so its
// StatefulSet's pod gets the address back only on proof (R8).
func TestAMachineThatWasReImagedHasToProveItsOldAddresses(t *testing.T) {
	for verdict, state := range map[segment.Verdict]string{segment.Silent: "Bound", segment.Unknown: "Quarantined"} {
		t.Run(string(verdict), func(t *testing.T) {
			r := newRig(t, v4("10.0.0.2-10.0.0.9"))
			r.add(r.pod("web-0", "u1", ofStatefulSet))
			r.reboot(os.Remove)
			r.dir, r.session = t.TempDir(), "node-2/boot-7"
			r.restart()
			if err := r.setAsideLastBoot(t.Context()); err != nil {
				t.Fatal(err)
			}
			if p := r.lease("10.0.0.2", v1alpha1.StateQuarantined).Spec.Previous; p == nil || p.Session != thisSession {
				t.Errorf("previous %+v", p)
			}
			r.wire.verdicts[two] = verdict
			web := r.pod("web-0", "u2", ofStatefulSet)
			if state == "Bound" {
				r.add(web)
			} else {
				r.refused(agentapi.CodeTryAgainLater, web)
			}
			r.want("10.0.0.2 " + state)
		})
	}
}

func TestWhichLeasesWithoutAnEntryAreSetAsideAtTheStart(t *testing.T) {
	ours := func(change ...func(*v1alpha1.IPLeaseSpec)) *v1alpha1.IPLease {
		return held("10.0.0.2", append([]func(*v1alpha1.IPLeaseSpec){func(s *v1alpha1.IPLeaseSpec) {
			s.NodeName, s.Session = thisNode, "node-1/boot-0"
		}}, change...)...)
	}
	for name, test := range map[string]struct {
		lease *v1alpha1.IPLease
		want  string
	}{
		"bound before the last boot":             {ours(), "Quarantined"},
		"bound in this boot by an older node":    {ours(func(s *v1alpha1.IPLeaseSpec) { s.Session = "node-0/boot-1" }), "Bound"},
		"bound in this session":                  {ours(func(s *v1alpha1.IPLeaseSpec) { s.Session = thisSession }), "Bound"},
		"bound to another node":                  {held("10.0.0.2"), "Bound"},
		"retained before the last boot":          {ours(retained), "Retained"},
		"quarantined, and ours to verify by now": {held("10.0.0.2", quarantined(v1alpha1.ReasonPodGone)), "Quarantined"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, v4("10.0.0.2"))
			r.api.put(test.lease)
			before := r.api.leases()["10.0.0.2"].ResourceVersion
			if err := r.setAsideLastBoot(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.want("10.0.0.2 " + test.want)
			changed := r.api.leases()["10.0.0.2"].ResourceVersion != before
			if changed != (test.want == "Quarantined" && test.lease.Spec.State == v1alpha1.StateBound) {
				t.Errorf("changed %v", changed)
			}
		})
	}
}

func TestLeasesOfTheLastBootAreSetAsideOnceTheAPIServerIsBack(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	r.api.put(held("10.0.0.2", func(s *v1alpha1.IPLeaseSpec) { s.NodeName, s.Session = thisNode, "node-1/boot-0" }))
	r.api.before = func(verb, _ string) error {
		if verb == "update" {
			return unreached
		}
		return nil
	}
	if err := r.setAsideLastBoot(t.Context()); err == nil {
		t.Fatal("no error")
	}
	r.api.before = nil
	ctx := t.Context()
	go func() { _ = r.Run(ctx) }()
	r.eventually("it is set aside", func() bool { return r.names()[0] == "10.0.0.2 Quarantined" })
}

// The kubelet makes a new sandbox for a pod that outlived the boot: it gets its
// address back, proven, whether the journal has lost it or has released it.
func TestAPodOfTheLastBootGetsItsAddressBack(t *testing.T) {
	for name, damage := range map[string]func(file string) error{
		"lost with the power":       os.Remove,
		"released before it starts": func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, v4("10.0.0.2-10.0.0.9"))
			web := r.pod("web", "u1")
			r.add(web)
			r.reboot(damage)
			r.settle()
			if err := r.setAsideLastBoot(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.wire.verdicts[two] = segment.Silent
			web.ContainerID, web.NetNS = "c-again", "/netns/c-again"
			if got := r.add(web); got[0] != "10.0.0.2" {
				t.Errorf("got %v", got)
			}
			r.want("10.0.0.2 Bound")
		})
	}
}
