package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/cniserver"
	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/install"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/metrics"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/session"
	"github.com/fenceline/fenceline/agent/verify"
	"github.com/fenceline/fenceline/apis/event"
	"github.com/fenceline/fenceline/bpf"
)

// run is the agent from start to end. What it attached stays attached.
func run(ctx context.Context, s settings) error {
	if s.node == "" || s.namespace == "" {
		return errors.New("--node-name and --namespace are required")
	}
	log := newLogger(s.logLevel)
	ctrl.SetLogger(log)
	klog.SetLogger(log)

	if s.plugin != "" {
		if _, err := install.Plugin(s.plugin, s.binDir); err != nil {
			log.Error(err, "the runtime has the plugin of before, or none; it is tried again")
		}
	}
	// The lock comes before the pins: one agent at a time owns them.
	book, err := journal.Open(s.stateDir)
	if err != nil {
		return err
	}
	defer book.Close()
	for _, damaged := range book.Corrupt() {
		log.Error(damaged, "a file of the journal is set aside: after a loss of power the leases of the last boot are as well, otherwise a pod keeps its address until it is deleted")
	}
	kernel, err := bpf.Open(bpf.Options{Dir: s.bpfDir})
	if err != nil {
		return fmt.Errorf("open the kernel's part: %w", err)
	}
	defer kernel.Close()

	links, err := pod.NewFinder()
	if err != nil {
		return err
	}
	defer links.Close()

	api, err := findAPIServer()
	if err != nil {
		return err
	}
	id, confirm, err := whoIs(ctx, s, api, book, log)
	if err != nil {
		return err
	}
	mgr, err := api.manager(s, log)
	if err != nil {
		return err
	}
	if err := mgr.Add(confirm); err != nil {
		return fmt.Errorf("add the confirmation of the identity: %w", err)
	}
	a := &agent{
		settings: s, identity: id, log: log, mgr: mgr, now: api.now, kernel: kernel, journal: book, links: links,
		counters: metrics.New(ctrlmetrics.Registry), events: event.Recorder{To: mgr.GetEventRecorder("fenceline-agent")},
		conflicts: make(chan conflict, conflictBacklog),
	}
	if err := a.assemble(ctx); err != nil {
		return err
	}
	if err := mgr.Add(a.watchStore(api.outages)); err != nil {
		return fmt.Errorf("add the watch of the store: %w", err)
	}
	defer a.segments.Close()
	defer a.holders.Wait()
	return mgr.Start(ctx)
}

