// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// Patience is how long a starting agent that knows its identity waits for the API server.
	Patience = time.Second
	// askTimeout bounds one question. Without this bound, a dead connection blocks for much longer.
	askTimeout = 5 * time.Second
	// askPeriod is the time between two questions to the API server.
	askPeriod = 500 * time.Millisecond
)

// ErrAnotherIdentity ends an agent that went on under an identity which its node has lost.
var ErrAnotherIdentity = errors.New("the node has another identity now, the agent must start again")

// Identity is the identity of this agent in the cluster.
type Identity struct {
	// Session is the life of this node, Cluster the UID of the kube-system namespace.
	Session, Cluster string
}

// Identify returns the identity of a node in this boot. The node continues the
// session of its journal's entries, if it is of this boot: a Node object that was deleted
// and registered again has another UID, but its pods are still the same.
func Identify(id attachment.Identity, bootID string, entries []*attachment.Entry) Identity {
	now := ID(types.UID(id.NodeUID), bootID)
	for _, e := range entries {
		if SameBoot(e.Session, now) {
			return Identity{Session: e.Session, Cluster: id.Cluster}
		}
	}
	return Identity{Session: now, Cluster: id.Cluster}
}

// Inquiry asks the API server for the identity of a node. All fields are required.
type Inquiry struct {
	Reader client.Reader
	// Memory keeps the identity over restarts.
	Memory   *attachment.Document[attachment.Identity]
	Node     string
	Patience time.Duration // see the constant Patience
	Log      logr.Logger
}

// Ask asks the API server for the identity. If it does not answer in time, sure is false, and the
// identity is the stored one: the agent can look after running pods, but give no address (R5).
// Without a stored identity, Ask waits until ctx ends.
func (i Inquiry) Ask(ctx context.Context) (id attachment.Identity, sure bool, err error) {
	soon, stop := context.WithTimeout(ctx, i.Patience)
	defer stop()
	id, err = i.poll(soon)
	if err == nil {
		return id, true, nil
	}
	known, ok := i.Memory.Get()
	if ok && known.Node == i.Node && IsUnavailable(err) && ctx.Err() == nil {
		i.Log.Info("the API server is unavailable; the agent goes on under the identity that the node had", "node", known.Node, "uid", known.NodeUID, "why", err.Error())
		return known, false, nil
	}
	id, err = i.poll(ctx)
	return id, err == nil, err
}

// poll asks until there is an answer or ctx ends, and remembers the answer.
func (i Inquiry) poll(ctx context.Context) (attachment.Identity, error) {
	var id attachment.Identity
	var last error
	var tries loop.Backoff
	err := wait.PollUntilContextCancel(ctx, askPeriod, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		answer, err := i.askOnce(ctx)
		if err == nil {
			id = answer
			return true, nil
		}
		if tries.IsNew(err) {
			i.Log.Info("waiting for the API server", "why", err.Error())
		}
		last = err
		return false, nil
	})
	if err != nil {
		return attachment.Identity{}, fmt.Errorf("find the identity of node %s: %w", i.Node, cmp.Or(last, err))
	}
	if err := i.Memory.Put(id); err != nil {
		i.Log.Error(err, "the node's identity could not be stored; the next start needs the API server")
	}
	return id, nil
}

func (i Inquiry) askOnce(ctx context.Context) (attachment.Identity, error) {
	node, system := &corev1.Node{}, &metav1.PartialObjectMetadata{}
	system.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := i.Reader.Get(ctx, client.ObjectKey{Name: i.Node}, node); err != nil {
		return attachment.Identity{}, fmt.Errorf("read node %s: %w", i.Node, err)
	}
	if err := i.Reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return attachment.Identity{}, fmt.Errorf("read namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return attachment.Identity{Node: i.Node, NodeUID: string(node.UID), Cluster: string(system.UID)}, nil
}

// Confirm asks until the API server answers, and returns ErrAnotherIdentity if
// the answer is not the assumed identity. The next start then uses the answer.
func (i Inquiry) Confirm(ctx context.Context, assumed attachment.Identity) error {
	id, err := i.poll(ctx)
	if err != nil {
		return nil //nolint:nilerr // only the end of ctx, that is of the agent, ends the asking
	}
	if id != assumed {
		return fmt.Errorf("%w: it is %+v and was %+v", ErrAnotherIdentity, id, assumed)
	}
	return nil
}
