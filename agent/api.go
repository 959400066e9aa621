package main

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fenceline/fenceline/apis/revision"
	"github.com/fenceline/fenceline/apis/servertime"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// syncPatience is how long the watches wait for an API server that is away. An
// agent that ends and starts again serves no DEL meanwhile, and is no nearer to it.
const syncPatience = 30 * 24 * time.Hour

// apiServer is how the agent reaches the API server.
type apiServer struct {
	config  *rest.Config
	scheme  *runtime.Scheme
	outages *revision.Outages
	// now is the server's time, which is what records carry.
	now *servertime.Clock
}

// findAPIServer asks nobody, so that it succeeds while the server is away.
func findAPIServer() (apiServer, error) {
	server, err := ctrl.GetConfig()
	if err != nil {
		return apiServer{}, fmt.Errorf("find the API server: %w", err)
	}
	server.QPS = -1 // priority and fairness is the server's business, see the FlowSchema
	outages := revision.NewOutages()
	server.Wrap(outages.Transport)
	now := servertime.New(clock.RealClock{})
	server.Wrap(now.Transport)
	return newAPIServer(server, outages, now)
}

func newAPIServer(server *rest.Config, outages *revision.Outages, now *servertime.Clock) (apiServer, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return apiServer{}, fmt.Errorf("build the scheme: %w", err)
	}
	return apiServer{server, scheme, outages, now}, nil
}

// kinds maps what the agent reads and writes to its resources. The API server
// is not asked for it: it may be away when the agent starts, and a call that
// discovers resources heeds no deadline.
func kinds() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"IPPool", "IPLease", "ReservedIP"} {
		m.Add(v1alpha1.GroupVersion().WithKind(kind), meta.RESTScopeRoot)
	}
	for _, kind := range []string{"Node", "Namespace"} {
		m.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	for _, kind := range []string{"Pod", "Secret"} {
		m.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	return m
}

// reader reads past any cache.
func (a apiServer) reader() (client.Reader, error) {
	c, err := client.New(a.config, client.Options{Scheme: a.scheme, Mapper: kinds()})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return c, nil
}

func (a apiServer) manager(s settings, log logr.Logger) (manager.Manager, error) {
	mgr, err := ctrl.NewManager(a.config, ctrl.Options{
		Scheme:                 a.scheme,
		MapperProvider:         func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return kinds(), nil },
		Logger:                 log,
		Cache:                  watched(s),
		Controller:             config.Controller{CacheSyncTimeout: syncPatience},
		Metrics:                metricsserver.Options{BindAddress: s.metricsAddress},
		HealthProbeBindAddress: s.healthAddress,
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	return mgr, nil
}
