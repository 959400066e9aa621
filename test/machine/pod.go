// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fenceline/fenceline/test/await"
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

// PIDs returns the pod's processes as this machine numbers them, the sandbox's among them.
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
	h.freeze(ctx, dir, frozen)
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

// hierarchy is one cgroup tree of this machine. Version 1 has one for each controller; version 2 has a single one.
// A hybrid machine has both, and its unified tree has no controllers.
type hierarchy struct {
	root        string
	controllers []string // version 1: from the mount options
	unified     bool
	bare        bool // unified on a hybrid machine
}

// hierarchies returns the mounted trees.
func hierarchies() []hierarchy {
	f, err := os.Open("/proc/self/mounts")
	must.Done(err, "list cgroup hierarchies")
	defer f.Close()
	var v1, v2 []hierarchy
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 {
			continue
		}
		switch fields[2] {
		case "cgroup":
			v1 = append(v1, hierarchy{root: fields[1], controllers: strings.Split(fields[3], ",")})
		case "cgroup2":
			v2 = append(v2, hierarchy{root: fields[1], unified: true})
		}
	}
	for i := range v2 {
		v2[i].bare = len(v1) > 0
	}
	must.That(len(v1)+len(v2) != 0, "list cgroup hierarchies: none is mounted")
	return append(v1, v2...)
}

func (h hierarchy) has(controller string) bool {
	return h.unified && !h.bare || slices.Contains(h.controllers, controller)
}

// createCgroup makes the group in every hierarchy, ready for kubelet to make pods' groups below it.
func createCgroup(name string) {
	for _, h := range hierarchies() {
		if h.bare {
			continue // the runtime makes what it wants there
		}
		must.Done(h.create(name), "create cgroup %s in %s", name, h.root)
	}
}

func (h hierarchy) create(name string) (err error) {
	defer must.Catch(&err)
	dir := filepath.Join(h.root, name)
	must.OK(os.MkdirAll(dir, 0o755))
	if h.unified {
		available := must.Value(os.ReadFile(filepath.Join(h.root, "cgroup.controllers")))
		enable := "+" + strings.Join(strings.Fields(string(available)), " +")
		for _, d := range []string{h.root, dir} {
			must.OK(os.WriteFile(filepath.Join(d, "cgroup.subtree_control"), []byte(enable), 0))
		}
		return nil
	}
	if !h.has("cpuset") {
		return nil
	}
	// A version 1 cpuset starts empty, and no process can join it.
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value := must.Value(os.ReadFile(filepath.Join(h.root, file)))
		must.OK(os.WriteFile(filepath.Join(dir, file), value, 0))
	}
	return nil
}

// removeCgroup removes the group and all below it once their processes have ended.
func removeCgroup(ctx context.Context, name string) {
	for _, h := range hierarchies() {
		must.Done(removeTree(ctx, filepath.Join(h.root, name)), "remove cgroup %s from %s", name, h.root)
	}
}

// removeTree removes directories from the leaves up; a group stays busy for a
// moment after its last process has ended.
func removeTree(ctx context.Context, dir string) error {
	return await.Until(ctx, 10*time.Second, "the end of its processes", func(context.Context) error {
		dirs, err := directories(dir)
		if err != nil {
			return await.Never(err)
		}
		var last error
		for _, d := range slices.Backward(dirs) {
			if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
				last = err
			}
		}
		return last
	})
}

// directories lists dir and all directories below it, parents first. It is empty when dir does not exist.
func directories(dir string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	return dirs, err
}

// freeze freezes a cgroup of a hierarchy with all below it, or thaws it. A frozen process runs nothing, not
// even the handling of SIGKILL under version 1; the kernel's network stack goes on answering for it.
func (h hierarchy) freeze(ctx context.Context, dir string, frozen bool) {
	file, value, watched, want := "freezer.state", "THAWED", "freezer.state", "THAWED"
	switch {
	case h.unified && frozen:
		file, value, watched, want = "cgroup.freeze", "1", "cgroup.events", "frozen 1"
	case h.unified:
		file, value, watched, want = "cgroup.freeze", "0", "cgroup.events", "frozen 0"
	case frozen:
		value, want = "FROZEN", "FROZEN"
	}
	must.Done(os.WriteFile(filepath.Join(dir, file), []byte(value), 0), "write %s to %s of %s", value, file, dir)
	must.OK(await.Until(ctx, 10*time.Second, "cgroup "+dir, func(context.Context) error {
		is, err := os.ReadFile(filepath.Join(dir, watched))
		if err != nil {
			return await.Never(err)
		}
		if !strings.Contains(string(is), want) {
			return fmt.Errorf("%s is %q, want %s", watched, is, want)
		}
		return nil
	}))
}

// thawAll thaws everything below the group, so that its processes can die.
func thawAll(ctx context.Context, group string) {
	for _, h := range hierarchies() {
		if !h.has("freezer") {
			continue
		}
		dirs, err := directories(filepath.Join(h.root, group))
		must.Done(err, "thaw %s", group)
		for _, dir := range dirs {
			h.freeze(ctx, dir, false)
		}
	}
}
