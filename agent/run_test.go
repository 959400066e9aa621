// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/go-logr/logr/testr"
	"k8s.io/client-go/rest"

	"github.com/fenceline/fenceline/internal/metricsendpoint"
	"github.com/fenceline/fenceline/test/check"
)

// Running pods need an agent: it goes on to the next thing that it needs.
func TestADirectoryThatTakesNoPluginEndsNoAgent(t *testing.T) {
	plugin := filepath.Join(t.TempDir(), "plugin")
	check.OK(t, os.WriteFile(plugin, []byte("#!"), 0o755))
	s := settings{node: "n1", namespace: "n", plugin: plugin, binDir: filepath.Join(t.TempDir(), "bin"), stateDir: filepath.Join(plugin, "state")}
	check.Is(t, run(t.Context(), s), syscall.ENOTDIR, "the agent ends:")
}

func TestAListOfAFlag(t *testing.T) {
	parse := list(strconv.Atoi)
	for text, want := range map[string][]int{"": nil, "1": {1}, "2, 1,2": {2, 1, 2}} {
		check.Same(t, check.Value(parse(text))(t), want, "%q", text)
	}
	check.Is(t, check.Err(parse("1,,2")), strconv.ErrSyntax, "an empty word:")
}

// It must not ask which resources there are.
func TestTheManagerIsMadeWhileTheAPIServerIsAway(t *testing.T) {
	api, err := newAPIServer(&rest.Config{Host: "http://127.0.0.1:1"}, nil, nil) // nobody listens
	check.OK(t, err)
	if _, err := api.manager(settings{node: "n1", namespace: "fenceline-system", metrics: metricsendpoint.Endpoint{Address: "0"}, healthAddress: "0"}, testr.New(t)); err != nil {
		t.Error(err)
	}
	check.Value(api.client())(t)
}
