// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/dchest/siphash"

	"github.com/fenceline/fenceline/test/check"
)

const sipMessage = 40

// sipHash runs the C code of siphash.h in the kernel.
func sipHash(t *testing.T) func(key [16]byte, message [sipMessage]byte) uint64 {
	t.Helper()
	coll := check.Value(ebpf.LoadCollection("testdata/siphash.o"))(t)
	t.Cleanup(coll.Close)
	return func(key [16]byte, message [sipMessage]byte) uint64 {
		frame := append(make([]byte, 14), key[:]...)
		frame = append(frame, message[:]...)
		verdict, out, err := coll.Programs["siphash_frame"].Test(frame)
		check.OK(t, err)
		equal(t, "verdict", verdict, pass)
		return binary.NativeEndian.Uint64(out[14:])
	}
}

func TestSipHashAgreesWithItsPublishedVector(t *testing.T) {
	var key [16]byte
	var message [sipMessage]byte
	for i := range key {
		key[i] = byte(i)
	}
	for i := range message {
		message[i] = byte(i)
	}
	// The reference implementation's vector for 40 bytes 00 01 02 …, read little endian.
	equal(t, "hash", sipHash(t)(key, message), 0x0e3ea96b5304a7d0)
}

func TestSipHashAgreesWithAnotherImplementation(t *testing.T) {
	hash := sipHash(t)
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var key [16]byte
		var message [sipMessage]byte
		for i := range key {
			key[i] = byte(random.Uint32())
		}
		for i := range message {
			message[i] = byte(random.Uint32())
		}
		want := siphash.Hash(binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:]), message[:])
		got := hash(key, message)
		check.Must(t, got == want, "key %x, message %x: %016x, want %016x", key, message, got, want)
	}
}
