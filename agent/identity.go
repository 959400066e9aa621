package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/session"
)

// identity is who this agent is to the cluster.
type identity struct {
	// session is the life of this node, cluster the UID of kube-system.
	session, cluster string
}

// sessions are those that the entries of a journal were written in.
func sessions(book *journal.Journal) []string {
	var all []string
	for _, e := range book.All() {
		all = append(all, e.Session)
	}
	return all
}

// identify asks the API server until it answers: without it no address can be
// given (R5), and what runs goes on without the agent.
func identify(ctx context.Context, reader client.Reader, nodeName string, log logr.Logger) (identity, error) {
	bootID, err := session.BootID()
	if err != nil {
		return identity{}, err
	}
	var id identity
	err = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		node, system := &corev1.Node{}, &metav1.PartialObjectMetadata{}
		system.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		if err := reader.Get(ctx, client.ObjectKey{Name: nodeName}, node); err != nil {
			log.Info("waiting for the API server", "want", "node "+nodeName, "why", err.Error())
			return false, nil
		}
		if err := reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
			log.Info("waiting for the API server", "want", "namespace "+metav1.NamespaceSystem, "why", err.Error())
			return false, nil
		}
		id = identity{session: session.ID(node.UID, bootID), cluster: string(system.UID)}
		return true, nil
	})
	if err != nil {
		return identity{}, fmt.Errorf("find out who node %s is: %w", nodeName, err)
	}
	return id, nil
}