// newLogger writes JSON lines to stderr.
func newLogger(level slog.Level) logr.Logger {
	return logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// whoIs finds out who the node is, while liveness probes are answered. confirm
// asks again for what could only be remembered.
func whoIs(ctx context.Context, s settings, api apiServer, book *journal.Journal, log logr.Logger) (id identity, confirm manager.RunnableFunc, err error) {
	stop, err := answerAlive(s.healthAddress, log)
	if err != nil {
		return identity{}, nil, err
	}
	defer stop()
	reader, err := api.reader()
	if err != nil {
		return identity{}, nil, err
	}
	bootID, err := session.BootID()
	if err != nil {
		return identity{}, nil, err
	}
	i := identification{reader: reader, memory: book, node: s.node, patience: startPatience, log: log}
	found, sure, err := i.identify(ctx)
	if err != nil {
		return identity{}, nil, err
	}
	confirm = func(ctx context.Context) error {
		if sure {
			return nil
		}
		return i.confirm(ctx, found)
	}
	return identityOf(found, bootID, book.All()), confirm, nil
}

// agent is everything that runs on a node.
type agent struct {
	settings
	identity
	log      logr.Logger
	mgr      manager.Manager
	now      clock.Clock // the API server's
	kernel   *bpf.Kernel
	journal  *journal.Journal
	links    *pod.Finder
	counters *metrics.Agent

	segments *segment.Segments
	store    *lease.Store
	holders  *holder.Holders
	events   events.EventRecorder
	// heard: the caches were synced once.
	heard atomic.Bool
	// plugged: the plugin is installed. plugging is held while it is being.
	plugged  atomic.Bool
	plugging sync.Mutex
	// conflicts wait to be recorded on their leases.
	conflicts chan conflict
	// wentBack: it was told that the store went back. It belongs to the watch of the store.
	wentBack bool
}

// assemble builds the parts, takes up what the last run left, and hands all to
// the manager, which runs them once its caches are synced.
func (a *agent) assemble(ctx context.Context) error {
	a.segments = segment.New(segment.Config{
		Kernel: a.kernel, Log: a.log,
		Holdings:    a.holdings,
		OthersShare: func(int) bool { return a.othersShare() },
		OnFenced:    a.onFenced, OnConflict: a.onConflict,
	})
	a.store = lease.NewStore(lease.Options{
		Client: a.mgr.GetClient(), Reader: a.mgr.GetAPIReader(),
		Node: a.node, Session: a.session, Clock: a.now, CountError: a.counters.APIError,
	})
	allocator := allocate.New(allocate.Options{
		Leases: a.store, Clock: clock.RealClock{}, Last: a.journal.Rotations(),
	})
	keeper := a.newKeeper(allocator)
	a.holders = holder.New(ctx, holder.Options{
		Node: a.node, Session: a.session, Cluster: a.cluster,
		Cache: a.mgr.GetCache(), Client: a.mgr.GetClient(), Reader: a.mgr.GetAPIReader(),
		Leases: a.store, Journal: a.journal, Kernel: a.kernel,
		Allocator: allocator, Warm: keeper,
		OpenSegment:  a.openSegment,
		ParentExists: parentExists,
		FindLink:     a.findLink,
		Sighted:      a.sighted,
		Share:        a.share, OthersShare: a.othersShare,
		Events:  a.events,
		Metrics: a.counters, Log: a.log, Clock: clock.RealClock{},
	})
	verifier := verify.New(verify.Options{
		Node: a.node, Session: a.session, Cluster: a.cluster,
		Cache: a.mgr.GetCache(), Leases: a.store, Holders: a.holders,
		OpenSegment: a.segmentOf, OthersShare: a.othersShare,
		Verified: a.counters.Verification, Conflict: a.counters.Conflict,
		Events: a.events, Log: a.log, Clock: clock.RealClock{},
	})
	ctrlmetrics.Registry.MustRegister(a.segments.Collector())
	server, err := cniserver.New(cniserver.Options{
		Backend: a.backend(), Socket: a.socket, Spool: filepath.Join(a.stateDir, "spool"),
		Metrics: ctrlmetrics.Registry, Log: a.log,
	})
	if err != nil {
		return err
	}
	// Before anything verifies: what speaks here must be known, to be killed.
	if err := a.holders.Restore(); err != nil {
		// One pod's interface may have gone while the agent was away; the others are served.
		a.log.Error(err, "not everything of the last run could be taken up")
	}
	return errors.Join(
		watchPools(a.mgr, a.kernel, a.cluster),
		watchKey(a.mgr, a.kernel, a.segments, a.log),
		watchQuarantine(a.mgr, verifier),
		watchLeases(a.mgr, a.holders),
		watchWarm(a.mgr, keeper),
		a.mgr.Add(manager.RunnableFunc(a.keepAttached)),
		a.mgr.Add(manager.RunnableFunc(a.segments.Run)),
		a.mgr.Add(manager.RunnableFunc(a.holders.Run)),
		a.mgr.Add(manager.RunnableFunc(a.holders.RunSweeps)),
		a.mgr.Add(manager.RunnableFunc(keeper.Run)),
		a.mgr.Add(manager.RunnableFunc(a.recordConflicts)),
		a.mgr.Add(server),
		a.mgr.Add(manager.RunnableFunc(a.shed)),
		a.mgr.Add(manager.RunnableFunc(a.installConflist)),
		a.mgr.AddHealthzCheck("alive", func(*http.Request) error { return nil }),
		a.mgr.AddReadyzCheck("add", func(r *http.Request) error { return a.status(r.Context()) }),
	)
}

// syncedWithin is how long a question after the status waits for the caches:
// a probe has a second, and a runtime asks again.
const syncedWithin = 500 * time.Millisecond

// status tells why ADD would fail for every pod, if it would.
func (a *agent) status(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, syncedWithin)
	defer cancel()
	// Once is enough: the first ADD may start another watch, and a runtime that is
	// told to wait for it calls the whole node not Ready.
	if !a.heard.Load() && !a.mgr.GetCache().WaitForCacheSync(ctx) {
		return errors.New("the API server has not been heard since the agent started")
	}
	a.heard.Store(true)
	if !a.segments.HasKey() {
		return errors.New("there is no claim key yet; is the controller running?")
	}
	return a.installPlugin()
}

// installPlugin installs the plugin once. A directory that refuses it ends no
// agent: the pods that are there need theirs.
func (a *agent) installPlugin() error {
	if a.plugin == "" || a.plugged.Load() {
		return nil
	}
	a.plugging.Lock()
	defer a.plugging.Unlock()
	if _, err := install.Plugin(a.plugin, a.binDir); err != nil {
		return err
	}
	a.plugged.Store(true)
	return nil
}

// serves tells whether ADD can be served.
func (a *agent) serves(ctx context.Context) bool { return a.status(ctx) == nil }
