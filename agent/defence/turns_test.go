// SPDX-License-Identifier: Apache-2.0

package defence

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
)

const (
	ownMAC  = "02:00:00:00:00:0a"
	vrrpMAC = "00:00:5e:00:01:33"
)

var (
	vip    = netip.MustParseAddr("10.0.0.5")
	vipKey = bpf.Key{Segment: 7, Addr: vip}
	podA   = &attachment.Entry{PodName: "a", PodNamespace: "shop", MAC: ownMAC, Slot: 3, ParentIndex: 7, Interface: "eth0"}
	podB   = &attachment.Entry{PodName: "b", PodNamespace: "shop", MAC: "02:00:00:00:00:0b", Slot: 4, ParentIndex: 7, Interface: "eth0"}
)

// given is the kernel's entry of an address whose pods speak by turns.
func given(slot uint32, token uint64, flags ...bpf.LeaseFlags) bpf.Lease {
	l := bpf.Lease{Slot: slot, Token: token, Flags: bpf.FlagTurns}
	for _, f := range flags {
		l.Flags |= f
	}
	return l
}

func on(pod, node string, token int64) v1alpha1.Speaker {
	return v1alpha1.Speaker{Address: vip.String(), Pod: pod, Node: node, MAC: ownMAC, Token: token}
}

func TestTheKernelFollowsTheSpeakerOnRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		on    v1alpha1.Speaker
		e     *attachment.Entry
		l     bpf.Lease
		heard uint64
		want  step
	}{
		"nobody has spoken yet":                        {v1alpha1.Speaker{}, nil, bpf.Lease{}, 0, end},
		"nobody, and the kernel holds all back":        {v1alpha1.Speaker{}, nil, given(0, 0), 0, rest},
		"a pod of another node":                        {on("b", "n2", 9), nil, given(0, 5), 0, rest},
		"another node has taken the turn of a pod":     {on("b", "n2", 9), nil, given(3, 5), 9, end},
		"the pod on record is gone":                    {on("a", "n1", 5), nil, given(3, 5), 0, end},
		"the cache does not have the turn yet":         {on("b", "n2", 5), nil, given(3, 9), 0, rest},
		"the cache does not have a turn that begins":   {on("a", "n1", 5), podA, given(3, 9, bpf.FlagUnproven), 0, rest},
		"after the boot of the node":                   {on("a", "n1", 5), podA, bpf.Lease{}, 0, begin},
		"a new sandbox of the pod":                     {on("a", "n1", 5), podA, given(2, 5), 0, begin},
		"the agent ended between the write and claims": {on("a", "n1", 5), podA, given(0, 4), 0, begin},
		"the agent ended between claim and turn":       {on("a", "n1", 5), podA, given(3, 5, bpf.FlagUnproven), 0, begin},
		"it speaks":                                    {on("a", "n1", 5), podA, given(3, 5), 0, rest},
		"it is fenced, and the record comes":           {on("a", "n1", 5), podA, given(3, 5), 9, rest},
		"before exclusive was set":                     {on("a", "n1", 0), podA, bpf.Lease{}, 0, renew},
		"the store went back":                          {on("a", "n1", 5), podA, given(0, 5), 9, renew},
	} {
		check.Equal(t, stepOf(tc.on, tc.e, tc.l, bpf.State{MaxToken: tc.heard}), tc.want, "%s:", name)
	}
}

func TestANewTurnIsNewerThanAllThatIsKnown(t *testing.T) {
	for name, tc := range map[string]struct {
		w        wish
		on       v1alpha1.Speaker
		revision uint64
		l        bpf.Lease
		heard    uint64
		want     int64 // 0: no turn
	}{
		"the first one":                           {wish{e: podA, mac: ownMAC}, v1alpha1.Speaker{}, 50, given(0, 0), 0, 50},
		"after a pod of another node":             {wish{e: podA, mac: ownMAC}, on("b", "n2", 40), 50, given(0, 40), 0, 50},
		"after one that had this record too":      {wish{e: podA, mac: ownMAC}, on("b", "n2", 50), 50, given(0, 40), 0, 51},
		"the store went back":                     {wish{e: podA, mac: ownMAC}, on("b", "n2", 40), 50, given(0, 90), 100, 101},
		"it has the turn":                         {wish{e: podA, mac: ownMAC}, on("a", "n1", 40), 50, given(3, 40), 0, 0},
		"it has the turn, by another of its MACs": {wish{e: podA, mac: vrrpMAC}, on("a", "n1", 40), 50, given(3, 40), 0, 50},
		"a pod of this name on another node":      {wish{e: podA, mac: ownMAC}, on("a", "n2", 40), 50, given(0, 40), 0, 50},
		"its record gets a token":                 {wish{e: podA, mac: ownMAC, renews: true}, on("a", "n1", 0), 50, bpf.Lease{}, 0, 50},
		"its record was overtaken meanwhile":      {wish{e: podA, mac: ownMAC, renews: true}, on("b", "n2", 60), 61, given(0, 5), 0, 0},
	} {
		taken, ok := next(tc.w, tc.on, "n1", tc.revision, tc.l, bpf.State{MaxToken: tc.heard}, time.Unix(9, 0))
		check.Equal(t, ok, tc.want != 0, "%s: takes the turn:", name)
		if ok {
			check.Equal(t, taken.Token, tc.want, "%s: token", name)
			check.That(t, taken.Pod == "a" && taken.Node == "n1" && taken.MAC == tc.w.mac, "%s: got %+v", name, taken)
		}
	}
}

