// SPDX-License-Identifier: Apache-2.0

package claimkey_test

import (
	"bytes"
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fenceline/fenceline/controller/claimkey"
	"github.com/fenceline/fenceline/test/check"
)

const namespace = "fenceline-system"

func key(t *testing.T, c client.Client) []byte {
	t.Helper()
	var secret corev1.Secret
	check.OK(t, c.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: claimkey.SecretName}, &secret))
	return secret.Data[claimkey.CurrentKey]
}

func TestClaimKeyIsCreatedOnce(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	p := claimkey.Provider{Client: c, Namespace: namespace}
	created, err := p.Ensure(context.Background())
	check.Must(t, created && err == nil, "created %v, %v", created, err)
	first := key(t, c)
	check.That(t, len(first) == claimkey.Size && !bytes.Equal(first, make([]byte, claimkey.Size)),
		"key %x: want %d random bytes", first, claimkey.Size)
	created, err = p.Ensure(context.Background())
	check.That(t, !created && err == nil, "the second time: created %v, %v", created, err)
	check.That(t, bytes.Equal(key(t, c), first), "the key was overwritten")
}

func TestAClaimKeyIsNeverOverwritten(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: claimkey.SecretName},
	}).Build()
	created, err := (&claimkey.Provider{Client: c, Namespace: namespace}).Ensure(context.Background())
	check.That(t, !created && err == nil, "created %v, %v", created, err)
	got := key(t, c)
	check.That(t, got == nil, "key %x was written into somebody's secret", got)
}
