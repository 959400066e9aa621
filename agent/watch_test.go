package main

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/claim"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
)

func TestTheNetworksOfPoolsAreToldOnce(t *testing.T) {
	pools := make([]v1alpha1.IPPool, 3)
	pools[2].Spec.Network = "storage"
	want := []uint64{claim.Network("c", ""), claim.Network("c", "storage")}
	if got := networks("c", pools); !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	if got := networks("c", nil); got == nil || len(got) != 0 {
		t.Errorf("without pools: %x", got)
	}
}

func TestTheClaimKeysOfASecret(t *testing.T) {
	one, two := "0123456789abcdef", "fedcba9876543210"
	for _, test := range []struct {
		name     string
		data     map[string][]byte
		previous string
		fails    bool
	}{
		{"one key", map[string][]byte{"current": []byte(one)}, "", false},
		{"a rotation", map[string][]byte{"current": []byte(one), "previous": []byte(two)}, two, false},
		{"no key", nil, "", true},
		{"a short key", map[string][]byte{"current": []byte("short")}, "", true},
		{"a short previous key", map[string][]byte{"current": []byte(one), "previous": []byte("short")}, "", true},
	} {
		current, previous, err := claimKeys(&corev1.Secret{Data: test.data})
		if test.fails != (err != nil) {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if !test.fails && (current != bpf.ClaimKey([]byte(one)) || (previous != nil) != (test.previous != "")) {
			t.Errorf("%s: %x, %v", test.name, current, previous)
		}
	}
}
