// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/reclaim"
	"github.com/fenceline/fenceline/internal/access"
	"github.com/fenceline/fenceline/test/check"
)

// small is a server with the pool underlay and two leases.
func small(t *testing.T) *Server {
	t.Helper()
	scheme := check.Value(cache.Scheme())(t)
	other := leaseNamed("10.0.1.1", v1alpha1.StateWarm, "")
	other.Spec.Pool = "spare"
	return serverOf(fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&v1alpha1.IPLease{}, cache.LeasesByPool, func(o client.Object) []string { return []string{o.(*v1alpha1.IPLease).Spec.Pool} }).
		WithIndex(&corev1.Service{}, cache.ServicesByType, func(o client.Object) []string { return []string{string(o.(*corev1.Service).Spec.Type)} }).
		WithObjects(poolNamed("underlay", "10.0.0.0/24"), poolNamed("spare", "10.0.1.0/24"), other,
			leaseNamed("10.0.0.5", v1alpha1.StateBound, "web-0"), taken(leaseNamed("10.0.0.6", v1alpha1.StateBound, "web-1"), v1alpha1.ReasonPodGone)).
		Build())
}

func get(t *testing.T, url, token string) (int, http.Header, string) {
	t.Helper()
	request := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(request)
	check.OK(t, err)
	defer answer.Body.Close()
	return answer.StatusCode, answer.Header, string(check.Value(io.ReadAll(answer.Body))(t))
}

func TestWhoGetsWhat(t *testing.T) {
	page := httptest.NewServer(small(t).Handler())
	defer page.Close()
	for _, row := range []struct {
		path, token string
		want        int
		text        string
	}{
		{"/", "", 200, "Fenceline"},
		{"/none.js", "", 404, ""},
		{"/api/pools", "", 401, "Unauthorized"},
		{"/api/pools", "stranger", 401, "Unauthorized"},
		{"/api/pools", "tenant", 403, "Forbidden"},
		{"/api/events", "stranger", 401, "Unauthorized"},
		{"/api/leases/10.0.0.5", "tenant", 403, "Forbidden"},
		{"/api/pools", "viewer", 200, `[{"name":"spare"`},
		{"/api/pools/underlay", "viewer", 200, `"grid":{"first":"10.0.0.0","size":256,"runs":"1-254f1-"}`},
		{"/api/pools/none", "viewer", 404, ""},
		{"/api/leases/10.0.0.5", "viewer", 200, "Bound to pod shop/web-0, interface eth0 on node n1 since 2026-01-01T00:00:00Z."},
		{"/api/leases/10.0.0.5", "viewer", 200, "The controller leaves the lease as it is: the pod is alive."},
		{"/api/leases/10.0.0.6", "viewer", 200, "It was taken from pod shop/web-1 on node n1."},
		{"/api/leases/10.0.0.7", "viewer", 404, ""},
		{"/api/none", "viewer", 404, ""},
	} {
		code, header, text := get(t, page.URL+row.path, row.token)
		if code != row.want || !strings.Contains(text, row.text) {
			t.Errorf("%s for %q: %d %s, want %d %s", row.path, row.token, code, text, row.want, row.text)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; ", "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "no-referrer", "Access-Control-Allow-Origin": "",
		} {
			if got := header.Get(name); !strings.HasPrefix(got, want) || want == "" && got != "" || strings.Contains(got, "unsafe") {
				t.Errorf("%s: %s is %q", row.path, name, got)
			}
		}
		got := header.Get("Cache-Control")
		check.That(t, code != 200 || got == "no-store", "%s: Cache-Control is %q", row.path, got)
	}
}

func TestAPoolHasItsOwnLeasesOnly(t *testing.T) {
	page := httptest.NewServer(small(t).Handler())
	defer page.Close()
	_, _, text := get(t, page.URL+"/api/pools/underlay", "viewer")
	var got struct{ Leases []Lease }
	check.OK(t, json.Unmarshal([]byte(text), &got))
	if len(got.Leases) != 2 || got.Leases[0] != (Lease{Name: "10.0.0.5", Pool: "underlay", Address: "10.0.0.5", State: "B", Node: "n1", Namespace: "shop", Pod: "web-0"}) {
		t.Errorf("%+v", got.Leases)
	}
}

