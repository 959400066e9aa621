// SPDX-License-Identifier: Apache-2.0

package cidr

import (
	"context"
	"errors"
	"net/netip"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/internal/loop"
)

const (
	firstPause = time.Second
	// longestPause bounds the pause while the API server is away. refusedPause bounds it while the
	// server answers that it has no such objects, or does not allow to read them. That lasts until
	// somebody upgrades the cluster or the chart, and all agents ask.
	longestPause, refusedPause = 30 * time.Second, 5 * time.Minute
)

// serviceRemedy says what to do while the service CIDRs are unknown.
const serviceRemedy = "name them in the chart's value cni.hostLink.serviceCIDRs"

// Reasons why the service CIDRs are unknown.
var (
	// ErrNotRead: the API server has not answered since the agent started.
	ErrNotRead = errors.New("the service CIDRs are unknown: the API server has not answered yet; wait for it, or " + serviceRemedy)
	// ErrNotServed: the API server is older than Kubernetes 1.33, and does not name its ranges.
	ErrNotServed = errors.New("the service CIDRs are unknown: this API server does not serve ServiceCIDRs (networking.k8s.io/v1, from Kubernetes 1.33 on), and refuses to name its ranges to the agent; upgrade the chart's release, or " + serviceRemedy)
	// ErrForbidden: the agent's ClusterRole is not that of the chart.
	ErrForbidden = errors.New("the service CIDRs are unknown: the agent may not list ServiceCIDRs; allow it as the chart's ClusterRole fenceline-agent does, or " + serviceRemedy)
	// ErrNone: the API server has no ServiceCIDR.
	ErrNone = errors.New("the service CIDRs are unknown: the API server has no ServiceCIDR; " + serviceRemedy)
)

// Run follows the ServiceCIDR objects until ctx ends, or asks for the ranges while the API server
// serves none. Service CIDRs that were read stay known while the API server is away. This watch is not
// among those of the manager: ADD waits for them, and an API server may not serve ServiceCIDRs.
func (s *Services) Run(ctx context.Context) error {
	if s.client == nil {
		return nil
	}
	reflector := cache.NewReflectorWithOptions(newSource(s.client), &networkingv1.ServiceCIDR{}, &store{cache.NewStore(cache.MetaNamespaceKeyFunc), s},
		cache.ReflectorOptions{Logger: &s.log})
	away := loop.Backoff{First: firstPause, Most: longestPause}
	refused := loop.Backoff{First: firstPause, Most: refusedPause}
	for ctx.Err() == nil {
		err := reflector.ListAndWatchWithContext(ctx)
		pause := firstPause
		if apierrors.IsNotFound(err) {
			pause = refusedPause
			err = s.ask(ctx)
		}
		if err == nil {
			away.Reset()
			refused.Reset()
		} else {
			pace := &away
			if reason := refusal(err); reason != nil {
				pace = &refused
				if _, unknown := s.Prefixes(); unknown != nil {
					s.set(nil, reason)
				}
			}
			if pace.IsNew(err) {
				s.log.Error(err, "the ServiceCIDRs cannot be read; the agent tries again")
			}
			pause = pace.Next()
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait.Jitter(pause, 1)):
		}
	}
	return nil
}

// refusal returns the reason of an answer that lasts, or nil for all other errors.
func refusal(err error) error {
	switch {
	case errors.Is(err, ErrNotServed):
		return ErrNotServed
	case apierrors.IsForbidden(err):
		return ErrForbidden
	}
	return nil
}

// serviceSource lists and watches the ServiceCIDR objects.
type serviceSource struct{ cache.ListWatch }

func newSource(c client.WithWatch) *serviceSource {
	return &serviceSource{cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &networkingv1.ServiceCIDRList{}
			err := c.List(ctx, list, &client.ListOptions{Raw: &o})
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, &networkingv1.ServiceCIDRList{}, &client.ListOptions{Raw: &o})
		},
	}}
}

// IsWatchListSemanticsUnSupported has the reflector list first: there are few objects.
func (*serviceSource) IsWatchListSemanticsUnSupported() bool { return true }

// store turns ServiceCIDR objects into prefixes. An object that is being deleted counts until it is
// gone: the API server keeps it while Services have addresses of it. One goroutine changes the store.
type store struct {
	cache.Store
	cidrs *Services
}

func (s *store) Add(o any) error                     { return s.tell(s.Store.Add(o)) }
func (s *store) Update(o any) error                  { return s.tell(s.Store.Update(o)) }
func (s *store) Delete(o any) error                  { return s.tell(s.Store.Delete(o)) }
func (s *store) Replace(list []any, at string) error { return s.tell(s.Store.Replace(list, at)) }

// tell sets the service CIDRs after a change. A prefix that no route may have is left out.
func (s *store) tell(err error) error {
	var all []netip.Prefix
	for _, o := range s.List() {
		object := o.(*networkingv1.ServiceCIDR) // the reflector passes no other type
		for _, text := range object.Spec.CIDRs {
			p, err := ParseService(text)
			if err != nil {
				s.cidrs.log.Error(err, "pods do not reach Services of this prefix", "serviceCIDR", object.Name)
				continue
			}
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		s.cidrs.set(nil, ErrNone)
	} else {
		s.cidrs.set(all, nil)
	}
	return err
}