// stage is node n1 with pods a and b, which may speak for an exclusive address.
type stage struct {
	*Speakers
	t     *testing.T
	clock *clocktesting.FakeClock
	// away: the API server does not answer.
	away bool

	mu        sync.Mutex
	l         bpf.Lease
	heard     bpf.State
	did       []string
	answerers []net.HardwareAddr
	newer     bool
	// has are the pods that have the address.
	has map[string]bool
}

func newStage(t *testing.T, speakers ...v1alpha1.Speaker) *stage {
	t.Helper()
	s := &stage{t: t, clock: clocktesting.NewFakeClock(time.Unix(1000, 0)), l: given(0, 0)}
	scheme := runtime.NewScheme()
	check.OK(t, v1alpha1.AddToScheme(scheme))
	r := &v1alpha1.ReservedIP{
		ObjectMeta: metav1.ObjectMeta{Name: "vip"},
		Spec: v1alpha1.ReservedIPSpec{IPs: []string{vip.String()}, Virtual: &v1alpha1.ReservedVirtual{
			Namespace: "shop", MatchLabels: map[string]string{"app": "ha"}, VRRPID: ptr.To[int64](51), Exclusive: true,
		}},
		Status: v1alpha1.ReservedIPStatus{ObservedGeneration: 1, Speakers: speakers},
	}
	fails := func() error {
		if s.away {
			return errors.New("the API server is away")
		}
		return nil
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(r).WithStatusSubresource(r).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return errors.Join(fails(), c.Get(ctx, key, o, opts...))
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			if err := fails(); err != nil {
				return err
			}
			s.does("write")
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	}).Build()
	s.Speakers = NewSpeakers(SpeakerOptions{
		Options: Options{Reporter: event.Reporter{Node: "n1", Events: events.NewFakeRecorder(100), Clock: s.clock}, Cluster: "c", Cache: c},
		Configured: func(e *attachment.Entry, _ netip.Addr) (net.HardwareAddr, bool, error) {
			return check.Value(net.ParseMAC(e.MAC))(t), s.has[e.PodName], nil
		},
		Client: c, Live: c, Turns: s, OpenSegment: func(int) (Segment, error) { return s, nil },
	})
	s.Speakers.heard[vipKey] = &virtual{by: s.record(), pods: []*attachment.Entry{podA, podB}, known: map[string]bool{}}
	return s
}

func (s *stage) does(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.did = append(s.did, fmt.Sprintf(format, args...))
}

func (s *stage) record() *v1alpha1.ReservedIP {
	s.t.Helper()
	r := &v1alpha1.ReservedIP{}
	check.OK(s.t, s.Client.Get(s.t.Context(), client.ObjectKey{Name: "vip"}, r))
	return r
}

