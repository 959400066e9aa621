// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
)

// rig has one pod, web, which runs and has lost its interface with its parent.
type rig struct {
	entry    *attachment.Entry
	pod      *corev1.Pod
	find     error
	guarded  bool
	unknown  error
	remade   bool
	lost     map[string]int
	watch    *Gone
	recorder *events.FakeRecorder
	clock    *clocktesting.FakeClock
}

// pods reads the pod of a rig.
type pods struct {
	client.Reader
	*rig
}

func (p pods) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if p.pod == nil {
		return errors.New("not found")
	}
	p.pod.DeepCopyInto(o.(*corev1.Pod))
	return nil
}

func newRig(t *testing.T) *rig {
	r := &rig{
		entry: &attachment.Entry{
			ContainerID: "c", Interface: "eth0", PodNamespace: "shop", PodName: "web", PodUID: "u", Phase: attachment.Bound, Session: "s",
			Parent: "bond0", ParentIndex: 7, Addresses: []attachment.Address{{Addr: netip.MustParseAddr("10.0.0.2")}},
		},
		pod: &corev1.Pod{}, remade: true, find: fmt.Errorf("find: %w", pod.ErrNoInterface),
		recorder: events.NewFakeRecorder(100), clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)),
	}
	r.pod.UID = types.UID("u")
	r.watch = NewGone(GoneOptions{
		Reporter: event.Reporter{Node: "n1", Events: r.recorder, Log: testr.New(t), Clock: r.clock},
		Session:  "s", Entries: func() []*attachment.Entry { return []*attachment.Entry{r.entry} },
		Has:          func(string, string) error { return r.find },
		Guarded:      func(*attachment.Entry) (bool, error) { return r.guarded, r.unknown },
		ParentExists: func(int) bool { return !r.remade }, Pods: pods{rig: r},
		Lost: func(lost map[string]int) { r.lost = lost },
	})
	return r
}

// passes lets passes come, and returns the events.
func (r *rig) passes(n int) (told []string) {
	for range n {
		r.watch.Pass(context.Background())
		r.clock.Step(period)
	}
	for len(r.recorder.Events) > 0 {
		told = append(told, <-r.recorder.Events)
	}
	return told
}

func TestALostInterfaceIsReportedAboutThePodAndTheNode(t *testing.T) {
	const (
		remade = "parent bond0 was removed or made again"
		alone  = "parent bond0 is as it was, so the interface alone was deleted or taken away"
	)
	for _, row := range []struct {
		name   string
		change func(*rig)
		want   string
	}{
		{"its parent is another one", func(*rig) {}, remade},
		{"it alone is gone", func(r *rig) { r.remade = false }, alone},
		{"it is there", func(r *rig) { r.find = nil }, ""},
		{"the sandbox has gone", func(r *rig) { r.find = pod.ErrNoNetNS }, ""},
		{"the kernel does not answer", func(r *rig) { r.find = errors.New("too many open files") }, ""},
		{"the pod has renamed it", func(r *rig) { r.guarded = true }, ""},
		{"its guard cannot be read", func(r *rig) { r.unknown = errors.New("bpf") }, ""},
		{"the pod ends", func(r *rig) { r.pod.DeletionTimestamp = &metav1.Time{} }, ""},
		{"the pod has finished", func(r *rig) { r.pod.Status.Phase = corev1.PodSucceeded }, ""},
		{"another pod has the name", func(r *rig) { r.pod.UID = "v" }, ""},
		{"the pod is unknown", func(r *rig) { r.pod = nil }, ""},
		{"an ADD is under way", func(r *rig) { r.entry.Phase = attachment.Intent }, ""},
		{"a DEL is under way", func(r *rig) { r.entry.Phase = attachment.Releasing }, ""},
		{"the entry is from before a boot", func(r *rig) { r.entry.Session = "r" }, ""},
		{"the pod is being deleted for a newer holder", func(r *rig) { r.entry.Mute = true }, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			row.change(r)
			var want []string
			lost := map[string]int{}
			if row.want != "" {
				want = []string{
					"Warning InterfaceGone the pod runs, but has lost its interface eth0 with 10.0.0.2: " + row.want + "; delete the pod, so that a new one gets an interface",
					"Warning InterfaceGone running pods have lost interfaces (1): " + row.want + "; delete these pods: shop/web",
				}
				lost["bond0"] = 1
			}
			told := r.passes(1)
			check.That(t, told == nil && len(r.lost) == 0, "after one look: %v, %v", told, r.lost)
			check.Same(t, r.passes(3), want, "events")
			check.Same(t, r.lost, lost, "metric")
		})
	}
}

func TestALossThatLastsIsReportedAgain(t *testing.T) {
	r := newRig(t)
	r.passes(2)
	r.clock.Step(tellInterval - 2*period)
	check.None(t, r.passes(1), "told too early:")
	check.Equal(t, len(r.passes(1)), 2, "reports:")
	r.find = nil
	told := r.passes(1)
	check.That(t, told == nil && len(r.lost) == 0, "it is back: %v, %v", told, r.lost)
}

func TestAnEventOfTheNodeNamesAFewPods(t *testing.T) {
	r := newRig(t)
	r.watch.Entries = func() (all []*attachment.Entry) {
		for i := range 110 {
			e := *r.entry
			e.ContainerID, e.PodName = fmt.Sprint("c", i), fmt.Sprint("web-", i)
			all = append(all, &e)
		}
		return all
	}
	r.recorder.Events = make(chan string, 200)
	told := r.passes(2)
	if len(told) != 111 || !strings.HasSuffix(told[110], "have lost interfaces (110): parent bond0 was removed or made again; delete these pods: shop/web-0, shop/web-1, shop/web-10, shop/web-100, shop/web-101 and others with the event InterfaceGone") {
		t.Errorf("%d events, the last one %q", len(told), told[len(told)-1])
	}
}