// The reservation of two virtual addresses is of the pool underlay; another pool has no row of it.
func TestThePageShowsWhoSpeaksForAVirtualAddress(t *testing.T) {
	s := small(t)
	page := httptest.NewServer(s.Handler())
	defer page.Close()
	r := &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "vip"}, Spec: v1alpha1.ReservedIPSpec{
		IPs: []string{"10.0.0.9", "10.0.0.10"}, Virtual: &v1alpha1.ReservedVirtual{Namespace: "shop"},
	}}
	r.Status.Speakers = []v1alpha1.Speaker{{Address: "10.0.0.9", Pod: "a", Node: "n1", MAC: "02:00:00:00:00:01", Since: metav1.NewMicroTime(time.Unix(0, 0))}}
	check.OK(t, s.Reader.(client.Client).Create(t.Context(), r))
	said := func(address, pod string) Lease {
		return Lease{Name: address, Pool: "underlay", Address: address, State: "V", Node: "n1", Namespace: "shop", Pod: pod, MAC: "02:00:00:00:00:01",
			Said: "Pod shop/" + pod + " on node n1 speaks for it, with MAC 02:00:00:00:00:01, since 1970-01-01T00:00:00Z."}
	}
	var got struct{ Leases []Lease }
	for pool, want := range map[string][]Lease{"underlay": {said("10.0.0.9", "a")}, "spare": nil} {
		_, _, text := get(t, page.URL+"/api/pools/"+pool, "viewer")
		check.OK(t, json.Unmarshal([]byte(text), &got))
		rows := slices.DeleteFunc(got.Leases, func(l Lease) bool { return l.State != virtual })
		check.That(t, slices.Equal(rows, want), "pool %s has %+v, want %+v", pool, rows, want)
	}

	s.feed.Pool(poolNamed("underlay", "10.0.0.0/24"))
	s.feed.Pool(poolNamed("spare", "10.0.1.0/24"))
	messages, leave, _ := s.feed.join()
	defer leave()
	<-messages // hello
	next := func(kind string, want Lease) {
		t.Helper()
		check.Equal(t, string(check.Receive(t, time.Minute, "a row", messages)), string(message(kind, want)), "the page gets")
	}
	moved := r.DeepCopy()
	moved.Status.Speakers[0].Pod = "b"
	moved.Status.Speakers = append(moved.Status.Speakers, r.Status.Speakers[0])
	moved.Status.Speakers[1].Address = "10.0.0.10"
	s.feed.Speakers(r, moved)
	next("lease", said("10.0.0.9", "b"))
	next("lease", said("10.0.0.10", "a"))
	s.feed.Speakers(moved, nil)
	next("lease-gone", said("10.0.0.9", "b"))
	next("lease-gone", said("10.0.0.10", "a"))
	check.Equal(t, len(messages), 0, "more rows:")
}

// start runs a server on an address until the test ends or stop is called.
func start(t *testing.T, s *Server, address string) (stop func()) {
	t.Helper()
	s.Address = address
	ctx, cancel := context.WithCancel(t.Context())
	watched, ended := make(chan struct{}), make(chan error, 1)
	s.Watch = func(context.Context, *Feed) error { close(watched); return nil }
	go func() { ended <- s.Start(ctx) }()
	check.Receive(t, time.Minute, "the server to watch", watched)
	return func() {
		cancel()
		check.OK(t, check.Receive(t, time.Minute, "the end of the server", ended))
	}
}

func TestAStreamHasEachChangeAndEndsWithTheServer(t *testing.T) {
	s, address := small(t), freeAddress(t)
	stop := start(t, s, address)
	request := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/api/events", nil))(t)
	request.Header.Set("Authorization", "Bearer viewer")
	answer, err := http.DefaultClient.Do(request)
	check.OK(t, err)
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	read := func() string {
		lines.Scan()
		return lines.Text()
	}
	for _, want := range []string{"event: hello", "data: null", ""} {
		got := read()
		check.Must(t, got == want, "%q, want %q", got, want)
	}
	lease := leaseNamed("10.0.0.9", v1alpha1.StateBound, "web-9")
	s.feed.Lease(lease, taken(lease, v1alpha1.ReasonNodeUnreachable), time.Now())
	event, data := read(), read()
	check.That(t, event == "event: lease" && strings.Contains(data, `"state":"Q"`), "%s\n%s", event, data)
	read()
	if event, data := read(), read(); event != "event: happening" || !strings.Contains(data, `"kind":"reclaim"`) {
		t.Errorf("%s\n%s", event, data)
	}
	stop() // fails if it waits for the stream
	read()
	check.That(t, !lines.Scan(), "after the end: %s", lines.Text())
}

// reviews answers as tokens until a time.
type reviews struct {
	tokens
	until time.Time
	end   func(context.Context) error
}

