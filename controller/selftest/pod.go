// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

const (
	// Port is the TCP port on which a pod of the test answers with its name.
	Port = 8080
	// answerLimit bounds each question of a pod.
	answerLimit = 2 * time.Second
	// apiName is a name that each cluster has.
	apiName = "kubernetes.default.svc"
)

// Pod is one of the two pods of the test.
type Pod struct {
	// Client reads from the API server.
	Client          client.Client
	Namespace, Name string
}

// Serve answers with the name of the pod until ctx ends.
func (p Pod) Serve(ctx context.Context) error {
	server := &http.Server{
		Addr: fmt.Sprintf(":%d", Port), ReadHeaderTimeout: answerLimit,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, p.Name) }),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Check checks, from inside the pod, that its addresses are leased and on its interfaces, that their guards drop a frame
// with a foreign source, if they are there and enforced, that the other pod answers at its addresses, and that DNS answers.
func (p Pod) Check(ctx context.Context) error {
	leases, err := leasesOf(ctx, p.Client, p.Namespace)
	if err != nil {
		return fmt.Errorf("ask the API server, by the Service kubernetes: %w", err)
	}
	own := leases[p.Name]
	if len(own) == 0 {
		return errors.New("no lease is bound to this pod: its interfaces have no address of a pool")
	}
	var all []error
	for i := range own {
		all = append(all, p.checkLease(ctx, &own[i]))
	}
	delete(leases, p.Name)
	all = append(all, reach(ctx, own, leases), resolve(ctx))
	return errors.Join(all...)
}

// checkLease checks that an interface of the pod has the address of a lease, and its guard.
func (p Pod) checkLease(ctx context.Context, l *v1alpha1.IPLease) error {
	i, err := net.InterfaceByName(l.Spec.Holder.Interface)
	if err != nil {
		return fmt.Errorf("address %s: %w", l.Spec.Address, err)
	}
	addrs, err := i.Addrs()
	if err != nil {
		return fmt.Errorf("read the addresses of %s: %w", i.Name, err)
	}
	if !slices.ContainsFunc(addrs, func(a net.Addr) bool { return strings.HasPrefix(a.String(), l.Spec.Address+"/") }) {
		return fmt.Errorf("interface %s has %v, and the lease of this pod is for %s", i.Name, addrs, l.Spec.Address)
	}
	untested, err := whyUntested(ctx, p.Client, l)
	if err != nil || untested != "" {
		return err
	}
	return isGuarded(i, l.Spec.Addr())
}

// whyUntested returns the reason for which a pod does not test the guard of a lease, or "".
func whyUntested(ctx context.Context, c client.Client, l *v1alpha1.IPLease) (string, error) {
	pool := &v1alpha1.IPPool{}
	if err := c.Get(ctx, client.ObjectKey{Name: l.Spec.Pool}, pool); err != nil {
		return "", fmt.Errorf("read pool %s: %w", l.Spec.Pool, err)
	}
	switch {
	case !l.Spec.Holder.Guarded:
		return "interface " + l.Spec.Holder.Interface + " has none", nil
	case pool.Spec.SourceGuard != v1alpha1.SourceGuardEnforce:
		return "sourceGuard of the pool is " + string(pool.Spec.SourceGuard), nil
	}
	return "", nil
}

// reach asks the other pods for their names, on the interfaces that have addresses of both.
func reach(ctx context.Context, own []v1alpha1.IPLease, others map[string][]v1alpha1.IPLease) error {
	var all []error
	asked := false
	for name, theirs := range others {
		for i := range theirs {
			to := theirs[i].Spec.Addr()
			from := slices.IndexFunc(own, func(l v1alpha1.IPLease) bool {
				return l.Spec.Holder.Interface == theirs[i].Spec.Holder.Interface && l.Spec.Addr().Is4() == to.Is4()
			})
			if from >= 0 {
				asked = true
				all = append(all, ask(ctx, own[from].Spec.Addr(), to, name))
			}
		}
	}
	if !asked {
		return errors.New("the other pod has no address yet")
	}
	return errors.Join(all...)
}

// ask asks a pod for its name from an address of this pod.
func ask(ctx context.Context, from, to netip.Addr, name string) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	c := http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	question, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+netip.AddrPortFrom(to, Port).String(), nil)
	if err != nil {
		return err
	}
	answer, err := c.Do(question)
	if err != nil {
		return fmt.Errorf("reach %s at %s from %s: %w", name, to, from, err)
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err == nil && string(said) != name {
		err = fmt.Errorf("%q answers at %s, the address of %s", said, to, name)
	}
	return err
}

func resolve(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	if _, err := net.DefaultResolver.LookupHost(ctx, apiName); err != nil {
		return fmt.Errorf("DNS: %w", err)
	}
	return nil
}

// leasesOf returns the leases that are bound to the pods of the test, by the names of the pods.
func leasesOf(ctx context.Context, c client.Client, namespace string) (map[string][]v1alpha1.IPLease, error) {
	pods, err := podsOf(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	var leases v1alpha1.IPLeaseList
	if err := c.List(ctx, &leases, client.MatchingFields{"spec.holder.namespace": namespace}); err != nil {
		return nil, fmt.Errorf("list the leases of namespace %s: %w", namespace, err)
	}
	of := map[string][]v1alpha1.IPLease{}
	for _, l := range leases.Items {
		if l.Spec.State == v1alpha1.StateBound && slices.ContainsFunc(pods, func(p corev1.Pod) bool { return string(p.UID) == l.Spec.Holder.PodUID }) {
			of[l.Spec.Holder.Pod] = append(of[l.Spec.Holder.Pod], l)
		}
	}
	return of, nil
}

// podsOf returns the pods of the test that are not on their way out.
func podsOf(ctx context.Context, c client.Client, namespace string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := c.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": "fenceline", "app.kubernetes.io/component": "test"})
	if err != nil {
		return nil, fmt.Errorf("list the pods of the test: %w", err)
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), nil
}
