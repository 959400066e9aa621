// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fenceline/fenceline/internal/backoff"
)

// Installer keeps the agent's files installed on a node. Safe for concurrent use. If a directory
// refuses a file, the agent goes on: running pods need the agent.
type Installer struct {
	// PluginFile is the plugin, BinDir the node's directory for it. If PluginFile is empty, no
	// plugin is installed.
	PluginFile, BinDir string
	// ConflistFile is the network configuration, ConfDir the node's directory for it. If
	// ConflistFile is empty, no configuration is installed.
	ConflistFile, ConfDir string
	Log                   logr.Logger

	mu sync.Mutex
	// installed is set once the plugin is installed.
	installed atomic.Bool
}

// EnsurePlugin installs the plugin until that has succeeded once.
func (i *Installer) EnsurePlugin() error {
	if i.PluginFile == "" || i.installed.Load() {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, err := Plugin(i.PluginFile, i.BinDir); err != nil {
		return err
	}
	i.installed.Store(true)
	return nil
}

// KeepConflist installs the network configuration once ready reports that ADD can
// be served, and again whenever it was changed or removed, until ctx ends.
func (i *Installer) KeepConflist(ctx context.Context, ready func(context.Context) bool) error {
	if i.ConflistFile == "" {
		<-ctx.Done()
		return nil
	}
	content, err := os.ReadFile(i.ConflistFile)
	if err != nil {
		return fmt.Errorf("read the network configuration: %w", err)
	}
	var tries backoff.Backoff
	return wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		if !ready(ctx) {
			return false, nil
		}
		_, err := Conflist(i.ConfDir, filepath.Base(i.ConflistFile), content)
		if err == nil || errors.Is(err, ErrNotConflist) {
			tries.Reset()
			return false, err
		}
		if tries.IsNew(err) {
			i.Log.Error(err, "the runtime does not know the network yet; the agent tries again")
		}
		return false, nil
	})
}