func (r *reviews) Create(ctx context.Context, review *authenticationv1.TokenReview, o metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	if time.Now().Before(r.until) {
		return r.tokens.Create(ctx, review, o)
	}
	return &authenticationv1.TokenReview{}, r.end(ctx)
}

func TestTheStreamOfARevokedViewerEnds(t *testing.T) {
	for name, row := range map[string]struct {
		end  func(context.Context) error
		want time.Duration
	}{
		"the API server says no":         {func(context.Context) error { return nil }, AllowedFor + heartbeat},
		"the API server is away":         {func(context.Context) error { return io.EOF }, time.Minute},
		"the API server does not answer": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			s := small(t)
			synctest.Test(t, func(t *testing.T) {
				r := &reviews{until: time.Now().Add(5 * time.Minute), end: row.end}
				s.Judge = access.Asking(r, rights{}, clock.RealClock{}, AllowedFor)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/events", nil)
				request.Header.Set("Authorization", "Bearer viewer")
				s.Handler().ServeHTTP(httptest.NewRecorder(), request)
				took := time.Since(r.until)
				check.That(t, 0 <= took && took <= row.want, "the stream ended %s after its viewer was revoked, want 0s to %s", took, row.want)
			})
		})
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l := check.Value((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	check.OK(t, l.Close())
	return l.Addr().String()
}

func TestOnlyALoopbackAddressIsServedByHTTP(t *testing.T) {
	_, port, err := net.SplitHostPort(freeAddress(t))
	check.OK(t, err)
	defer start(t, small(t), ":"+port)()
	code, _, text := get(t, "http://127.0.0.1:"+port+"/", "")
	check.That(t, code == http.StatusBadRequest, "HTTP: %d %s", code, text)
}

func TestACertificateThatIsMissingIsAnError(t *testing.T) {
	s := small(t)
	s.Address, s.CertDir = ":0", t.TempDir()
	check.Says(t, s.Start(t.Context()), "serve the page on :0: read the certificate in "+s.CertDir)
}

// tokens knows the tokens viewer, who may list everything, and tenant, who may list leases only.
type tokens struct {
	authenticationclient.TokenReviewInterface
}

func (tokens) Create(_ context.Context, r *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	r.Status.Authenticated = r.Spec.Token == "viewer" || r.Spec.Token == "tenant"
	r.Status.User.Username = r.Spec.Token
	return r, nil
}

type rights struct {
	authorizationclient.SubjectAccessReviewInterface
}

func (rights) Create(_ context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	a := r.Spec.ResourceAttributes
	r.Status.Allowed = a.Verb == "list" && a.Group == "fenceline.io" && a.Namespace == "" &&
		(r.Spec.User == "viewer" || r.Spec.User == "tenant" && a.Resource == "ipleases")
	return r, nil
}

// alive explains leases as if every pod lived.
func alive(context.Context, *v1alpha1.IPLease) (reclaim.Action, error) {
	return reclaim.Action{Kind: reclaim.None, Why: "the pod is alive"}, nil
}

func serverOf(reader client.Reader) *Server {
	return &Server{
		Reader: reader, Judge: access.Asking(tokens{}, rights{}, clock.RealClock{}, AllowedFor), Explain: alive,
		Watch:  func(context.Context, *Feed) error { return nil },
		Assets: fstest.MapFS{"index.html": {Data: []byte("<title>Fenceline</title>")}}, Log: logr.Discard(),
	}
}

func poolNamed(name, subnet string, ips ...string) *v1alpha1.IPPool {
	return &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Subnet: subnet, IPs: ips}}
}

// leaseNamed returns a lease of the pool underlay. With a pod, it is Bound to it on node n1.
func leaseNamed(address string, state v1alpha1.LeaseState, pod string) *v1alpha1.IPLease {
	l := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: address, ResourceVersion: "1"}}
	l.Spec = v1alpha1.IPLeaseSpec{Address: address, Pool: "underlay", State: state, NodeName: "n1", Since: metav1.NewTime(time.Unix(1767225600, 0))}
	if pod != "" {
		l.Spec.Holder = &v1alpha1.Holder{Namespace: "shop", Pod: pod, Interface: "eth0", Guarded: true}
	}
	return l
}

// taken returns a lease after its reclaim.
func taken(l *v1alpha1.IPLease, reason v1alpha1.LeaseReason) *v1alpha1.IPLease {
	q := l.DeepCopy()
	q.ResourceVersion += "1"
	q.Spec.State, q.Spec.Reason, q.Spec.NodeName = v1alpha1.StateQuarantined, reason, "n2"
	q.Spec.Previous = &v1alpha1.PreviousHolder{Node: l.Spec.NodeName, Token: 1}
	return q
}

