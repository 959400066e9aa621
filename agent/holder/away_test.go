// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/fakenode"
)

// unreached is the error of a call that found no API server.
var unreached = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}

// deaf is an API server that is away, for those who read past the cache.
type deaf struct {
	client.Reader
	asked int
}

func (d *deaf) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	d.asked++
	return unreached
}

// A runtime goes on trying for as long as an outage lasts, each time with a
// new sandbox: more often than there are slots.
func TestADDsOfALongOutageTakeNothing(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	r.Events = events.NewFakeRecorder(2 * bpf.MaxSlot)
	web := r.Pod("web", "u1")
	present, away := r.Reader, &deaf{}
	r.Reader = away
	r.API.Before = func(string, string) error { return unreached }
	for n := range bpf.MaxSlot + 10 {
		web.ContainerID = fmt.Sprintf("c%d", n)
		if _, err := r.Add(t.Context(), web); !isCode(err, agentapi.CodeTryAgainLater) {
			t.Fatal(err)
		}
		if left := r.Journal.All(); len(left) > 0 {
			t.Fatalf("journal %v", left)
		}
	}
	if free := len(r.FreeSlots()); free < bpf.MaxSlot-1 || r.Calls("create") > 1 || away.asked != bpf.MaxSlot+9 {
		t.Errorf("%d slots are free, %d creates, %d questions", free, r.Calls("create"), away.asked)
	}
	r.Reader, r.API.Before = present, nil
	r.MustAdd(web)
}

func isCode(err error, code uint) bool {
	return err != nil && refusal.Answer(err).Code == code
}

// What was never sent needs no API server to be undone.
func TestAnADDThatReachedNobodyIsForgottenAtOnce(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	r.API.Before = func(verb, _ string) error {
		if verb != "create" {
			t.Errorf("%s of a lease that nobody has created", verb)
		}
		return unreached
	}
	r.Refused(agentapi.CodeTryAgainLater, r.Pod("web", "u1"))
	if left := r.Journal.All(); len(left) > 0 {
		t.Errorf("journal %v", left)
	}
}
