// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"

	"github.com/fenceline/fenceline/test/must"
)

// Container runtimes of nodes, which are named after their daemons.
const (
	Containerd = "containerd"
	CRIO       = "crio"
)

// runtime describes how a node starts a container runtime and gives it images.
type runtime struct {
	socket string
	// args start its daemon.
	args []string
	// files are its configuration: templates over Config, by path.
	files map[string]string
	// imports returns the commands that import an image tarball. tag returns the commands that give
	// an image of the node another name.
	imports func(tarball string) ([][]string, error)
	tag     func(name, another string) [][]string
}

// registry is what kubelet adds to a name without a registry.
const registry = "docker.io/"

// runtime returns the container runtime of the node.
func (c Config) runtime() runtime {
	if c.Runtime == CRIO {
		return runtime{
			socket: "/run/crio/crio.sock",
			args:   []string{"crio", "--config=/etc/crio/crio.conf"},
			files: map[string]string{
				"/etc/crio/crio.conf":             crioConfig,
				"/etc/containers/policy.json":     `{"default": [{"type": "insecureAcceptAnything"}]}`,
				"/etc/containers/registries.conf": "unqualified-search-registries = [\"docker.io\"]\nshort-name-mode = \"disabled\"\n",
				crioRunc:                          crioRuncScript,
			},
			imports: func(tarball string) ([][]string, error) {
				names, err := namesIn(tarball)
				var commands [][]string
				for _, name := range names {
					commands = append(commands, skopeo("docker-archive:"+tarball+":"+registry+name, name))
				}
				return commands, err
			},
			tag: func(name, another string) [][]string { return [][]string{skopeo(stored(name), another)} },
		}
	}
	const socket = "/run/containerd/containerd.sock"
	ctr := func(args ...string) [][]string {
		return [][]string{append([]string{"ctr", "--address=" + socket, "--namespace=k8s.io", "images"}, args...)}
	}
	return runtime{
		socket:  socket,
		args:    []string{"containerd", "--config=/etc/containerd/config.toml"},
		files:   map[string]string{"/etc/containerd/config.toml": containerdConfig},
		imports: func(tarball string) ([][]string, error) { return ctr("import", tarball), nil },
		tag:     func(name, another string) [][]string { return ctr("tag", "--force", registry+name, registry+another) },
	}
}

// skopeo copies an image into the storage of CRI-O.
func skopeo(from, name string) []string {
	return []string{"skopeo", "--insecure-policy", "copy", "--quiet", from, stored(name)}
}

func stored(name string) string {
	return "containers-storage:[overlay@/var/lib/containers/storage+/run/containers/storage]" + registry + name
}

// namesIn returns the names of the images of a tarball.
func namesIn(tarball string) (_ []string, err error) {
	defer must.CatchIn(&err, "list the images of %s", tarball)
	f := must.Value(os.Open(tarball))
	defer f.Close()
	for files := tar.NewReader(f); ; {
		header, err := files.Next()
		must.That(!errors.Is(err, io.EOF), "it has no manifest.json")
		must.OK(err)
		if header.Name != "manifest.json" {
			continue
		}
		var manifests []struct{ RepoTags []string }
		must.OK(json.NewDecoder(files).Decode(&manifests))
		var names []string
		for _, m := range manifests {
			names = append(names, m.RepoTags...)
		}
		return names, nil
	}
}

// run runs commands inside the node, from its first process.
func (c Config) run(ctx context.Context, commands [][]string) (err error) {
	defer must.Catch(&err)
	for _, args := range commands {
		output, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
		must.That(err == nil, "%v: %w: %s", args, err, output)
	}
	return nil
}

// containerdConfig is read by containerd 1.7 and 2. The process may lack CAP_SYS_RESOURCE, so OOM scores
// are never lowered; snapshotters and plugins that need more of the machine are off.
const containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs", "io.containerd.differ.v1.erofs",
  "io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{{.PauseImage}}"
  restrict_oom_score_adj = true

# By default containerd 2.4 looks in the two directories of a list as if they were one.
[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = "/etc/containerd/certs.d"

[plugins."io.containerd.cri.v1.runtime"]
  stats_collect_period = "1m"

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/opt/cni/bin"
  conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  BinaryName = "runc"
  SystemdCgroup = false
`

const crioConfig = `[crio]
root = "/var/lib/containers/storage"
runroot = "/run/containers/storage"
storage_driver = "overlay"
[crio.api]
listen = "/run/crio/crio.sock"
[crio.runtime]
default_runtime = "runc"
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
apparmor_profile = "unconfined"
[crio.runtime.runtimes.runc]
runtime_path = "/etc/crio/runc"
monitor_path = "/usr/bin/conmon"
[crio.image]
pause_image = "{{.PauseImage}}"
[crio.network]
network_dir = "/etc/cni/net.d"
plugin_dirs = ["/opt/cni/bin"]
[crio.nri]
enable_nri = false
`

// crioRunc is runc without OOM scores, limits of huge pages and a capability, which this machine may
// not allow. CRI-O has no setting for it.
const (
	crioRunc       = "/etc/crio/runc"
	crioRuncScript = `#!/bin/sh
previous=
for argument; do
	case $previous in --bundle|-b) jq 'del(.process.oomScoreAdj, .linux.resources.hugepageLimits) | .process.capabilities |= map_values(. - ["CAP_SYS_RESOURCE"])' "$argument/config.json" >"$argument/c" && cat "$argument/c" >"$argument/config.json";; esac
	previous=$argument
done
exec runc "$@"
`
)
