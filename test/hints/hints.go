// SPDX-License-Identifier: Apache-2.0

// Package hints keeps the hints of the nodes for tests that have agents and no controller.
package hints

import (
	"context"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/hint"
	"github.com/fenceline/fenceline/test/check"
)

// Keep keeps the hints as a controller does, until stop is called or the test ends. It does not wait, and an API
// server that is away ends nothing. A test that starts a controller stops it first: of two leaders, each would write
// its own ID again and again.
func Keep(t testing.TB, access *rest.Config) (stop func()) {
	t.Helper()
	access = rest.CopyConfig(access)
	access.QPS, access.ContentType = -1, runtime.ContentTypeJSON // as the controller's
	mgr := check.Value(ctrl.NewManager(access, ctrl.Options{
		Scheme: check.Value(cache.Scheme())(t), Cache: cache.Options(), Logger: logr.Discard(),
		Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	check.OK(t, cache.AddIndexes(ctx, mgr.GetFieldIndexer()))
	reconciler := &hint.Reconciler{Client: mgr.GetClient(), Clock: clock.RealClock{}}
	check.OK(t, reconciler.SetupWithManager(mgr))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		check.Is(t, <-ended, nil, "the hints ended:")
	})
	t.Cleanup(stop)
	return stop
}
