// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/cluster"
)

const (
	pluginFile = "/opt/cni/bin/fenceline"
	// newPluginDir replaces the directory of the plugins by another one, without our plugin, as a
	// package does that is removed and installed.
	newPluginDir = `cp -a /opt/cni/bin /opt/cni/new && rm /opt/cni/new/fenceline && mv /opt/cni/bin /opt/cni/old && mv -T /opt/cni/new /opt/cni/bin && rm -r /opt/cni/old`
)

// filesComeBack: an agent puts the plugin and the network configuration back, also if somebody
// replaces their directory, and an event of the node reports it.
func (a *act) filesComeBack(ctx context.Context, node *cluster.Node) error {
	for _, row := range []struct{ file, reason string }{
		{pluginFile, "PluginRestored"}, {conflistFile, "NetworkRestored"},
	} {
		check(a.isPutBack(ctx, node, row.file+" was removed", "rm "+row.file, row.file))
		event := value(a.eventOf(ctx, "Node", node.Name(), row.reason, "was changed or removed, and the agent put it back"))
		a.story.Say("Event of %s: %q", node.Name(), event.Message)
	}
	check(a.isPutBack(ctx, node, "the directory of the plugins was replaced", newPluginDir, pluginFile))
	a.story.Say("The directory of the plugins is another one, and the plugin is in it again.")
	return eventually(ctx, statusLimit, node.Name()+" and its agent Ready", func(ctx context.Context) error {
		pod, err := a.agentPod(ctx, node)
		if err == nil && !isReady(pod) {
			err = errors.New("the agent is not Ready")
		}
		if err != nil {
			return err
		}
		object := &corev1.Node{}
		if err := a.api.Get(ctx, client.ObjectKey{Name: node.Name()}, object); err != nil {
			return err
		}
		return isNodeReady(object)
	})
}

// isPutBack has a script remove a file of a node, and waits until the agent has installed it again.
func (a *act) isPutBack(ctx context.Context, node *cluster.Node, what, remove, file string) error {
	if output, err := node.Exec(ctx, "sh", "-c", remove); err != nil {
		return fmt.Errorf("%s on %s: %w: %s", remove, node.Name(), err, output)
	}
	removed := time.Now()
	err := eventually(ctx, statusLimit, file+" on "+node.Name(), func(ctx context.Context) error {
		_, err := node.Exec(ctx, "test", "-s", file)
		return err
	})
	a.figures.add("the file is back after "+what, time.Since(removed))
	return err
}