func (s *stage) Turn(bpf.Key) (bpf.Lease, bpf.State, error) { return s.l, s.heard, nil }
func (s *stage) ForgetTurns(_, _ func(bpf.Key) bool) error  { return nil }
func (s *stage) GiveTurn(e *attachment.Entry, a attachment.Address, mac net.HardwareAddr) error {
	s.l = given(e.Slot, a.Token)
	if a.Unproven {
		s.l.Flags |= bpf.FlagUnproven
		return nil
	}
	s.does("%s speaks by %s", e.PodName, mac)
	return nil
}
func (s *stage) EndTurn(_ bpf.Key, token uint64) error {
	s.l = given(0, token)
	s.does("nobody speaks")
	return nil
}
func (s *stage) Listen(netip.Addr, func(bpf.Event)) (func() error, error) { return nil, nil }
func (s *stage) ClaimAndConfirm(_ context.Context, c segment.Claim) error {
	check.That(s.t, s.l.Flags&bpf.FlagUnproven != 0 && s.l.Token == c.Token, "the pod may speak before the claim: %+v", s.l)
	s.does("claim after %d", c.PreviousToken)
	if s.newer {
		return segment.ErrFenced
	}
	return nil
}
func (s *stage) Announce(a segment.Announcement) { s.does("announce") }
func (s *stage) Answerers(context.Context, netip.Addr) ([]net.HardwareAddr, error) {
	s.does("ask")
	return s.answerers, nil
}

// announces lets the guard of a pod drop an announcement.
func (s *stage) announces(e *attachment.Entry, mac string) {
	s.t.Helper()
	s.Heard(bpf.Event{
		Type: bpf.EventTurn, Key: vipKey, Token: uint64(e.Slot), MAC: check.Value(net.ParseMAC(mac))(s.t), Kind: bpf.KindARP, Announces: true, Where: bpf.WhereGuardEgress,
	})
}

// passes gives turns, and returns what was done.
func (s *stage) passes() (did []string, err error) {
	_, err = s.referee.takeTurns(s.t.Context())
	did, s.did = s.did, nil
	return did, err
}

func (s *stage) mustDo(want ...string) {
	s.t.Helper()
	did, err := s.passes()
	check.OK(s.t, err)
	check.List(s.t, did, want, "it does")
}

func TestAPodSpeaksOnceItsTurnIsOnRecordAndClaimed(t *testing.T) {
	s := newStage(t, on("z", "n2", 7))
	s.announces(podA, ownMAC)
	s.mustDo("write", "claim after 7", "a speaks by "+ownMAC, "announce")
	now := s.record().Status.Speakers
	check.That(t, len(now) == 1 && now[0].Pod == "a" && now[0].Node == "n1" && now[0].Token > 7, "on record: %+v", now)
	held := s.holdings()
	check.That(t, len(held) == 1 && held[0].Token == uint64(now[0].Token) && held[0].Slot == podA.Slot, "holdings %+v", held)
	s.announces(podA, ownMAC)
	s.mustDo()
	s.announces(podB, podB.MAC)
	s.mustDo("write", fmt.Sprintf("claim after %d", now[0].Token), "b speaks by "+podB.MAC, "announce")
}

func TestWithoutTheAPIServerNoPodGetsTheTurn(t *testing.T) {
	s := newStage(t, on("z", "n2", 7))
	s.away = true
	s.announces(podA, ownMAC)
	did, err := s.passes()
	check.That(t, err != nil && len(did) == 0 && s.l.Slot == 0, "err %v, did %v", err, did)
	s.clock.Step(time.Minute)
	s.away, s.answerers = false, []net.HardwareAddr{{2, 0, 0, 0, 0, 9}}
	s.mustDo("nobody speaks", "ask") // the speaker on record answers
	s.mustDo()
	s.away = true
	s.announces(podA, ownMAC)
	_, err = s.passes()
	check.That(t, err != nil, "the wish is forgotten")
	s.clock.Step(time.Minute)
	s.away, s.answerers = false, nil
	s.mustDo("nobody speaks", "ask", "write", "claim after 7", "a speaks by "+ownMAC, "announce")
}

func TestAPodWithANewerRivalStaysMute(t *testing.T) {
	s := newStage(t)
	s.newer = true
	s.announces(podA, ownMAC)
	s.mustDo("write", "claim after 0")
	check.That(t, s.l.Flags&bpf.FlagUnproven != 0 && len(s.holdings()) == 0, "lease %+v", s.l)
}

func TestOnlyAnAnnouncementOfTheReservationsPodsByTheirMACsIsAWish(t *testing.T) {
	s := newStage(t)
	s.announces(&attachment.Entry{Slot: 9}, ownMAC) // a third pod
	s.announces(podA, podB.MAC)
	s.mustDo()
	s.announces(podA, vrrpMAC)
	s.mustDo("write", "claim after 0", "a speaks by "+vrrpMAC, "announce")
}

