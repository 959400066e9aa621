package main

import (
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

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/session"
)

const (
	// startPatience is how long an agent that knows who it was waits at its
	// start for the API server to say so again.
	startPatience = 2 * time.Second
	// identityPatience bounds one question: a connection that went dead without
	// a word would block for much longer.
	identityPatience = 5 * time.Second
	// identityRetry is how often the API server is asked.
	identityRetry = 500 * time.Millisecond
)

// errAnotherIdentity ends an agent that went on as somebody it is not any more.
var errAnotherIdentity = errors.New("the node has another identity now, the agent must start again")

// identity is who this agent is to the cluster.
type identity struct {
	// session is the life of this node, cluster the UID of kube-system.
	session, cluster string
}

// identityOf is who a node is in this boot, which goes on with what its journal
// was written in.
func identityOf(id journal.Identity, bootID string, entries []*journal.Entry) identity {
	var sessions []string
	for _, e := range entries {
		sessions = append(sessions, e.Session)
	}
	now := session.ID(types.UID(id.NodeUID), bootID)
	return identity{session: session.Continue(now, sessions), cluster: id.Cluster}
}

// memory keeps who a node is. *journal.Journal implements it.
type memory interface {
	Identity() (journal.Identity, bool)
	PutIdentity(journal.Identity) error
}

// identification finds out who a node is.
type identification struct {
	reader   client.Reader
	memory   memory
	node     string
	patience time.Duration // see startPatience
	log      logr.Logger
}

// identify asks the API server who the node is. Where it does not answer in
// time, the node is who it was: what runs is looked after, although no address
// can be given (R5), and sure is false. Who was never told waits.
func (i identification) identify(ctx context.Context) (id journal.Identity, sure bool, err error) {
	soon, stop := context.WithTimeout(ctx, i.patience)
	defer stop()
	id, err = i.ask(soon)
	if err == nil {
		return id, true, nil
	}
	known, ok := i.memory.Identity()
	if ok && known.Node == i.node && lease.IsUnavailable(err) && ctx.Err() == nil {
		i.log.Info("the API server is away; the node is taken for who it was", "node", known.Node, "uid", known.NodeUID, "why", err.Error())
		return known, false, nil
	}
	id, err = i.ask(ctx)
	return id, err == nil, err
}

// ask asks until there is an answer or ctx ends, and remembers the answer.
func (i identification) ask(ctx context.Context) (journal.Identity, error) {
	var id journal.Identity
	var last error
	err := wait.PollUntilContextCancel(ctx, identityRetry, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, identityPatience)
		defer cancel()
		answer, err := i.askOnce(ctx)
		if err == nil {
			id = answer
			return true, nil
		}
		// The same sentence each time would bury the others.
		if last == nil || err.Error() != last.Error() {
			i.log.Info("waiting for the API server", "why", err.Error())
		}
		last = err
		return false, nil
	})
	if err != nil {
		if last == nil {
			last = err
		}
		return journal.Identity{}, fmt.Errorf("find out who node %s is: %w", i.node, last)
	}
	if err := i.memory.PutIdentity(id); err != nil {
		// The next start will have to wait for the API server.
		i.log.Error(err, "the node's identity is not remembered")
	}
	return id, nil
}

func (i identification) askOnce(ctx context.Context) (journal.Identity, error) {
	node, system := &corev1.Node{}, &metav1.PartialObjectMetadata{}
	system.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := i.reader.Get(ctx, client.ObjectKey{Name: i.node}, node); err != nil {
		return journal.Identity{}, fmt.Errorf("read node %s: %w", i.node, err)
	}
	if err := i.reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return journal.Identity{}, fmt.Errorf("read namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return journal.Identity{Node: i.node, NodeUID: string(node.UID), Cluster: string(system.UID)}, nil
}

// confirm asks whether the node is still who it was taken for, and fails if it
// is not: the next start knows better.
func (i identification) confirm(ctx context.Context, taken journal.Identity) error {
	id, err := i.ask(ctx)
	if err != nil {
		return nil //nolint:nilerr // only the end of ctx, that is of the agent, ends the asking
	}
	if id != taken {
		return fmt.Errorf("%w: it is %+v and was %+v", errAnotherIdentity, id, taken)
	}
	return nil
}
