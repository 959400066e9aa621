// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fenceline/fenceline/test/check"
)

func keyIn(t *testing.T, c client.Client) []byte {
	t.Helper()
	var secret corev1.Secret
	check.OK(t, c.Get(context.Background(), types.NamespacedName{Namespace: "net", Name: keySecret}, &secret))
	return secret.Data[currentKey]
}

func TestClaimKeyIsCreatedOnce(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	p := keyProvider{client: c, namespace: "net"}
	created, err := p.ensure(context.Background())
	check.Must(t, created && err == nil, "created %v, %v", created, err)
	first := keyIn(t, c)
	check.That(t, len(first) == keySize && !bytes.Equal(first, make([]byte, keySize)),
		"key %x: want %d random bytes", first, keySize)
	created, err = p.ensure(context.Background())
	check.That(t, !created && err == nil, "the second time: created %v, %v", created, err)
	check.That(t, bytes.Equal(keyIn(t, c), first), "the key was overwritten")
}

func TestAClaimKeyIsNeverOverwritten(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "net", Name: keySecret},
	}).Build()
	created, err := (&keyProvider{client: c, namespace: "net"}).ensure(context.Background())
	check.That(t, !created && err == nil, "created %v, %v", created, err)
	got := keyIn(t, c)
	check.That(t, got == nil, "key %x was written into somebody's secret", got)
}
