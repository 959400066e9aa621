// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/watch"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/apiserver"
)

// syncPatience is how long the watches wait for an API server that is unreachable. A restart of the
// agent would not help, and would interrupt DEL.
const syncPatience = 30 * 24 * time.Hour

// apiServer is the agent's way to the API server.
type apiServer struct {
	config  *rest.Config
	scheme  *runtime.Scheme
	outages *apiserver.Outages
	// now is the server's clock. Records have its time.
	now *apiserver.Clock
}

// findAPIServer reads the configuration of the client. It sends no request, so
// it succeeds while the server is unreachable.
func findAPIServer() (apiServer, error) {
	server, err := ctrl.GetConfig()
	if err != nil {
		return apiServer{}, fmt.Errorf("find the API server: %w", err)
	}
	server.QPS = -1                  // the server limits requests by priority and fairness, see the FlowSchema
	server.DisableCompression = true // each watch would hold 45 kB for it
	outages := apiserver.NewOutages()
	server.Wrap(outages.Transport)
	now := apiserver.NewClock(clock.RealClock{})
	server.Wrap(now.Transport)
	return newAPIServer(server, outages, now)
}

func newAPIServer(server *rest.Config, outages *apiserver.Outages, now *apiserver.Clock) (apiServer, error) {
	scheme, err := watch.Scheme()
	if err != nil {
		return apiServer{}, fmt.Errorf("build the scheme: %w", err)
	}
	return apiServer{server, scheme, outages, now}, nil
}

// client returns a client that reads and watches past any cache.
func (a apiServer) client() (client.WithWatch, error) {
	c, err := client.NewWithWatch(a.config, client.Options{Scheme: a.scheme, Mapper: watch.Kinds()})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return c, nil
}

// manager returns a manager that watches what this node needs.
func (a apiServer) manager(s settings, log logr.Logger) (manager.Manager, error) {
	mgr, err := ctrl.NewManager(a.config, ctrl.Options{
		Scheme:         a.scheme,
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return watch.Kinds(), nil },
		Logger:         log,
		Cache:          watch.Cache(s.node, s.namespace, guards.KeySecret),
		// The leases have no cache: watch.Client has those of this node.
		Client:                 client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&v1alpha1.IPLease{}}}},
		Controller:             config.Controller{CacheSyncTimeout: syncPatience},
		Metrics:                s.metrics.Options(),
		HealthProbeBindAddress: s.healthAddress,
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	return mgr, nil
}
