// SPDX-License-Identifier: Apache-2.0

package fakenode

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/loop"
)

// API is an API server in memory. It has one count of resourceVersions, UIDs, and the preconditions
// of writes. Only a real one has validation and admission, which agent/lease and test/records test.
type API struct {
	client.Client // nil: tests call only the methods below

	mu      sync.Mutex
	Version int
	Objects map[string]client.Object
	Away    bool
	// Mute: the controller answers no question.
	Mute bool
	// Before sees each call on a lease. Its error is the answer.
	Before func(verb, name string) error
	// Meanwhile runs after each "get" and before each "update" of a lease, and may call the API.
	Meanwhile func(verb, name string)
	// Unlisted is the answer to lists of leases past the cache, if it is not nil.
	Unlisted error
	// After sees each update of a lease that was written. Its error is the answer.
	After func(name string) error
	// Freed sees each lease that is deleted or retained, as it was before.
	Freed func(*v1alpha1.IPLease)
	Calls map[string]int
	// changed is up after each change. ended has the version of each lease that was deleted, by name.
	changed loop.Wake
	ended   map[string]string
}

func NewAPI() *API {
	return &API{Version: 100, Objects: map[string]client.Object{}, Calls: map[string]int{}, changed: loop.NewWake(), ended: map[string]string{}}
}

// Breaks breaks the connection of each call on a lease with this verb.
func (m *API) Breaks(verb string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Before = func(called, _ string) error {
		if called == verb {
			return &NetError{}
		}
		return nil
	}
}

func KeyFor(o client.Object, name types.NamespacedName) string {
	kind := fmt.Sprintf("%T", o)
	if partial, ok := o.(*metav1.PartialObjectMetadata); ok {
		kind = "*v1." + partial.Kind
	}
	return kind + " " + name.String()
}

func (m *API) enter(verb string, o client.Object, name string) error {
	m.Calls[verb]++
	if m.Away {
		return &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	if _, lease := o.(*v1alpha1.IPLease); lease && m.Before != nil {
		return m.Before(verb, name)
	}
	return nil
}

func (m *API) Get(_ context.Context, name types.NamespacedName, into client.Object, _ ...client.GetOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("get", into, name.Name); err != nil {
		return err
	}
	return m.find(name, into)
}

// find requires mu.
func (m *API) find(name types.NamespacedName, into client.Object) error {
	found, ok := m.Objects[KeyFor(into, name)]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, name.Name)
	}
	if partial, ok := into.(*metav1.PartialObjectMetadata); ok {
		found.(*corev1.Namespace).ObjectMeta.DeepCopyInto(&partial.ObjectMeta)
		return nil
	}
	// The key names the type, so both have the same one.
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
	return nil
}

// cache is an agent's cache. It returns pods even while the API server is away.
type cache struct {
	client.Reader
	api *API
}

func (c cache) Get(ctx context.Context, name types.NamespacedName, into client.Object, opts ...client.GetOption) error {
	if _, ok := into.(*corev1.Pod); !ok {
		return c.Reader.Get(ctx, name, into, opts...)
	}
	c.api.mu.Lock()
	defer c.api.mu.Unlock()
	return c.api.find(name, into)
}

func (m *API) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("list", nil, ""); err != nil {
		return err
	}
	var o client.ListOptions
	o.ApplyOptions(opts)
	into.SetResourceVersion(strconv.Itoa(m.Version))
	for _, object := range m.Objects {
		switch object := object.(type) {
		case *v1alpha1.IPPool:
			if list, ok := into.(*v1alpha1.IPPoolList); ok {
				list.Items = append(list.Items, *object.DeepCopy())
			}
		case *v1alpha1.IPSubnet:
			if list, ok := into.(*v1alpha1.IPSubnetList); ok {
				list.Items = append(list.Items, *object.DeepCopy())
			}
		case *v1alpha1.ReservedIP:
			if list, ok := into.(*v1alpha1.ReservedIPList); ok {
				list.Items = append(list.Items, *object.DeepCopy())
			}
		case *v1alpha1.IPLease:
			if o.FieldSelector != nil && !o.FieldSelector.Matches(leaseFields{object}) {
				continue
			}
			switch list := into.(type) {
			case *v1alpha1.IPLeaseList:
				list.Items = append(list.Items, *object.DeepCopy())
			case *metav1.PartialObjectMetadataList:
				list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: *object.ObjectMeta.DeepCopy()})
			}
		}
	}
	return nil
}

