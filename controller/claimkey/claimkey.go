// Package claimkey provides the cluster's claim key, with which agents
// authenticate claims and acks.
package claimkey

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// SecretName is the Secret that holds the key.
	SecretName = "fenceline-claim-key"
	// CurrentKey is the datum of the key in use; rotation keeps the one before as "previous".
	CurrentKey = "current"
	// Size of a key in bytes, that of SipHash-2-4.
	Size = 16
)

// retry is the pause after a failed attempt.
const retry = 5 * time.Second

// Provider creates the claim key if there is none. It runs on the leader.
type Provider struct {
	Client    client.Client
	Namespace string
	Clock     clock.Clock
	// Period at which it is looked whether the Secret is still there.
	Period time.Duration
}

// Start runs until ctx ends.
func (p *Provider) Start(ctx context.Context) error {
	for {
		pause := p.Period
		switch created, err := p.Ensure(ctx); {
		case err != nil:
			log.FromContext(ctx).Error(err, "the claim key is not there")
			pause = retry
		case created:
			log.FromContext(ctx).Info("created the claim key", "secret", SecretName)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.Clock.After(pause):
		}
	}
}

// Ensure creates the Secret and says whether it did. One that exists is left as
// it is, whatever is in it: a key that was overwritten would leave every fence
// between nodes with the old and nodes with the new one without effect. So it
// only ever creates, needs no right to read the key, and may run at the same time
// as another.
func (p *Provider) Ensure(ctx context.Context) (created bool, err error) {
	key := make([]byte, Size)
	if _, err := rand.Read(key); err != nil {
		return false, fmt.Errorf("draw a claim key: %w", err)
	}
	err = p.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: SecretName},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{CurrentKey: key},
	})
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("create secret %s/%s: %w", p.Namespace, SecretName, err)
	}
	return true, nil
}
