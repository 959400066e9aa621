package main

import (
	"slices"
	"testing"

	"github.com/fenceline/fenceline/agent/claim"
	"github.com/fenceline/fenceline/apis/v1alpha1"
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