// The agent was down when the pod announced the address, and the frame was dropped. Nobody speaks since.
func TestAWishFromBeforeTheStartOfTheAgentComesTrueIfNobodySpeaks(t *testing.T) {
	for name, answerers := range map[string][]net.HardwareAddr{"nobody speaks": nil, "another host does": {{2, 0, 0, 0, 0, 9}}} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, on("z", "n2", 7))
			s.answerers = answerers
			s.heard = bpf.State{HitMAC: check.Value(net.ParseMAC(ownMAC))(t), HitWhere: bpf.WhereGuardEgress, HitKind: bpf.KindARP}
			check.OK(t, s.referee.settle(t.Context(), vipKey, s.Speakers.heard[vipKey]))
			did, err := s.passes()
			check.OK(t, err)
			check.Equal(t, slices.Contains(did, "a speaks by "+ownMAC), answerers == nil, "%v: it speaks:", did)
			check.OK(t, s.referee.settle(t.Context(), vipKey, s.Speakers.heard[vipKey]))
			s.mustDo()
		})
	}
}

func TestAPodOnRecordGoesOnAfterExclusiveWasSetAndAfterARestart(t *testing.T) {
	s := newStage(t, on("a", "n1", 0))
	check.OK(t, s.referee.settle(t.Context(), vipKey, s.Speakers.heard[vipKey]))
	s.mustDo("write", "claim after 0", "a speaks by "+ownMAC, "announce")
	next := newStage(t, s.record().Status.Speakers...)
	next.l = s.l
	check.OK(t, next.referee.settle(t.Context(), vipKey, next.Speakers.heard[vipKey]))
	next.mustDo()
	check.Equal(t, len(next.holdings()), 1, "holdings:")
	next.l = bpf.Lease{} // the node has booted
	check.OK(t, next.referee.settle(t.Context(), vipKey, next.Speakers.heard[vipKey]))
	next.mustDo("claim after 0", "a speaks by "+ownMAC, "announce")
}

func TestAnotherNodesPodOnRecordEndsTheTurn(t *testing.T) {
	s := newStage(t)
	s.announces(podA, ownMAC)
	check.That(t, len(check.Value(s.passes())(t)) > 0, "a did not get the turn")
	v := &virtual{by: s.record(), pods: []*attachment.Entry{podA, podB}}
	v.by.Status.Speakers = []v1alpha1.Speaker{on("z", "n2", v.by.Status.Speakers[0].Token+1)}
	check.OK(t, s.referee.settle(t.Context(), vipKey, v))
	s.mustDo("nobody speaks")
	check.Equal(t, len(s.holdings()), 0, "holdings:")
}

func TestPodsThatAnnounceByTurnsForEverAreBounded(t *testing.T) {
	s := newStage(t)
	writes := 0
	for i := range 100 {
		s.announces([]*attachment.Entry{podA, podB}[i%2], []string{ownMAC, podB.MAC}[i%2])
		did, err := s.passes()
		check.OK(t, err)
		if len(did) > 0 {
			writes++
		}
	}
	check.Equal(t, writes, turnBurst, "turns at once:")
}

// A master of VRRP that never ceased to be one does not announce the address again.
func TestTheTurnPassesFromAPodWithoutTheAddressToOneThatHasIt(t *testing.T) {
	s := newStage(t)
	s.has = map[string]bool{"a": true, "b": true}
	s.announces(podA, ownMAC)
	s.mustDo("write", "claim after 0", "a speaks by "+ownMAC, "announce")
	token := s.record().Status.Speakers[0].Token
	settles := func() {
		t.Helper()
		v := &virtual{by: s.record(), pods: []*attachment.Entry{podA, podB}}
		check.OK(t, s.referee.settle(t.Context(), vipKey, v))
	}
	settles()
	s.mustDo()
	s.has["a"] = false
	s.mustDo("write")
	check.That(t, s.record().Status.Speakers[0].Idle, "on record: %+v", s.record().Status.Speakers)
	s.has["a"] = true
	s.mustDo("write")
	settles()
	s.mustDo()
	s.has["a"] = false
	s.mustDo("write")
	settles()
	s.mustDo("write", fmt.Sprintf("claim after %d", token), "b speaks by "+podB.MAC, "announce")
	check.That(t, !s.record().Status.Speakers[0].Idle, "on record: %+v", s.record().Status.Speakers)
}

// Its program may answer ARP without the kernel.
func TestAPodThatNeverHadTheAddressKeepsItsTurn(t *testing.T) {
	s := newStage(t)
	s.announces(podA, ownMAC)
	s.mustDo("write", "claim after 0", "a speaks by "+ownMAC, "announce")
	s.mustDo()
}