func TestWhichChangesAreInTheFeed(t *testing.T) {
	bound := leaseNamed("10.0.0.5", v1alpha1.StateBound, "web-0")
	gone, conflict := taken(bound, v1alpha1.ReasonPodGone), taken(leaseNamed("10.0.0.5", v1alpha1.StateWarm, ""), v1alpha1.ReasonConflict)
	conflict.Spec.Previous, conflict.Spec.Conflict = nil, &v1alpha1.Conflict{MAC: "02:00:00:00:00:09"}
	warm := leaseNamed("10.0.0.6", v1alpha1.StateWarm, "")
	for name, row := range map[string]struct {
		was, is *v1alpha1.IPLease
		want    string
	}{
		"a grant is not":                        {nil, bound, ""},
		"an end of a pod is not":                {bound, nil, ""},
		"a reclaim":                             {bound, gone, "reclaim: taken from pod shop/web-0 on node n1: PodGone"},
		"a reclaim of a Warm address":           {warm, taken(warm, v1alpha1.ReasonAgentGone), "reclaim: taken from node n1: AgentGone"},
		"a change of the verifier is not":       {gone, gone, ""},
		"a proof that frees":                    {gone, nil, "fence: pod shop/web-0 on node n1 is fenced, gone or silent"},
		"a take-over":                           {gone, bound, "fence: pod shop/web-0 on node n1 is fenced, gone or silent"},
		"a conflict":                            {nil, conflict, "conflict: the host with MAC 02:00:00:00:00:09 uses the address"},
		"a conflict of a reclaimed address":     {gone, conflict, "conflict: the host with MAC 02:00:00:00:00:09 uses the address"},
		"the end of a conflict is not":          {conflict, nil, ""},
		"another frame of the same host is not": {conflict, conflict, ""},
	} {
		h, ok := happened(row.was, row.is, time.Unix(0, 0))
		got := h.Kind + ": " + h.Text
		check.That(t, ok == (row.want != "") && (!ok || got == row.want), "%s: %q (%t), want %q", name, got, ok, row.want)
	}
}

func TestANewPageGetsTheLastHappenings(t *testing.T) {
	f := newFeed()
	for i := range 2 * remembered {
		l := taken(leaseNamed(fmt.Sprintf("10.0.0.%d", i), v1alpha1.StateBound, "web-0"), v1alpha1.ReasonPodGone)
		l.Spec.Since.Time = time.Unix(int64(1000-i), 0) // the informer's order is not that of time
		f.Present(l)
	}
	messages, leave, _ := f.join()
	defer leave()
	hello := string(<-messages)
	n := strings.Count(hello, `"kind":"reclaim"`)
	check.That(t, n == remembered && strings.Contains(hello, `"10.0.0.0"`) && !strings.Contains(hello, `"10.0.0.199"`), "%d happenings: %s", n, hello)
	check.That(t, strings.HasPrefix(hello, "event: hello\ndata: [") && strings.HasSuffix(hello, "]\n\n"), "no server-sent event: %s", hello)
}

func TestASlowPageIsDisconnectedAndOthersAreNot(t *testing.T) {
	f := newFeed()
	slow, leaveSlow, _ := f.join()
	defer leaveSlow()
	quick, leaveQuick, _ := f.join()
	defer leaveQuick()
	<-quick
	lease := leaseNamed("10.0.0.5", v1alpha1.StateBound, "web-0")
	for range backlog {
		f.Lease(nil, lease, time.Time{})
		<-quick
	}
	n := 0
	for range slow { // ends because the channel is closed
		n++
	}
	check.That(t, n == backlog, "the slow page got %d messages, want %d", n, backlog)
	f.Lease(lease, nil, time.Time{})
	m := string(<-quick)
	check.That(t, strings.HasPrefix(m, "event: lease-gone\n"), "the quick page got %s", m)
}

func TestThePagesAreBounded(t *testing.T) {
	f := newFeed()
	for range maxViewers {
		_, _, ok := f.join()
		check.Must(t, ok, "a page was refused")
	}
	if _, _, ok := f.join(); ok {
		t.Error("there is no bound")
	}
}

func TestAVirtualAddressIsStripedAlsoOutsideOfThePool(t *testing.T) {
	vip := v1alpha1.ReservedIP{Spec: v1alpha1.ReservedIPSpec{IPs: []string{"10.0.1.5"}, Virtual: &v1alpha1.ReservedVirtual{}}}
	got := GridOf(poolNamed("underlay", "10.0.0.0/16", "10.0.0.1-10.0.0.2"), []v1alpha1.ReservedIP{vip}, nil)
	check.Equal(t, got, Grid{"10.0.0.0", 512, "1-2f258-1r250-"}, "grid")
}

