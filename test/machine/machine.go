// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/fenceline/fenceline/test/await"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/process"
)

// configName is the node's configuration in its directory.
const configName = "config.json"

// Machine is a running node as seen from outside. Its methods may be called at the same time.
type Machine struct {
	Config Config
	// Init is the node's first process.
	Init process.Process
	// Program is the binary of test/cmd/machine.
	Program string
}

// Start starts a node in the network namespace; WaitBooted tells when its daemons run.
func Start(c Config, ns *network.Namespace, program string) (_ *Machine, err error) {
	defer must.CatchIn(&err, "start node %s", c.Name)
	must.OK(os.MkdirAll(filepath.Join(c.Dir, "log"), 0o755))
	must.OK(os.RemoveAll(c.bootedFile()))
	createCgroup(c.Cgroup)
	configFile := filepath.Join(c.Dir, configName)
	must.OK(os.WriteFile(configFile, must.Value(json.Marshal(c)), 0o600))
	m := &Machine{Config: c, Program: program}
	return m, ns.Do(func() error {
		cmd := exec.Command(program, "boot", configFile)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		}
		var err error
		m.Init, err = process.Start(c.Name, cmd, m.log("init"))
		return err
	})
}

// Open returns a node that another process has started in the directory.
func Open(dir string, init process.Process, program string) (_ *Machine, err error) {
	defer must.CatchIn(&err, "open node %s", init.Name)
	m := &Machine{Init: init, Program: program}
	must.OK(json.Unmarshal(must.Value(os.ReadFile(filepath.Join(dir, configName))), &m.Config))
	return m, nil
}

// WaitBooted returns when the node's daemons have been started.
func (m *Machine) WaitBooted(ctx context.Context) error {
	return await.Until(ctx, bootLimit, "the daemons of node "+m.Config.Name, func(context.Context) error {
		_, err := os.Stat(m.Config.bootedFile())
		if err != nil && !m.Init.Alive() {
			log, err := os.ReadFile(m.log("init"))
			return await.Never(errors.Join(fmt.Errorf("it has ended: %s", log), err))
		}
		return err
	})
}

// Command returns a command that will run inside the node.
func (m *Machine) Command(ctx context.Context, args ...string) *exec.Cmd {
	enter := []string{"-t", strconv.Itoa(m.Init.PID), "-m", "-u", "-i", "-n", "-p", "--", "env", "PATH=" + m.Config.searchPath()}
	return exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
}

// Exec runs a command inside the node and returns what it printed.
func (m *Machine) Exec(ctx context.Context, args ...string) (string, error) {
	if !m.Init.Alive() {
		return "", fmt.Errorf("run %v on %s: the node is off", args, m.Config.Name)
	}
	output, err := m.Command(ctx, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("run %v on %s: %w: %s", args, m.Config.Name, err, output)
	}
	return string(output), err
}

// StartDaemon starts a daemon of the node that has been ended.
func (m *Machine) StartDaemon(ctx context.Context, name string) error {
	_, err := m.Exec(ctx, m.Program, "start", name)
	return err
}

// Import imports an image tarball of this machine into the node's container runtime.
func (m *Machine) Import(ctx context.Context, tarball string) (err error) {
	defer must.Catch(&err)
	return m.run(ctx, must.Value(m.Config.runtime().imports(tarball)))
}

// Tag gives an image of the node's container runtime another name, without a registry in both names.
func (m *Machine) Tag(ctx context.Context, name, another string) error {
	return m.run(ctx, m.Config.runtime().tag(name, another))
}

func (m *Machine) run(ctx context.Context, commands [][]string) (err error) {
	defer must.Catch(&err)
	for _, args := range commands {
		must.Value(m.Exec(ctx, args...))
	}
	return nil
}

// Processes returns the node's processes whose program has that name, in containers too.
func (m *Machine) Processes(name string) (_ []process.Process, err error) {
	defer must.Catch(&err)
	return m.find(func(args []string) bool { return filepath.Base(args[0]) == name }), nil
}

// PowerOff ends every process of the node at once and removes its cgroups. The
// disk stays. It works on a node that is off already.
func (m *Machine) PowerOff(ctx context.Context) (err error) {
	defer must.CatchIn(&err, "power %s off", m.Config.Name)
	thawAll(ctx, m.Config.Cgroup)
	must.OK(m.Init.Kill(ctx))
	removeCgroup(ctx, m.Config.Cgroup)
	return nil
}

// find returns the node's processes whose arguments match. Containers have PID namespaces of their own, so descent
// from the first process is what makes a process the node's.
func (m *Machine) find(match func(args []string) bool) []process.Process {
	must.That(m.Init.Alive(), "list processes of %s: the node is off", m.Config.Name)
	pids, err := process.Descendants(m.Init.PID)
	must.Done(err, "list processes of %s", m.Config.Name)
	var found []process.Process
	for _, pid := range pids {
		args, err := process.Arguments(pid)
		if err != nil || len(args) == 0 || !match(args) {
			continue // another one, or ended meanwhile
		}
		if p, err := process.Find(filepath.Base(args[0]), pid); err == nil {
			found = append(found, p)
		}
	}
	return found
}

func (m *Machine) log(name string) string { return filepath.Join(m.Config.Dir, "log", name+".log") }
