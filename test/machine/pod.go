// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/process"
)

// ErrNoPod says that a node runs nothing for a pod.
var ErrNoPod = errors.New("no cgroup of the pod on the node")

// Pod is what a node's kernel knows of one pod.
type Pod struct {
	machine *Machine
	uid     string
}

// Pod returns the pod with that UID; it need not exist.
func (m *Machine) Pod(uid string) Pod { return Pod{machine: m, uid: uid} }

// PIDs returns the pod's processes as this machine numbers them, the sandbox's
// among them.
func (p Pod) PIDs() (_ []int, err error) {
	defer must.Catch(&err)
	dir, _ := p.group("pids")
	dirs := must.Value(directories(dir))
	var pids []int
	for _, d := range dirs {
		if strings.HasPrefix(filepath.Base(d), "crio-conmon-") {
			continue // the monitor of a container
		}
		data, err := os.ReadFile(filepath.Join(d, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a container that has just ended
		}
		must.Done(err, "list processes of pod %s", p.uid)
		for _, field := range strings.Fields(string(data)) {
			pid, err := strconv.Atoi(field)
			must.Done(err, "list processes of pod %s", p.uid)
			pids = append(pids, pid)
		}
	}
	must.That(len(pids) != 0, "list processes of pod %s: %w", p.uid, ErrNoPod)
	return pids, nil
}

// Freeze stops every process of the pod, the sandbox's included.
func (p Pod) Freeze(ctx context.Context) error { return p.freeze(ctx, true) }

// Thaw undoes Freeze.
func (p Pod) Thaw(ctx context.Context) error { return p.freeze(ctx, false) }

func (p Pod) freeze(ctx context.Context, frozen bool) (err error) {
	defer must.Catch(&err)
	dir, h := p.group("freezer")
	freezer{dir: dir, unified: h.unified}.write(ctx, frozen)
	return nil
}

// Shims returns the containerd-shim processes of the pod. Stopping them leaves
// containerd without a way to end the pod's containers.
func (p Pod) Shims() (_ []process.Process, err error) {
	defer must.Catch(&err)
	dir, _ := p.group("pids")
	entries, err := os.ReadDir(dir)
	must.Done(err, "list containers of pod %s", p.uid)
	containers := map[string]bool{}
	for _, e := range entries {
		containers[e.Name()] = e.IsDir()
	}
	return p.machine.find(func(args []string) bool {
		if filepath.Base(args[0]) != "containerd-shim-runc-v2" {
			return false
		}
		for i, arg := range args[:len(args)-1] {
			if arg == "-id" {
				return containers[args[i+1]]
			}
		}
		return false
	}), nil
}

// group finds the pod's directory in the hierarchy of a controller: kubelet
// puts it below a group for its quality of service.
func (p Pod) group(controller string) (string, hierarchy) {
	for _, h := range hierarchies() {
		if !h.has(controller) {
			continue
		}
		top := filepath.Join(h.root, p.machine.Config.Cgroup, "kubepods")
		for _, class := range []string{"", "burstable", "besteffort"} {
			dir := filepath.Join(top, class, "pod"+p.uid)
			if _, err := os.Stat(dir); err == nil {
				return dir, h
			}
		}
		panic(must.Failure("find pod %s in %s: %w", p.uid, top, ErrNoPod))
	}
	panic(must.Failure("find pod %s: no %s hierarchy", p.uid, controller))
}
