package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fenceline/fenceline/apis/event"
	"github.com/fenceline/fenceline/apis/revision"
	"github.com/fenceline/fenceline/apis/servertime"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/claimkey"
	"github.com/fenceline/fenceline/controller/eventpace"
	"github.com/fenceline/fenceline/controller/metrics"
	"github.com/fenceline/fenceline/controller/pool"
	"github.com/fenceline/fenceline/controller/reclaim"
	"github.com/fenceline/fenceline/controller/reserved"
)

const (
	name = "fenceline-controller"
	// shutdownGrace is what a reconciler under way has to come to its end, well
	// within the pod's own grace; the leader's Lease is given up after it.
	shutdownGrace = 5 * time.Second
)

// newManager returns the manager with everything the controller does. own is this machine's clock.
func newManager(ctx context.Context, config *rest.Config, o options, logger logr.Logger, own clock.WithTicker) (ctrl.Manager, error) {
	scheme, err := cache.Scheme()
	if err != nil {
		return nil, err
	}
	m, err := metrics.New(ctrlmetrics.Registry)
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.UserAgent = name
	// A podview.Pod cannot be read from protobuf.
	config.ContentType = runtime.ContentTypeJSON
	// The API server's priority and fairness is the limit, not this side.
	config.QPS = -1
	config.Wrap(m.Transport)
	config.Wrap(eventpace.Transport())
	now := servertime.New(own)
	config.Wrap(now.Transport)

	outages := revision.NewOutages()
	config.Wrap(outages.Transport)

	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                  scheme,
		Logger:                  logger,
		Cache:                   cache.Options(),
		Metrics:                 server.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress:  o.healthAddress,
		LeaderElection:          o.leaderElect,
		LeaderElectionID:        name,
		LeaderElectionNamespace: o.namespace,
		// Nothing runs after Start returns, so the Lease can be given up at once.
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       ptr.To(shutdownGrace),
		// A process may run one manager after another, whose controllers have the same names.
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	if err := cache.AddIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	if err := addControllers(mgr, m, o, now); err != nil {
		return nil, err
	}
	if err := mgr.Add(watchStore(mgr, outages)); err != nil {
		return nil, fmt.Errorf("add the watch of the store: %w", err)
	}
	for probe, add := range map[string]func(string, healthz.Checker) error{
		"healthz": mgr.AddHealthzCheck,
		"readyz":  mgr.AddReadyzCheck,
	} {
		if err := add("ping", healthz.Ping); err != nil {
			return nil, fmt.Errorf("add %s: %w", probe, err)
		}
	}
	return mgr, nil
}

// watchStore ends the controller when the API server's store went back: its
// caches are of a time that never was. Leases are too many to be looked through;
// pools are written soon after them.
func watchStore(mgr ctrl.Manager, outages *revision.Outages) *revision.Watch {
	return &revision.Watch{
		Reader: mgr.GetAPIReader(), Outages: outages, Clock: clock.RealClock{}, Log: mgr.GetLogger(),
		Cached: func(ctx context.Context) (uint64, error) {
			return revision.Greatest(ctx, mgr.GetClient(), &v1alpha1.IPPoolList{}, &corev1.NodeList{})
		},
	}
}

func addControllers(mgr ctrl.Manager, m *metrics.Metrics, o options, now clock.WithTicker) error {
	recorder := event.Recorder{To: mgr.GetEventRecorder(name)}
	reclaims := &reclaim.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: recorder, Metrics: m, Audit: mgr.GetLogger(),
		Clock: now, Namespace: o.namespace, Defaults: o.reclaim,
	}
	if err := reclaims.SetupWithManager(mgr, o.auditPeriod); err != nil {
		return fmt.Errorf("set up reclaim: %w", err)
	}
	pools := &pool.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: recorder, Metrics: m,
		Clock: clock.RealClock{}, Namespace: o.namespace,
	}
	if err := pools.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up pools: %w", err)
	}
	reservations := &reserved.Reconciler{Client: mgr.GetClient(), Events: recorder, Clock: clock.RealClock{}}
	if err := reservations.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up reservations: %w", err)
	}
	indexes := &agents.Reconciler{Client: mgr.GetClient(), Namespace: o.namespace}
	if err := indexes.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up agents: %w", err)
	}
	key := &claimkey.Provider{
		Client: mgr.GetClient(), Namespace: o.namespace, Clock: clock.RealClock{}, Period: o.auditPeriod,
	}
	if err := mgr.Add(key); err != nil {
		return fmt.Errorf("set up the claim key: %w", err)
	}
	return nil
}
