// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// server is an API server that is away for so many calls.
type server struct {
	client.Reader
	away  int
	calls int
	// silent: who calls while it is away waits for an answer.
	silent bool
}

func (s *server) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	s.calls++
	switch {
	case s.calls > s.away:
		return s.Reader.Get(ctx, key, o, opts...)
	case s.silent:
		<-ctx.Done()
		return ctx.Err()
	}
	return syscall.ECONNREFUSED
}

const always = 1 << 30

var nodeOne = attachment.Identity{Node: "n1", NodeUID: "node-uid", Cluster: "cluster-uid"}

// asking is node n1's agent, that asks a server with these objects. It has a
// memory if the node was told before.
func asking(t *testing.T, s *server, told *attachment.Identity, objects ...client.Object) Inquiry {
	t.Helper()
	book := check.Value(attachment.Open(t.TempDir()))(t)
	t.Cleanup(func() { book.Close() })
	if told != nil {
		check.OK(t, book.Identity.Put(*told))
	}
	s.Reader = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).Build()
	return Inquiry{Reader: s, Memory: book.Identity, Node: "n1", Patience: 50 * time.Millisecond, Log: testr.New(t)}
}

// thisCluster is where the node is nodeOne.
func thisCluster() []client.Object {
	return []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "cluster-uid"}},
	}
}

func TestWhoANodeIs(t *testing.T) {
	other := attachment.Identity{Node: "n1", NodeUID: "older", Cluster: "cluster-uid"}
	ofAnother := attachment.Identity{Node: "n9", NodeUID: "nine", Cluster: "cluster-uid"}
	for _, test := range []struct {
		name   string
		server server
		told   *attachment.Identity
		want   attachment.Identity
		sure   bool
	}{
		{"the API server tells", server{}, nil, nodeOne, true},
		{"what it tells goes before what was told", server{}, &other, nodeOne, true},
		{"it is away: who it was", server{away: always}, &other, other, false},
		{"it is silent: who it was", server{away: always, silent: true}, &other, other, false},
		{"it is away, and nothing was told: wait", server{away: 2}, nil, nodeOne, true},
		{"it is away, and another node was told: wait", server{away: 2}, &ofAnother, nodeOne, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := asking(t, &test.server, test.told, thisCluster()...)
				got, sure, err := i.Ask(t.Context())
				check.Must(t, err == nil && got == test.want && sure == test.sure, "is %+v, sure %v, %v", got, sure, err)
				remembered, _ := i.Memory.Get()
				check.Equal(t, remembered, test.want, "remembers")
			})
		})
	}
}

// An answer, even if it is no, counts for more than the memory.
func TestANodeThatIsNotRegisteredWaits(t *testing.T) {
	i := asking(t, &server{}, &nodeOne)
	ctx, stop := context.WithTimeout(t.Context(), 4*i.Patience)
	defer stop()
	got, sure, err := i.Ask(ctx)
	check.That(t, err != nil, "is %+v, sure %v", got, sure)
}

func TestWhoWasTakenForAnotherStartsAgain(t *testing.T) {
	for _, test := range []struct {
		name  string
		taken attachment.Identity
		want  error
	}{
		{"the same", nodeOne, nil},
		{"registered again", attachment.Identity{Node: "n1", NodeUID: "older", Cluster: "cluster-uid"}, ErrAnotherIdentity},
		{"of another cluster", attachment.Identity{Node: "n1", NodeUID: "node-uid", Cluster: "older"}, ErrAnotherIdentity},
	} {
		t.Run(test.name, func(t *testing.T) {
			i := asking(t, &server{away: 1}, &test.taken, thisCluster()...)
			check.Is(t, i.Confirm(t.Context(), test.taken), test.want, "got")
			remembered, _ := i.Memory.Get()
			check.Equal(t, remembered, nodeOne, "remembers")
		})
	}
}

func TestTheEndOfTheAgentEndsTheAsking(t *testing.T) {
	i := asking(t, &server{away: always}, nil)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	check.OK(t, i.Confirm(ctx, nodeOne))
	_, _, err := i.Ask(ctx)
	check.That(t, err != nil, "identified by nobody")
}

func TestTheSessionGoesOnAsTheJournalSays(t *testing.T) {
	entries := []*attachment.Entry{{Session: "older/boot-1"}, {Session: "older/boot-2"}}
	check.Equal(t, Identify(nodeOne, "boot-2", entries), Identity{Session: "older/boot-2", Cluster: "cluster-uid"}, "after the Node object was made again:")
	check.Equal(t, Identify(nodeOne, "boot-3", entries), Identity{Session: "node-uid/boot-3", Cluster: "cluster-uid"}, "after a reboot:")
}

func TestASessionIsAMachineInOneBoot(t *testing.T) {
	boot := check.Value(BootID())(t)
	got := ID("uid", boot)
	check.That(t, got == "uid/"+strings.TrimSpace(boot) && boot != "", "session %q", got)
}

func TestASessionContinues(t *testing.T) {
	for _, row := range []struct {
		name       string
		journalled []string
		want       string
	}{
		{"an empty journal", nil, "b/2"},
		{"after a restart of the agent", []string{"b/2"}, "b/2"},
		{"after the Node object was made again in the same boot", []string{"a/2"}, "a/2"},
		{"not over a reboot", []string{"b/1"}, "b/2"},
		{"with entries of an earlier boot left", []string{"a/1", "a/2"}, "a/2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var entries []*attachment.Entry
			for _, session := range row.journalled {
				entries = append(entries, &attachment.Entry{Session: session})
			}
			got := Identify(attachment.Identity{NodeUID: "b", Cluster: "c"}, "2", entries)
			check.Equal(t, got, Identity{Session: row.want, Cluster: "c"}, "continues as")
		})
	}
}

func TestABootEndsAHolderWithoutAGuard(t *testing.T) {
	for name, row := range map[string]struct {
		node, session string
		guarded, want bool
	}{
		"of this boot":               {"n1", "u/b2", false, true},
		"of an earlier boot":         {"n1", "u/b1", false, false},
		"of another node":            {"n2", "u/b1", false, true},
		"a guard enforces its fence": {"n1", "u/b2", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := &v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{Previous: &v1alpha1.PreviousHolder{
				Node: row.node, Session: row.session, PodUID: "p", Guarded: row.guarded,
			}}}
			check.Equal(t, MaySpeakUnfenced(l, "n1", "u/b2"), row.want, "may speak:")
		})
	}
}
