package main

import (
	"testing"

	"github.com/go-logr/logr/testr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// It must not ask which resources there are.
func TestTheManagerIsMadeWhileTheAPIServerIsAway(t *testing.T) {
	api, err := newAPIServer(&rest.Config{Host: "http://127.0.0.1:1"}, nil, nil) // nobody listens
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.manager(settings{node: "n1", namespace: "fenceline-system", metricsAddress: "0", healthAddress: "0"}, testr.New(t)); err != nil {
		t.Error(err)
	}
	if _, err := api.reader(); err != nil {
		t.Error(err)
	}
}

func TestTheResourcesOfWhatTheAgentWrites(t *testing.T) {
	for kind, want := range map[schema.GroupVersionKind]string{
		v1alpha1.GroupVersion().WithKind("IPLease"): "ipleases",
		v1alpha1.GroupVersion().WithKind("IPPool"):  "ippools",
		{Version: "v1", Kind: "Pod"}:                "pods",
		{Version: "v1", Kind: "Namespace"}:          "namespaces",
	} {
		m, err := kinds().RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil || m.Resource.Resource != want {
			t.Errorf("%s: %v, %v", kind, m, err)
		}
	}
}