func TestGrids(t *testing.T) {
	with := func(p *v1alpha1.IPPool, edit func(*v1alpha1.IPPoolSpec)) *v1alpha1.IPPool {
		edit(&p.Spec)
		return p
	}
	gateway := "10.0.0.1"
	withheld := poolNamed("underlay", "10.0.0.0/29")
	withheld.Status.Withheld = []v1alpha1.Withheld{{Pool: "other", IPs: []string{"10.0.0.5-10.0.0.6"}}}
	for name, row := range map[string]struct {
		pool     *v1alpha1.IPPool
		reserved []string
		leases   []string
		want     Grid
	}{
		"a whole subnet": {poolNamed("underlay", "10.0.0.0/24"), nil, nil, Grid{"10.0.0.0", 256, "1-254f1-"}},
		"gateway, excluded and reserved addresses": {with(poolNamed("underlay", "10.0.0.0/24", "10.0.0.1-10.0.0.20"), func(s *v1alpha1.IPPoolSpec) {
			s.Gateway, s.ExcludeIPs = &gateway, []string{"10.0.0.4-10.0.0.5"}
		}), []string{"10.0.0.5-10.0.0.9", "10.0.0.200"}, nil, Grid{"10.0.0.0", 256, "1-1g2f2-4r11f235-"}},
		"addresses that another pool hands out":    {withheld, nil, nil, Grid{"10.0.0.0", 8, "1-4f2w1-"}},
		"a small subnet":                           {poolNamed("underlay", "10.0.0.8/30"), nil, nil, Grid{"10.0.0.8", 4, "1-2f1-"}},
		"a part of a large subnet":                 {poolNamed("underlay", "10.0.0.0/8", "10.9.1.5", "10.9.2.7"), nil, nil, Grid{"10.9.1.0", 512, "5-1f257-1f248-"}},
		"with a lease outside of the pool":         {poolNamed("underlay", "10.0.0.0/8", "10.9.1.5"), nil, []string{"10.9.0.3"}, Grid{"10.9.0.0", 512, "261-1f250-"}},
		"a /16":                                    {poolNamed("underlay", "10.20.0.0/16"), nil, nil, Grid{"10.20.0.0", 65536, "1-65534f1-"}},
		"a /8 is too large":                        {poolNamed("underlay", "10.0.0.0/8"), nil, nil, Grid{}},
		"a /64 is too large":                       {poolNamed("underlay", "fd00::/64"), nil, nil, Grid{}},
		"a part of a /64":                          {poolNamed("underlay", "fd00::/64", "fd00::1:10-fd00::1:1f"), nil, nil, Grid{"fd00::1:0", 256, "16-16f224-"}},
		"the last address of IPv4 has no next one": {poolNamed("underlay", "255.255.255.254/31"), nil, nil, Grid{"255.255.255.254", 2, "2f"}},
		"a pool that cannot be read has none":      {poolNamed("underlay", "10.0.0.0/33"), nil, nil, Grid{}},
		"ips that cannot be read, and a lease":     {poolNamed("underlay", "10.0.0.0/24", "x"), nil, []string{"10.0.0.3"}, Grid{}},
	} {
		t.Run(name, func(t *testing.T) {
			var leases []v1alpha1.IPLease
			for _, address := range row.leases {
				leases = append(leases, *leaseNamed(address, v1alpha1.StateBound, "web-0"))
			}
			row.pool.Status.InUse = "//8=" // all addresses were in use a moment ago
			reserved := v1alpha1.ReservedIP{Spec: v1alpha1.ReservedIPSpec{IPs: row.reserved}}
			check.Equal(t, GridOf(row.pool, []v1alpha1.ReservedIP{reserved}, leases), row.want, "got")
		})
	}
}

func TestLettersOfLeases(t *testing.T) {
	for want, s := range map[string]v1alpha1.IPLeaseSpec{
		"B": {State: v1alpha1.StateBound, Reason: v1alpha1.ReasonMigrated}, "W": {State: v1alpha1.StateWarm},
		"R": {State: v1alpha1.StateRetained}, "Q": {State: v1alpha1.StateQuarantined, Reason: v1alpha1.ReasonPodGone},
		"C": {State: v1alpha1.StateQuarantined, Reason: v1alpha1.ReasonConflict},
	} {
		check.Equal(t, leaseOf(&v1alpha1.IPLease{Spec: s}).State, want, "%s (%s) is", s.State, s.Reason)
	}
}
