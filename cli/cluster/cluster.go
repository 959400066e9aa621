// SPDX-License-Identifier: Apache-2.0

// Package cluster reads a cluster with the rights of the user, and without a cache.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/podview"
)

// AnswerLimit bounds the time for the answer of a program, or for a log, of a node.
const AnswerLimit = 5 * time.Second

// Cluster is a cluster with the rights of its reader.
type Cluster struct {
	client.Client
	// Kube reads the logs of pods, and runs programs in their containers.
	Kube kubernetes.Interface
	// Config is the configuration of both clients.
	Config *rest.Config
	// Namespace is the namespace of Fenceline.
	Namespace string

	indexes indexes

	mu             sync.Mutex
	unread, missed []string
}

// Open returns a cluster. It asks the API server nothing.
func Open(config *rest.Config, namespace string) (*Cluster, error) {
	scheme, err := cache.Scheme()
	if err != nil {
		return nil, err
	}
	if err := eventsv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register the types of events: %w", err)
	}
	config = rest.CopyConfig(config)
	// A podview.Pod cannot be read from protobuf.
	config.ContentType = runtime.ContentTypeJSON
	config.QPS = -1 // the API server's priority and fairness limits the requests
	c := &Cluster{Config: config, Namespace: namespace, indexes: indexes{}}
	if c.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", config.Host, err)
	}
	if c.Kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", config.Host, err)
	}
	return c, cache.AddIndexes(context.Background(), c.indexes)
}

// Get reads an object. It implements client.Reader.
func (c *Cluster) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	return advised(c.Client.Get(ctx, key, o, options...))
}

// errUnbound is the likely reason why a person who may read a namespace may read no record.
var errUnbound = errors.New("records of Fenceline belong to no namespace: " +
	"a ClusterRoleBinding of view or fenceline-view gives this right, a RoleBinding does not")

// advised adds the binding that gives the right to read a record of Fenceline.
func advised(err error) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsForbidden(err) || status.ErrStatus.Details == nil || status.ErrStatus.Details.Group != v1alpha1.GroupName {
		return err
	}
	return fmt.Errorf("%w; %w", err, errUnbound)
}

// MayLack replaces the error of a missing right by nil, and notes that the reader may not read
// these objects, so that the rest of an answer is still given. Safe for concurrent use.
func (c *Cluster) MayLack(objects string, err error) error {
	if err == nil || !apierrors.IsForbidden(err) {
		return err
	}
	if errors.Is(err, errUnbound) {
		objects += fmt.Sprintf(" (%v)", errUnbound)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.unread, objects) {
		c.unread = append(c.unread, objects)
	}
	return nil
}

// Lacks reports whether MayLack has noted these objects.
func (c *Cluster) Lacks(objects string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.unread, func(s string) bool { return strings.HasPrefix(s, objects) })
}

// MayList is List for objects that an answer may lack.
func (c *Cluster) MayList(ctx context.Context, objects string, list client.ObjectList, options ...client.ListOption) error {
	if err := c.MayLack(objects, c.List(ctx, list, options...)); err != nil {
		return fmt.Errorf("list %s: %w", objects, err)
	}
	return nil
}

// Unread returns the objects that the reader may not read.
func (c *Cluster) Unread() []string { return c.unread }

// Miss notes a source that could not be read to its end, such as the log of a node that is cut off.
// Safe for concurrent use.
func (c *Cluster) Miss(what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if missed := fmt.Sprintf("%s: %v", what, err); !slices.Contains(c.missed, missed) {
		c.missed = append(c.missed, missed)
	}
}

// Missed returns the sources that could not be read to their end, and why.
func (c *Cluster) Missed() []string { return c.missed }

// Programs returns the pods of the agents and of the controller that the reader may read.
func (c *Cluster) Programs(ctx context.Context) (onNodes, controllers []podview.Pod, err error) {
	if onNodes, err = agents.List(ctx, c, c.Namespace); err == nil {
		controllers, err = agents.ListOf(ctx, c, c.Namespace, "controller")
	}
	return onNodes, controllers, c.MayLack(c.programs(), err)
}

// LacksPrograms reports whether the reader may not read the pods of the agents and of the controller.
func (c *Cluster) LacksPrograms() bool { return c.Lacks(c.programs()) }

func (c *Cluster) programs() string { return "pods of namespace " + c.Namespace }
