// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/interrupted"
	"github.com/fenceline/fenceline/test/must"
)

// mountPoints are those that the kernel does not make itself.
func mountPoints() []string { return []string{"/proc", "/sys", "/dev", "/tmp", "/run"} }

// IsInit tells whether this process is the first one of a guest.
func IsInit() bool {
	_, err := os.Stat(taskPath)
	return os.Getpid() == 1 && err == nil
}

// Init is a guest's life: it runs the program, tells how that has ended, and switches the guest off. It does not
// return. Where it fails itself it ends without a verdict, and the console says why.
func Init() {
	if err := live(); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
	}
	unix.Sync()
	err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	panic(fmt.Sprintf("guest: power off: %v", err)) // which ends the guest as well
}

func live() (err error) {
	defer must.Catch(&err)
	// The file systems of the kernel's that programs expect.
	for _, m := range []struct{ dir, kind string }{{"/proc", "proc"}, {"/sys", "sysfs"}, {"/dev", "devtmpfs"}, {"/sys/fs/bpf", "bpf"}, {"/sys/fs/cgroup", "cgroup2"}} {
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	var t task
	must.Done(json.Unmarshal(must.Value(os.ReadFile(taskPath)), &t), "read %s", taskPath)
	for _, path := range t.Modules {
		must.OK(load(path))
	}
	// As systemd does: what is mounted later is mounted in other mount namespaces as well.
	must.Done(unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""), "share the mounts")
	// As on any machine: what a test run gives to a device goes to this one.
	lo, err := netlink.LinkByName("lo")
	must.Done(err, "find the loopback device")
	must.Done(netlink.LinkSetUp(lo), "raise the loopback device")
	if _, err := os.Stat(Busybox); err == nil {
		must.Done(exec.Command(Busybox, "--install", "-s", filepath.Dir(Busybox)).Run(), "install the commands of %s", Busybox)
	}
	if t.Interface.MAC != "" {
		must.Done(t.Interface.raise(), "raise the interface %s", t.Interface.MAC)
	}
	t.tell(t.run())
	return nil
}

func load(path string) (err error) {
	defer must.CatchIn(&err, "load %s", path)
	f := must.Value(os.Open(path))
	defer f.Close()
	err = interrupted.Repeat(func() error { return unix.FinitModule(int(f.Fd()), "", 0) })
	must.That(err == nil || errors.Is(err, unix.EEXIST), "%w", err)
	return nil
}

// Busybox is the file of a guest that gives it ip, nsenter, ping and other commands.
const Busybox = "/bin/busybox"

// killed is the exit code of a program that a signal has ended.
const killed = 128

// run returns the program's exit code.
func (t task) run() (code int) {
	output := openRaw(t.Output)
	cmd := exec.Command(t.Program, t.Args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.Dir, output, output
	cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp", "GOGC=400"}, t.Environment...)
	err := cmd.Run()
	_, failed := errors.AsType[*exec.ExitError](err)
	must.That(err == nil || failed, "run %s: %w", t.Program, err)
	code = cmd.ProcessState.ExitCode()
	if code < 0 { // by a signal
		code = killed
	}
	drain(output)
	return code
}

// tell writes the verdict.
func (t task) tell(code int) {
	status := openRaw(t.Status)
	_, err := fmt.Fprintln(status, code)
	must.Done(err, "tell the exit code")
	drain(status)
}

// openRaw opens a serial line that carries bytes as they are.
func openRaw(path string) *os.File {
	f := must.Value(os.OpenFile(path, os.O_WRONLY|unix.O_NOCTTY, 0))
	must.Done(interrupted.Repeat(func() error {
		settings, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		if err != nil {
			return fmt.Errorf("ask for the settings of %s: %w", path, err)
		}
		settings.Oflag &^= unix.OPOST // or each line would end in a carriage return
		return unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, settings)
	}), "set %s", path)
	return f
}

// drain waits until a serial line has sent all that was written, and closes it.
func drain(f *os.File) {
	// Any signal interrupts it, also one whose handler restarts other calls (tty_ioctl in the kernel).
	must.Done(interrupted.Repeat(func() error { return unix.IoctlSetInt(int(f.Fd()), unix.TCSBRK, 1) }), "drain %s", f.Name())
	must.OK(f.Close())
}
