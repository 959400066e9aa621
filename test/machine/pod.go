// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

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
func (p Pod) PIDs() ([]int, error) {
	dir, _, err := p.group("pids")
	if err != nil {
		return nil, err
	}
	dirs, err := directories(dir)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, d := range dirs {
		if strings.HasPrefix(filepath.Base(d), "crio-conmon-") {
			continue // the monitor of a container
		}
		data, err := os.ReadFile(filepath.Join(d, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a container that has just ended
		}
		if err != nil {
			return nil, fmt.Errorf("list processes of pod %s: %w", p.uid, err)
		}
		for _, field := range strings.Fields(string(data)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("list processes of pod %s: %w", p.uid, err)
			}
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("list processes of pod %s: %w", p.uid, ErrNoPod)
	}
	return pids, nil
}

// Freeze stops every process of the pod, the sandbox's included.
func (p Pod) Freeze(ctx context.Context) error { return p.freeze(ctx, true) }

// Thaw undoes Freeze.
func (p Pod) Thaw(ctx context.Context) error { return p.freeze(ctx, false) }

func (p Pod) freeze(ctx context.Context, frozen bool) error {
	dir, h, err := p.group("freezer")
	if err != nil {
		return err
	}
	return freezer{dir: dir, unified: h.unified}.write(ctx, frozen)
}

// Shims returns the containerd-shim processes of the pod. Stopping them leaves
// containerd without a way to end the pod's containers.
func (p Pod) Shims() ([]process.Process, error) {
	dir, _, err := p.group("pids")
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list containers of pod %s: %w", p.uid, err)
	}
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
	})
}

// group finds the pod's directory in the hierarchy of a controller: kubelet
// puts it below a group for its quality of service.
func (p Pod) group(controller string) (string, hierarchy, error) {
	trees, err := hierarchies()
	if err != nil {
		return "", hierarchy{}, err
	}
	for _, h := range trees {
		if !h.has(controller) {
			continue
		}
		top := filepath.Join(h.root, p.machine.Config.Cgroup, "kubepods")
		for _, class := range []string{"", "burstable", "besteffort"} {
			dir := filepath.Join(top, class, "pod"+p.uid)
			if _, err := os.Stat(dir); err == nil {
				return dir, h, nil
			}
		}
		return "", h, fmt.Errorf("find pod %s in %s: %w", p.uid, top, ErrNoPod)
	}
	return "", hierarchy{}, fmt.Errorf("find pod %s: no %s hierarchy", p.uid, controller)
}
