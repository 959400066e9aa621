// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
)

// Running pods need an agent, also if the runtime cannot be told of the network.
func TestADirectoryThatTakesNoConflistEndsNoAgent(t *testing.T) {
	dir := t.TempDir()
	i := &Installer{ConflistFile: filepath.Join(dir, "10-fenceline.conflist"), ConfDir: filepath.Join(dir, "net.d"), Log: testr.New(t)}
	if err := os.WriteFile(i.ConflistFile, []byte(conflist), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- i.KeepConflist(ctx, func(context.Context) bool { return true }) }()
	select {
	case err := <-ended:
		t.Fatalf("the agent ends: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := os.Mkdir(i.ConfDir, 0o755); err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(i.ConfDir, "10-fenceline.conflist")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if got, err := os.ReadFile(installed); err == nil && string(got) == conflist {
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

func TestNoConflistIsInstalledBeforeADDCanBeServed(t *testing.T) {
	dir := t.TempDir()
	i := &Installer{ConflistFile: filepath.Join(dir, "10-fenceline.conflist"), ConfDir: t.TempDir(), Log: testr.New(t)}
	if err := os.WriteFile(i.ConflistFile, []byte(conflist), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	err := i.KeepConflist(ctx, func(context.Context) bool { stop(); return false })
	if files, _ := os.ReadDir(i.ConfDir); len(files) > 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("installed %v, %v", files, err)
	}
}

func TestAPluginThatCannotBeInstalledIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	i := &Installer{PluginFile: plugin(t, "#!"), BinDir: filepath.Join(dir, "bin"), Log: testr.New(t)}
	if err := i.EnsurePlugin(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("installed without its directory: %v", err)
	}
	if err := os.Mkdir(i.BinDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := i.EnsurePlugin(); err != nil {
		t.Errorf("not installed: %v", err)
	}
	wantFile(t, filepath.Join(i.BinDir, "fenceline"), "#!", 0o755)
}
