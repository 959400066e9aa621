// SPDX-License-Identifier: Apache-2.0

// Package claimkey creates the cluster's claim key. The agents authenticate claims and acks with it.
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

	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// SecretName is the Secret that holds the key.
	SecretName = "fenceline-claim-key"
	// CurrentKey is the data field of the key in use. A rotation keeps the former key as "previous".
	CurrentKey = "current"
	// Size is the size of a key in bytes, as SipHash-2-4 needs.
	Size = 16

	// period is the usual pause between two checks that the Secret exists. Agents that start wait a
	// minute for it (agent/guards).
	period = 30 * time.Second
	// retry is the pause after a failed attempt.
	retry = 5 * time.Second
)

// Provider creates the claim key if there is none. It runs on the leader.
type Provider struct {
	Client    client.Client
	Namespace string
	Clock     clock.Clock
}

// Start runs until ctx ends.
func (p *Provider) Start(ctx context.Context) error {
	l := loop.Loop{Clock: p.Clock, Period: period, First: retry, Most: retry}
	l.Failed = func(err error) { log.FromContext(ctx).Error(err, "the claim key could not be created; retrying") }
	return l.Try(ctx, func(ctx context.Context) error {
		created, err := p.Ensure(ctx)
		if created {
			log.FromContext(ctx).Info("created the claim key", "secret", SecretName)
		}
		return err
	})
}

// Ensure creates the Secret. It reports whether it did. An existing Secret stays as it is, with any
// content: fences between nodes with the old key and nodes with a new key would have no effect. So
// Ensure needs no right to read the key, and may run in several processes at the same time.
func (p *Provider) Ensure(ctx context.Context) (created bool, err error) {
	key := make([]byte, Size)
	rand.Read(key) // never fails
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
