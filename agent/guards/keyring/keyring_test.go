// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/check"
)

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
		current, previous, err := keysOf(&corev1.Secret{Data: test.data})
		if test.fails != (err != nil) {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if !test.fails && (current != bpf.ClaimKey([]byte(one)) || (previous != nil) != (test.previous != "")) {
			t.Errorf("%s: %x, %v", test.name, current, previous)
		}
	}
}

// A Secret is written as its current key, then its previous key if it has one.
func TestTheKeysInForceAsTheSecretChanges(t *testing.T) {
	for _, test := range []struct {
		name    string
		secrets []string
		want    string
	}{
		{"the first", []string{"a"}, "a"},
		{"the first, in a rotation", []string{"ba"}, "ba"},
		{"a rotation", []string{"a", "ba"}, "ba"},
		{"a rotation that has ended", []string{"a", "ba", "b"}, "b"},
		{"lost and made again", []string{"a", "b"}, "ba"},
		{"lost and made again, then read again", []string{"a", "b", "b", "b"}, "ba"},
		{"lost in a rotation", []string{"ba", "c"}, "cb"},
		{"lost twice", []string{"a", "b", "c"}, "cb"},
		{"lost, then rotated", []string{"a", "b", "cb"}, "cb"},
		{"lost, then a rotation has ended", []string{"a", "b", "cb", "c"}, "c"},
		{"stolen, and both replaced", []string{"a", "bc"}, "bc"},
		{"stolen, both replaced, and the rotation ended", []string{"a", "bc", "b"}, "b"},
		{"read again", []string{"a", "a"}, "a"},
	} {
		var inForce ring
		for _, secret := range test.secrets {
			var previous *bpf.ClaimKey
			if len(secret) > 1 {
				previous = &bpf.ClaimKey{secret[1]}
			}
			inForce = inForce.next(bpf.ClaimKey{secret[0]}, previous)
		}
		var want []claim.Key
		for _, key := range []byte(test.want) {
			want = append(want, claim.Key{key})
		}
		check.List(t, inForce.keys(), want, "%s:", test.name)
	}
}
