// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

const nextSession = "node-1/boot-2"

// reboot is the end of the machine with its power, after which the journal's
// files are what the test makes of them.
func reboot(r *fakenode.Node, damage func(file string) error) {
	r.T.Helper()
	r.After.Wait()
	files := check.Value(filepath.Glob(filepath.Join(r.Dir, "journal", "*.json")))(r.T)
	for _, file := range files {
		check.OK(r.T, damage(file))
	}
	r.Life, r.Kernel, r.Wire = nextSession, fakenode.NewKernel(), fakenode.NewWire(fakenode.NewKernel())
	r.Restart()
}

// The journal does not wait for the disk. Whatever a loss of power makes of it, the leases of the last
// boot are set aside, and none is freed unproven (the rig watches each write).
func TestWhateverALossOfPowerLeavesOfTheJournal(t *testing.T) {
	older := map[string][]byte{}
	for name, damage := range map[string]func(file string) error{
		"everything":            func(string) error { return nil },
		"nothing":               os.Remove,
		"empty files":           func(file string) error { return os.Truncate(file, 0) },
		"torn files":            func(file string) error { return os.Truncate(file, 100) },
		"what was there before": func(file string) error { return os.WriteFile(file, older[filepath.Base(file)], 0o600) },
	} {
		for what, end := range map[string]func(*fakenode.Node, agentapi.AddRequest){
			"bound": func(*fakenode.Node, agentapi.AddRequest) {},
			"released without API server": func(r *fakenode.Node, web agentapi.AddRequest) {
				r.API.SetAway(true)
				r.MustDel(web)
				r.API.SetAway(false)
			},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.9"))
				file := filepath.Join(r.Dir, "journal", "c-u1@eth0.json")
				older[filepath.Base(file)] = check.Value(os.ReadFile(file))(t)
				end(r, web)
				reboot(r, damage)
				r.Settle()
				check.OK(t, r.Recovery.SetAsideLastBoot(t.Context()))
				s := r.Lease("10.0.0.2", v1alpha1.StateQuarantined).Spec
				check.That(t, s.Previous != nil && s.Previous.Session == fakenode.ThisSession && s.Reason == v1alpha1.ReasonNodeRestarted, "lease %+v", s)
				check.None(t, r.Attachments.All(), "journal")
				damaged := name == "empty files" || name == "torn files"
				check.That(t, damaged == (len(r.Attachments.Corrupt()) == 1), "set aside %v", r.Attachments.Corrupt())
			})
		}
	}
}

// A machine that was installed anew under the same name: another Node UID,
// another boot ID, an empty directory. Its leases are of another session, so its
// StatefulSet's pod gets the address back only on proof (R8).
func TestAMachineThatWasReImagedHasToProveItsOldAddresses(t *testing.T) {
	for verdict, state := range map[segment.Verdict]string{segment.Silent: "Bound", segment.Unknown: "Quarantined"} {
		t.Run(string(verdict), func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
			r.MustAdd(r.Pod("web-0", "u1", fakenode.OfStatefulSet))
			reboot(r, os.Remove)
			r.Dir, r.Life = t.TempDir(), "node-2/boot-7"
			r.Restart()
			check.OK(t, r.Recovery.SetAsideLastBoot(t.Context()))
			p := r.Lease("10.0.0.2", v1alpha1.StateQuarantined).Spec.Previous
			check.That(t, p != nil && p.Session == fakenode.ThisSession, "previous %+v", p)
			r.Wire.Verdicts[fakenode.Two] = verdict
			web := r.Pod("web-0", "u2", fakenode.OfStatefulSet)
			if state == "Bound" {
				r.MustAdd(web)
			} else {
				r.Refused(agentapi.CodeTryAgainLater, web)
			}
			r.Want("10.0.0.2 " + state)
		})
	}
}

