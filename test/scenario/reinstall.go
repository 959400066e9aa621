// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/cluster"
)

const (
	pluginFile = "/opt/cni/bin/fenceline"
	// newPluginDir replaces the plugin directory by a new one without our plugin, as the removal and
	// installation of a package does.
	newPluginDir = `cp -a /opt/cni/bin /opt/cni/new && rm /opt/cni/new/fenceline && mv /opt/cni/bin /opt/cni/old && mv -T /opt/cni/new /opt/cni/bin && rm -r /opt/cni/old`
)

// filesComeBack: an agent puts the plugin and the network configuration back, even if their
// directory was replaced. An event of the node reports it.
func (a *act) filesComeBack(ctx context.Context, node *cluster.Node) {
	for _, row := range []struct{ file, reason string }{
		{pluginFile, "PluginRestored"}, {conflistFile, "NetworkRestored"},
	} {
		a.isPutBack(ctx, node, "rm "+row.file, row.file)
		event := a.eventOf(ctx, "Node", node.Name(), row.reason, "was changed or removed, and the agent put it back")
		a.story.Say("Event of %s: %q", node.Name(), event.Message)
	}
	a.isPutBack(ctx, node, newPluginDir, pluginFile)
	a.story.Say("The directory of the plugins is another one, and the plugin is in it again.")
	eventually(ctx, statusLimit, node.Name()+" and its agent Ready", func(ctx context.Context) {
		must(isReady(a.agentPod(ctx, node)), "the agent is not Ready")
		object := &corev1.Node{}
		check(a.api.Get(ctx, client.ObjectKey{Name: node.Name()}, object))
		check(isNodeReady(object))
	})
}

// isPutBack has a script remove a file of a node, and waits until the agent has installed it again.
func (a *act) isPutBack(ctx context.Context, node *cluster.Node, remove, file string) {
	value(node.Exec(ctx, "sh", "-c", remove))
	eventually(ctx, statusLimit, file+" on "+node.Name(), func(ctx context.Context) { value(node.Exec(ctx, "test", "-s", file)) })
}
