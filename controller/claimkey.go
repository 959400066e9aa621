// SPDX-License-Identifier: Apache-2.0

package main

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
	// keySecret is the Secret that holds the key.
	keySecret = "fenceline-claim-key"
	// currentKey is the data field of the key in use. A rotation keeps the former key as "previous".
	currentKey = "current"
	// keySize is the size of a key in bytes, as SipHash-2-4 needs.
	keySize = 16

	// keyPeriod is the usual pause between two checks that the Secret exists. Agents that start wait a
	// minute for it (agent/guards).
	keyPeriod = 30 * time.Second
	// keyRetry is the pause after a failed attempt.
	keyRetry = 5 * time.Second
)

// keyProvider creates the cluster's claim key if there is none. The agents authenticate claims and acks
// with it. The provider runs on the leader.
type keyProvider struct {
	client    client.Writer
	namespace string
	clock     clock.Clock
}

// Start runs until ctx ends.
func (k *keyProvider) Start(ctx context.Context) error {
	l := loop.Loop{Clock: k.clock, Period: keyPeriod, First: keyRetry, Most: keyRetry}
	l.Failed = func(err error) { log.FromContext(ctx).Error(err, "the claim key could not be created; retrying") }
	return l.Try(ctx, func(ctx context.Context) error {
		created, err := k.ensure(ctx)
		if created {
			log.FromContext(ctx).Info("created the claim key", "secret", keySecret)
		}
		return err
	})
}

// ensure creates the Secret. It reports whether it did. An existing Secret stays as it is, with any
// content: fences between nodes with the old key and nodes with a new key would have no effect. So
// ensure needs no right to read the key, and may run in several processes at the same time.
func (k *keyProvider) ensure(ctx context.Context) (created bool, err error) {
	key := make([]byte, keySize)
	rand.Read(key) // never fails
	err = k.client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: keySecret},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{currentKey: key},
	})
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("create secret %s/%s: %w", k.namespace, keySecret, err)
	}
	return true, nil
}
