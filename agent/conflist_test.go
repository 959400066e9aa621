package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fenceline/fenceline/agent/claim"
	"github.com/fenceline/fenceline/agent/segment"
)

// Pods that run need an agent, also where the runtime cannot be told of the network.
func TestADirectoryThatTakesNoConflistEndsNoAgent(t *testing.T) {
	a := newAgent(t, 0)
	a.heard.Store(true)
	a.segments = segment.New(segment.Config{})
	a.segments.SetKeys(claim.Key{})
	dir := t.TempDir()
	a.conflist, a.confDir = filepath.Join(dir, "10-fenceline.conflist"), filepath.Join(dir, "net.d")
	const content = `{"cniVersion":"1.0.0","name":"underlay","plugins":[{"type":"macvlan","ipam":{"type":"fenceline"}}]}`
	if err := os.WriteFile(a.conflist, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.installConflist(ctx) }()
	select {
	case err := <-ended:
		t.Fatalf("the agent ends: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := os.Mkdir(a.confDir, 0o755); err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(a.confDir, "10-fenceline.conflist")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if got, err := os.ReadFile(installed); err == nil && string(got) == content {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it is not installed a minute after its directory is there")
		}
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

func TestADirectoryThatTakesNoPluginEndsNoAgent(t *testing.T) {
	a := newAgent(t, 0)
	a.heard.Store(true)
	a.segments = segment.New(segment.Config{})
	a.segments.SetKeys(claim.Key{})
	dir := t.TempDir()
	a.plugin, a.binDir = filepath.Join(dir, "plugin"), filepath.Join(dir, "bin")
	if err := os.WriteFile(a.plugin, []byte("#!"), 0o755); err != nil {
		t.Fatal(err)
	}
	// It goes on to the next thing that it needs.
	locked := settings{node: "n1", namespace: "n", plugin: a.plugin, binDir: a.binDir, stateDir: filepath.Join(a.plugin, "state")}
	if err := run(t.Context(), locked); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("the agent ends: %v", err)
	}
	if err := a.status(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ADD is served without the plugin: %v", err)
	}
	if err := os.Mkdir(a.binDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := a.status(t.Context()); err != nil {
		t.Errorf("ADD is not served: %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(a.binDir, "fenceline")); err != nil || string(got) != "#!" {
		t.Errorf("installed %q, %v", got, err)
	}
}
