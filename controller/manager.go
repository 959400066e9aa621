// SPDX-License-Identifier: Apache-2.0

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
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/hint"
	"github.com/fenceline/fenceline/controller/metrics"
	"github.com/fenceline/fenceline/controller/move"
	"github.com/fenceline/fenceline/controller/page"
	"github.com/fenceline/fenceline/controller/pool"
	"github.com/fenceline/fenceline/controller/reclaim"
	"github.com/fenceline/fenceline/controller/reserved"
	"github.com/fenceline/fenceline/controller/subnet"
	"github.com/fenceline/fenceline/internal/access"
	"github.com/fenceline/fenceline/internal/apiserver"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/metricsendpoint"
	"github.com/fenceline/fenceline/internal/owner"
)

const (
	name = "fenceline-controller"
	// shutdownGrace is the time for running reconciles to end. It is well within the pod's grace
	// period. The leader's Lease is released after it.
	shutdownGrace = 5 * time.Second
)

// newManager returns the manager with all controllers. own is this machine's clock.
func newManager(ctx context.Context, config *rest.Config, o options, logger logr.Logger, own clock.WithTicker) (ctrl.Manager, error) {
	scheme, err := cache.Scheme()
	if err != nil {
		return nil, err
	}
	m := metrics.New(ctrlmetrics.Registry)
	ctrlmetrics.Registry.MustRegister(metricsendpoint.BuildInfo())
	config = rest.CopyConfig(config)
	config.UserAgent = name
	// A podview.Pod cannot be read from protobuf.
	config.ContentType = runtime.ContentTypeJSON
	// The API server's priority and fairness limits the requests, not this client.
	config.QPS = -1
	config.Wrap(m.Transport)
	now := apiserver.NewClock(own)
	config.Wrap(now.Transport)

	outages := apiserver.NewOutages()
	config.Wrap(outages.Transport)

	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                  scheme,
		Logger:                  logger,
		Cache:                   cache.Options(),
		Metrics:                 o.metrics.Options(),
		HealthProbeBindAddress:  o.healthAddress,
		LeaderElection:          o.leaderElect,
		LeaderElectionID:        name,
		LeaderElectionNamespace: o.namespace,
		// Nothing runs after Start returns, so the Lease can be released at once.
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       ptr.To(shutdownGrace),
		// Tests run several managers in one process. Their controllers have the same names.
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

// watchStore ends the controller if the API server's store went back. It compares pools and nodes.
// Leases are too many to compare, and each change of leases is followed by a write of their pool.
func watchStore(mgr ctrl.Manager, outages *apiserver.Outages) *apiserver.RevisionWatch {
	return &apiserver.RevisionWatch{
		Reader: mgr.GetAPIReader(), Outages: outages, Clock: clock.RealClock{}, Log: mgr.GetLogger(),
		Cached: func(ctx context.Context) (uint64, error) {
			return apiserver.GreatestRevision(ctx, mgr.GetClient(), &v1alpha1.IPPoolList{}, &corev1.NodeList{})
		},
	}
}

func addControllers(mgr ctrl.Manager, m *metrics.Metrics, o options, now clock.WithTicker) error {
	recorder := event.Recorder{To: event.NewPaced(mgr.GetEventRecorder(name), clock.RealClock{}, mgr.GetLogger())}
	watches, err := client.NewWithWatch(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("make a client for watches: %w", err)
	}
	owners := owner.Asker{Live: mgr.GetAPIReader(), Scales: mgr.GetClient(), Mapper: mgr.GetRESTMapper(), Watches: watches}
	reclaims := &reclaim.Reconciler{
		Reader: reclaim.Reader{
			Cache: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: now, Namespace: o.namespace, Defaults: o.reclaim,
			Owners: owners, OwnerUnknown: m.OwnerUnknown,
		},
		Client: mgr.GetClient(), Events: recorder, Metrics: m, Audit: mgr.GetLogger(),
	}
	pools := &pool.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: recorder, Metrics: m,
		Clock: clock.RealClock{}, Namespace: o.namespace,
	}
	reservations := &reserved.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: recorder, Clock: clock.RealClock{}}
	subnets := &subnet.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: recorder, Metrics: m, Clock: clock.RealClock{}, Settle: o.settle,
		V4: o.defaultSubnets4, V6: o.defaultSubnets6, Owners: owners,
	}
	hints := &hint.Reconciler{Client: mgr.GetClient(), Clock: clock.RealClock{}}
	moves := &move.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: recorder, Clock: now}
	indexes := &agents.Reconciler{Client: mgr.GetClient(), Namespace: o.namespace}
	key := &keyProvider{client: mgr.GetClient(), namespace: o.namespace, clock: clock.RealClock{}}
	setUps := map[string]func(ctrl.Manager) error{
		"reclaim": func(mgr ctrl.Manager) error { return reclaims.SetupWithManager(mgr, o.auditPeriod) },
		"pools":   pools.SetupWithManager, "reservations": reservations.SetupWithManager, "subnets": subnets.SetupWithManager,
		"hints": hints.SetupWithManager, "moves": moves.SetupWithManager, "agents": indexes.SetupWithManager, "the claim key": func(mgr ctrl.Manager) error { return mgr.Add(key) },
	}
	if o.scheduling {
		setUps["the labels of nodes"] = (&pool.NodeLabels{Client: mgr.GetClient(), Clock: clock.RealClock{}}).SetupWithManager
	}
	for what, setUp := range setUps {
		if err := setUp(mgr); err != nil {
			return fmt.Errorf("set up %s: %w", what, err)
		}
	}
	return addPage(mgr, o, reclaims.Reader)
}

// addPage serves the page if it has an address.
func addPage(mgr ctrl.Manager, o options, rules reclaim.Reader) error {
	if o.uiAddress == "" {
		return nil
	}
	assets, err := page.Assets()
	if err != nil {
		return fmt.Errorf("read the files of the page: %w", err)
	}
	judge, err := access.New(mgr.GetConfig(), mgr.GetHTTPClient(), page.AllowedFor)
	if err != nil {
		return err
	}
	server := &page.Server{
		Address: o.uiAddress, CertDir: o.uiCertDir, Reader: mgr.GetClient(), Watch: page.Watching(mgr.GetCache()),
		Judge: judge, Explain: rules.Explain, Assets: assets, Log: mgr.GetLogger().WithName("page"),
	}
	if err := mgr.Add(server); err != nil {
		return fmt.Errorf("set up the page: %w", err)
	}
	return nil
}
