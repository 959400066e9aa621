// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fenceline/fenceline/test/await"
	"github.com/fenceline/fenceline/test/must"
)

// hierarchy is one cgroup tree of this machine. Version 1 has one for each
// controller; version 2 has a single one. A hybrid machine has both, and its
// unified tree has no controllers.
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

// createCgroup makes the group in every hierarchy, ready for kubelet to make
// pods' groups below it.
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

// removeCgroup removes the group and all below it once their processes have
// ended.
func removeCgroup(ctx context.Context, name string) {
	for _, h := range hierarchies() {
		must.Done(removeTree(ctx, filepath.Join(h.root, name)), "remove cgroup %s from %s", name, h.root)
	}
}

// removeTree removes directories from the leaves up; a group stays busy for a
// moment after its last process has ended.
func removeTree(ctx context.Context, dir string) error {
	return await.Until(ctx, 10*time.Second, 20*time.Millisecond, "the end of its processes", func(context.Context) error {
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

// directories lists dir and all directories below it, parents first. It is
// empty when dir does not exist.
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