// leaseFields are the selectable fields of a lease.
type leaseFields struct{ *v1alpha1.IPLease }

func (f leaseFields) Has(string) bool { return true }
func (f leaseFields) Get(field string) string {
	switch field {
	case "spec.pool":
		return f.Spec.Pool
	case "spec.state":
		return string(f.Spec.State)
	case "spec.holder.namespace":
		if f.Spec.Holder != nil {
			return f.Spec.Holder.Namespace
		}
	}
	return ""
}

func (m *API) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("create", o, o.GetName()); err != nil {
		return err
	}
	key := KeyFor(o, client.ObjectKeyFromObject(o))
	if _, taken := m.Objects[key]; taken {
		return apierrors.NewAlreadyExists(schema.GroupResource{}, o.GetName())
	}
	m.Store(key, o)
	return nil
}

// Store stores an object with the next resourceVersion and a UID. It requires mu.
func (m *API) Store(key string, o client.Object) {
	m.Version++
	o.SetResourceVersion(strconv.Itoa(m.Version))
	if o.GetUID() == "" {
		o.SetUID(types.UID("uid-" + strconv.Itoa(m.Version)))
	}
	m.Objects[key] = o.DeepCopyObject().(client.Object)
	m.changed.Up()
}

func (m *API) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("update", o, o.GetName()); err != nil {
		return err
	}
	key := KeyFor(o, client.ObjectKeyFromObject(o))
	present, ok := m.Objects[key]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, o.GetName())
	}
	if present.GetUID() != o.GetUID() || present.GetResourceVersion() != o.GetResourceVersion() {
		return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), fmt.Errorf("changed"))
	}
	if l, ok := o.(*v1alpha1.IPLease); ok && l.Spec.State == v1alpha1.StateRetained && m.Freed != nil {
		m.Freed(present.(*v1alpha1.IPLease))
	}
	m.Store(key, o)
	if m.After != nil {
		return m.After(o.GetName())
	}
	return nil
}

func (m *API) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("delete", o, o.GetName()); err != nil {
		return err
	}
	key := KeyFor(o, client.ObjectKeyFromObject(o))
	present, ok := m.Objects[key]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, o.GetName())
	}
	var options client.DeleteOptions
	options.ApplyOptions(opts)
	if p := options.Preconditions; p != nil {
		if p.UID != nil && *p.UID != present.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != present.GetResourceVersion() {
			return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), fmt.Errorf("precondition"))
		}
	}
	if l, ok := present.(*v1alpha1.IPLease); ok && m.Freed != nil {
		m.Freed(l)
	}
	m.end(key, o)
	return nil
}

// Put stores an object as another client of the API does.
func (m *API) Put(o client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Store(KeyFor(o, client.ObjectKeyFromObject(o)), o)
}

// Drop deletes an object as another client of the API does.
func (m *API) Drop(o client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.end(KeyFor(o, client.ObjectKeyFromObject(o)), o)
}

// end deletes an object. It requires mu.
func (m *API) end(key string, o client.Object) {
	delete(m.Objects, key)
	m.Version++
	m.ended[o.GetName()] = strconv.Itoa(m.Version)
	m.changed.Up()
}

// Leases returns all leases by name.
func (m *API) Leases() map[string]*v1alpha1.IPLease {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]*v1alpha1.IPLease{}
	for _, o := range m.Objects {
		if l, ok := o.(*v1alpha1.IPLease); ok {
			all[l.Name] = l.DeepCopy()
		}
	}
	return all
}

func (m *API) SetAway(away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Away = away
	m.changed.Up()
}

// Outage reports that an API server that is away is known to be away, since when this node does not say.
func (m *API) Outage() (since time.Time, away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Time{}, m.Away
}

// ChangePod changes a pod of the namespace shop, if it exists, as another client of the API does.
func (m *API) ChangePod(name string, change func(*corev1.Pod)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := KeyFor(&corev1.Pod{}, ClientObjectKey(name))
	if found, ok := m.Objects[key]; ok {
		pod := found.DeepCopyObject().(*corev1.Pod)
		change(pod)
		m.Store(key, pod)
	}
}
