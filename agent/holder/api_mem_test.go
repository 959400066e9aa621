package holder

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// memAPI is an API server in memory: one count of versions, uids, and the
// preconditions of writes. What a real one adds (validation, admission) is
// tested in agent/lease and test/records.
type memAPI struct {
	client.Client // nil: whatever is not below is not called

	mu      sync.Mutex
	version int
	objects map[string]client.Object
	away    bool
	// before sees each call on a lease; its error is the answer.
	before func(verb, name string) error
	// after sees each update of a lease that was written; its error is the answer.
	after func(name string) error
	// freed sees each lease that is deleted or retained, as it was before.
	freed func(*v1alpha1.IPLease)
	calls map[string]int
}

func newMemAPI() *memAPI {
	return &memAPI{version: 100, objects: map[string]client.Object{}, calls: map[string]int{}}
}

func keyFor(o client.Object, name types.NamespacedName) string {
	kind := fmt.Sprintf("%T", o)
	if partial, ok := o.(*metav1.PartialObjectMetadata); ok {
		kind = "*v1." + partial.Kind
	}
	return kind + " " + name.String()
}

func (m *memAPI) enter(verb string, o client.Object, name string) error {
	m.calls[verb]++
	if m.away {
		return &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	if _, lease := o.(*v1alpha1.IPLease); lease && m.before != nil {
		return m.before(verb, name)
	}
	return nil
}

func (m *memAPI) Get(_ context.Context, name types.NamespacedName, into client.Object, _ ...client.GetOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("get", into, name.Name); err != nil {
		return err
	}
	found, ok := m.objects[keyFor(into, name)]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, name.Name)
	}
	switch into := into.(type) {
	case *v1alpha1.IPLease:
		found.(*v1alpha1.IPLease).DeepCopyInto(into)
	case *v1alpha1.IPPool:
		found.(*v1alpha1.IPPool).DeepCopyInto(into)
	case *corev1.Pod:
		found.(*corev1.Pod).DeepCopyInto(into)
	case *corev1.Node:
		found.(*corev1.Node).DeepCopyInto(into)
	case *metav1.PartialObjectMetadata:
		found.(*corev1.Namespace).ObjectMeta.DeepCopyInto(&into.ObjectMeta)
	default:
		return fmt.Errorf("get of %T", into)
	}
	return nil
}

func (m *memAPI) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("list", nil, ""); err != nil {
		return err
	}
	var o client.ListOptions
	o.ApplyOptions(opts)
	into.SetResourceVersion(strconv.Itoa(m.version))
	for _, object := range m.objects {
		switch object := object.(type) {
		case *v1alpha1.IPPool:
			if list, ok := into.(*v1alpha1.IPPoolList); ok {
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

func (m *memAPI) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("create", o, o.GetName()); err != nil {
		return err
	}
	key := keyFor(o, client.ObjectKeyFromObject(o))
	if _, taken := m.objects[key]; taken {
		return apierrors.NewAlreadyExists(schema.GroupResource{}, o.GetName())
	}
	m.store(key, o)
	return nil
}

// store gives an object the next version, and a uid if it has none.
func (m *memAPI) store(key string, o client.Object) {
	m.version++
	o.SetResourceVersion(strconv.Itoa(m.version))
	if o.GetUID() == "" {
		o.SetUID(types.UID("uid-" + strconv.Itoa(m.version)))
	}
	m.objects[key] = o.DeepCopyObject().(client.Object)
}

func (m *memAPI) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("update", o, o.GetName()); err != nil {
		return err
	}
	key := keyFor(o, client.ObjectKeyFromObject(o))
	present, ok := m.objects[key]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, o.GetName())
	}
	if present.GetUID() != o.GetUID() || present.GetResourceVersion() != o.GetResourceVersion() {
		return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), fmt.Errorf("changed"))
	}
	if l, ok := o.(*v1alpha1.IPLease); ok && l.Spec.State == v1alpha1.StateRetained && m.freed != nil {
		m.freed(present.(*v1alpha1.IPLease))
	}
	m.store(key, o)
	if m.after != nil {
		return m.after(o.GetName())
	}
	return nil
}

func (m *memAPI) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("delete", o, o.GetName()); err != nil {
		return err
	}
	key := keyFor(o, client.ObjectKeyFromObject(o))
	present, ok := m.objects[key]
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
	if l, ok := present.(*v1alpha1.IPLease); ok && m.freed != nil {
		m.freed(l)
	}
	delete(m.objects, key)
	return nil
}

// put stores an object as somebody else does.
func (m *memAPI) put(o client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store(keyFor(o, client.ObjectKeyFromObject(o)), o)
}

// drop deletes an object as somebody else does.
func (m *memAPI) drop(o client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, keyFor(o, client.ObjectKeyFromObject(o)))
}

// leases returns all leases by name.
func (m *memAPI) leases() map[string]*v1alpha1.IPLease {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]*v1alpha1.IPLease{}
	for _, o := range m.objects {
		if l, ok := o.(*v1alpha1.IPLease); ok {
			all[l.Name] = l.DeepCopy()
		}
	}
	return all
}

func (m *memAPI) setAway(away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = away
}

// noPods cannot be asked about pods.
type noPods struct{ *memAPI }

func (n noPods) Get(ctx context.Context, name types.NamespacedName, o client.Object, opts ...client.GetOption) error {
	if _, pod := o.(*corev1.Pod); pod {
		return apierrors.NewForbidden(schema.GroupResource{}, name.Name, fmt.Errorf("not now"))
	}
	return n.memAPI.Get(ctx, name, o, opts...)
}

// undeletable fails to delete.
type undeletable struct{ client.Writer }

func (undeletable) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return apierrors.NewForbidden(schema.GroupResource{}, "", fmt.Errorf("not now"))
}