// A later answer of the controller may name a lease that the agent did not know at its start.
func TestALeaseOfTheLastBootThatIsKnownLateIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Recovery.Run(ctx) }()
		time.Sleep(time.Second)
		r.API.Put(fakenode.Held("10.0.0.2", func(s *v1alpha1.IPLeaseSpec) { s.NodeName, s.Session = fakenode.ThisNode, "node-1/boot-0" }))
		time.Sleep(2 * time.Minute)
		r.Want("10.0.0.2 Quarantined")
		stop()
		check.Is(t, <-done, nil, "got")
	})
}

func TestWhichLeasesWithoutAnEntryAreSetAsideAtTheStart(t *testing.T) {
	ours := func(change ...func(*v1alpha1.IPLeaseSpec)) *v1alpha1.IPLease {
		return fakenode.Held("10.0.0.2", append([]func(*v1alpha1.IPLeaseSpec){func(s *v1alpha1.IPLeaseSpec) {
			s.NodeName, s.Session = fakenode.ThisNode, "node-1/boot-0"
		}}, change...)...)
	}
	for name, test := range map[string]struct {
		lease *v1alpha1.IPLease
		want  string
	}{
		"bound before the last boot":             {ours(), "Quarantined"},
		"bound in this boot by an older node":    {ours(func(s *v1alpha1.IPLeaseSpec) { s.Session = "node-0/boot-1" }), "Bound"},
		"bound in this session":                  {ours(func(s *v1alpha1.IPLeaseSpec) { s.Session = fakenode.ThisSession }), "Bound"},
		"bound to another node":                  {fakenode.Held("10.0.0.2"), "Bound"},
		"retained before the last boot":          {ours(fakenode.Retained), "Retained"},
		"quarantined, and ours to verify by now": {fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodGone)), "Quarantined"},
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			r.API.Put(test.lease)
			before := r.API.Leases()["10.0.0.2"].ResourceVersion
			check.OK(t, r.Recovery.SetAsideLastBoot(t.Context()))
			r.Want("10.0.0.2 " + test.want)
			changed := r.API.Leases()["10.0.0.2"].ResourceVersion != before
			check.Equal(t, changed, (test.want == "Quarantined" && test.lease.Spec.State == v1alpha1.StateBound), "changed")
		})
	}
}

func TestLeasesOfTheLastBootAreSetAsideOnceTheAPIServerIsBack(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	r.API.Put(fakenode.Held("10.0.0.2", func(s *v1alpha1.IPLeaseSpec) { s.NodeName, s.Session = fakenode.ThisNode, "node-1/boot-0" }))
	r.API.Before = func(verb, _ string) error {
		if verb == "update" {
			return &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}
		return nil
	}
	check.Must(t, r.Recovery.SetAsideLastBoot(t.Context()) != nil, "no error")
	r.API.Before = nil
	ctx := t.Context()
	go func() { _ = r.Recovery.Run(ctx) }()
	r.Eventually("it is set aside", func() bool { return r.Names()[0] == "10.0.0.2 Quarantined" })
}

// The kubelet makes a new sandbox for a pod that outlived the boot: it gets its
// address back, proven, whether the journal has lost it or has released it.
func TestAPodOfTheLastBootGetsItsAddressBack(t *testing.T) {
	for name, damage := range map[string]func(file string) error{
		"lost with the power":       os.Remove,
		"released before it starts": func(string) error { return nil },
		"verified before it starts": func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.9"))
			reboot(r, damage)
			r.Settle()
			check.OK(t, r.Recovery.SetAsideLastBoot(t.Context()))
			r.Wire.Verdicts[fakenode.Two] = segment.Silent
			if strings.HasPrefix(name, "verified") {
				// The verifier is faster than the kubelet.
				l := r.Lease("10.0.0.2", v1alpha1.StateQuarantined)
				r.API.Freed = nil // the finding is the proof
				check.OK(t, check.Err(r.Leases.Settle(t.Context(), l, lease.FindingSafe, lease.Evidence{})))
				r.Lease("10.0.0.2", v1alpha1.StateRetained)
				r.Wire.Verdicts[fakenode.Two] = segment.Unknown // it is proven already
			}
			web.ContainerID, web.NetNS = "c-again", "/netns/c-again"
			r.Gets(web, "10.0.0.2")
			r.Want("10.0.0.2 Bound")
		})
	}
}
