// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/internal/event"
)

// keepInterval is the pause between two looks at the installed files. It is shorter than the five
// seconds after which a kubelet asks for the state of its network.
const keepInterval = time.Second

// mountInterval is the pause between two looks at the mounts of the container. On a busy machine a look
// at 271 mounts took 4 ms.
const mountInterval = 10 * time.Second

// Installer keeps the agent's files installed on a node. Safe for concurrent use. If a directory
// refuses a file, the agent goes on: running pods need the agent.
type Installer struct {
	// PluginFile is the plugin, or empty for none, and BinDir the node's directory for it.
	PluginFile, BinDir string
	// ConflistFile is the network configuration, or empty for none, and ConfDir its directory.
	ConflistFile, ConfDir string
	Log                   logr.Logger
	Clock                 clock.PassiveClock

	mu     sync.Mutex
	plugin kept
	tell   *teller
}

// KeepOptions are the facts and the events that Keep needs. All are required.
type KeepOptions struct {
	// Reporter reports files that were put back.
	event.Reporter
	// Ready reports whether ADD can be served.
	Ready func(context.Context) bool
	// Runtime returns the container runtime of the node, in the form of a Node's
	// status.nodeInfo.containerRuntimeVersion.
	Runtime func(context.Context) (string, error)
}

// EnsurePlugin installs the plugin if it is missing or differs. Otherwise it takes microseconds.
func (i *Installer) EnsurePlugin() error {
	if i.PluginFile == "" {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.plugin.what, i.plugin.path = pluginSubject, filepath.Join(i.BinDir, PluginName)
	return i.plugin.keep(i.Clock.Now(), i.tell, func() (bool, error) { return Plugin(i.PluginFile, i.BinDir) })
}

// Masters applies the function Masters to the network configuration that the chart wrote.
func (i *Installer) Masters() (name string, masters []string, err error) {
	content, err := i.template()
	if err != nil || content == nil {
		return "", nil, err
	}
	return Masters(content)
}

// Keep installs the plugin, and installs the network configuration once ADD can be served. It
// installs each of them again whenever the file was changed or removed, until ctx ends. It returns
// ErrDirectoryGone if only a restart of the container can help.
func (i *Installer) Keep(ctx context.Context, o KeepOptions) error {
	i.mu.Lock()
	i.tell = &teller{o.Reporter}
	i.mu.Unlock()
	template, err := i.template()
	if err != nil {
		return err
	}
	before, err := mountsAt(i.BinDir, i.ConfDir)
	if err != nil {
		return err
	}
	looked := i.Clock.Now()
	list := kept{what: networkSubject, path: filepath.Join(i.ConfDir, filepath.Base(i.ConflistFile))}
	return wait.PollUntilContextCancel(ctx, keepInterval, true, func(ctx context.Context) (bool, error) {
		if now := i.Clock.Now(); now.Sub(looked) >= mountInterval {
			looked = now
			if err := i.stays(before, &i.plugin, &list); err != nil {
				return false, err
			}
		}
		_ = i.EnsurePlugin() // an event reports an error
		if i.ConflistFile == "" || !o.Ready(ctx) {
			return false, nil
		}
		err := i.keepConflist(ctx, &list, template, o)
		if errors.Is(err, ErrNotConflist) {
			return false, err
		}
		if err == nil {
			i.tellFirst(&list)
		}
		return false, nil
	})
}

// template reads the network configuration as the chart wrote it.
func (i *Installer) template() ([]byte, error) {
	if i.ConflistFile == "" {
		return nil, nil
	}
	content, err := os.ReadFile(i.ConflistFile)
	if err != nil {
		return nil, fmt.Errorf("read the network configuration: %w", err)
	}
	return content, nil
}

// keepConflist installs the network configuration in the version that the runtime of the node knows.
// An upgrade of the runtime changes the file.
func (i *Installer) keepConflist(ctx context.Context, list *kept, template []byte, o KeepOptions) error {
	runtime, err := o.Runtime(ctx)
	if err != nil {
		if list.errors.IsNew(err) {
			i.Log.Error(err, "the version of the network configuration is not known yet; the agent tries again")
		}
		return err
	}
	content, version := withVersion(template, runtime)
	if list.wants(content) && version != "" {
		i.Log.Info("the network configuration has the CNI version that the runtime knows", "runtime", runtime, "cniVersion", version)
	}
	return list.keep(i.Clock.Now(), i.tell, func() (bool, error) {
		return Conflist(i.ConfDir, filepath.Base(i.ConflistFile), content)
	})
}

// First returns the file that the runtime uses for the first interface of pods, or "" without one.
func First(dir string) (string, error) {
	files, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"}) // as containerd and CRI-O
	if err != nil || len(files) == 0 {
		return "", err
	}
	return filepath.Base(slices.Min(files)), nil
}

// tellFirst reports each configuration that comes before the agent's own. That may be wanted: then
// Fenceline serves the networks that Multus adds.
func (i *Installer) tellFirst(list *kept) {
	other, err := First(i.ConfDir)
	if other >= filepath.Base(list.path) {
		other = ""
	}
	if err != nil || other == list.first {
		return // an unreadable directory is reported by the installation
	}
	list.first = other
	if other == "" {
		return
	}
	i.Log.Info("another network configuration comes first by name, so the runtime uses it for the first interface of pods", "file", other, "own", list.path)
	i.tell.NodeEventf(corev1.EventTypeNormal, "NetworkNotFirst", "Install",
		"%s comes before %s by name, so the container runtime uses it for the first interface of pods; if Fenceline shall be the pod network, set cni.conflist.name of the chart to a name that comes first",
		other, filepath.Base(list.path))
}
