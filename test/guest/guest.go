// SPDX-License-Identifier: Apache-2.0

// Package guest runs a program on another kernel: in a QEMU guest that emulates the processor, with the kernel and
// the modules of a Debian package and nothing on its disk but what the program needs.
//
// The program that starts a guest is also the guest's first process (Init), so it must be linked statically. A guest
// has three serial lines: the kernel's console, the program's output, and the program's exit status. Whoever runs a
// guest can therefore tell a program that failed from a guest that gave no verdict (ErrNoVerdict).
package guest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/fenceline/fenceline/test/must"
)

// ErrNoVerdict says that the guest ended, or was ended, before its program did: a panic, a hang, a QEMU that did not
// start. The error's text has the end of the console.
var ErrNoVerdict = errors.New("the guest gave no verdict")

// Guest describes one guest and the one program that it runs.
type Guest struct {
	// Arch is the architecture of the guest: amd64 or arm64. Init, Program and the kernel are for it.
	Arch string
	// QEMU and Kernel are the directories that test/thirdparty has unpacked them to.
	QEMU, Kernel string
	// Init is a static program that calls Init when it is process 1.
	Init string
	// Modules are loaded before the program starts, with those that they depend on.
	Modules []string
	// Files are copied into the guest, to the same paths. Directories with all that is in them.
	Files []string
	// Program is the path of one of Files, Args what follows it, Dir where it runs.
	Program string
	Args    []string
	Dir     string
	// Devices are further arguments of QEMU, Parameters those of the kernel.
	Devices, Parameters []string
	// Environment is added to that of the program.
	Environment []string
	// Steady: the guest's clock counts its instructions while it is busy, so that it stands still while this
	// machine does something else. Both processors share one of this machine's.
	Steady bool
	// Memory of the guest in MiB.
	Memory int
	// Dial is a command, by space, that QEMU runs for each connection of the guest to ServerAddress. It
	// carries the connection on its standard input and output. The guest reaches nothing else.
	Dial string
	// Interface is the one whose address the guest sets itself; with Dial, it leads to the server.
	Interface Interface
	// Output receives what the program prints, Console what the kernel does.
	Output, Console io.Writer
}

// Interface is an interface of a guest, by its MAC, and its address.
type Interface struct {
	MAC  string
	Addr netip.Prefix
}

// processors of the guest: two, so that things may happen at the same time.
const processors = 2

// consoleTail is how much of the console an error shows, in bytes.
const consoleTail = 4096

// Run boots the guest, waits until it is off and returns its program's exit code. It returns ErrNoVerdict when there
// is none, also because ctx is done. QEMU ends with the thread that called Run.
func (g Guest) Run(ctx context.Context) (code int, err error) {
	work, err := os.MkdirTemp("", "flt-guest-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	defer must.Catch(&err)
	m := must.Value(machineFor(g.Arch))
	if g.Dial != "" {
		g.Interface = uplink()
	}
	initrd := filepath.Join(work, "initrd")
	must.Done(g.writeInitrd(initrd, m), "make the guest's files")
	kernel, err := m.kernel(g.Kernel)
	must.Done(err, "make the kernel bootable")
	console, status := &tail{max: consoleTail}, &tail{max: consoleTail}
	err = g.boot(ctx, m, kernel, initrd, io.MultiWriter(g.Console, console), status)
	if verdict, ok := strings.CutSuffix(string(status.kept), "\n"); ok && err == nil {
		if code, err := strconv.Atoi(verdict); err == nil {
			return code, nil
		}
	}
	return 0, fmt.Errorf("%w: %w; its console ends\n%s", ErrNoVerdict, cmp.Or(err, ctx.Err(), errors.New("it went off")), console.kept)
}

// boot runs QEMU to its end.
func (g Guest) boot(ctx context.Context, m machine, kernel, initrd string, console, status io.Writer) error {
	// The parent's death is the thread's that has started the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, filepath.Join(g.QEMU, "usr/bin", m.qemu), g.arguments(m, kernel, initrd)...)
	lib := filepath.Join(g.QEMU, "usr/lib/x86_64-linux-gnu")
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+lib+":"+filepath.Join(g.QEMU, "lib/x86_64-linux-gnu"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = g.Output, &complaints
	if err := run(cmd, console, status); err != nil {
		return fmt.Errorf("run QEMU: %w\n%s", errors.Join(ctx.Err(), err), complaints.Bytes())
	}
	return nil
}

func (g Guest) arguments(m machine, kernel, initrd string) []string {
	accelerator := "tcg,thread=multi"
	if g.Steady {
		accelerator = "tcg,thread=single"
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-accel", accelerator, "-smp", strconv.Itoa(processors), "-m", strconv.Itoa(g.Memory),
		"-kernel", kernel, "-initrd", initrd, "-append", strings.Join(slices.Concat([]string{kernelParameters}, m.parameters, g.Parameters), " "),
		"-chardev", "file,id=console,path=/dev/fd/3", "-chardev", "stdio,id=output,signal=off", "-chardev", "file,id=status,path=/dev/fd/4",
	}
	args = append(args, m.arguments...)
	for _, dir := range []string{"qemu", "seabios"} {
		args = append(args, "-L", filepath.Join(g.QEMU, "usr/share", dir))
	}
	if g.Steady {
		args = append(args, "-icount", "shift=1") // 2 ns for an instruction
	}
	if g.Dial != "" {
		args = append(args, g.Interface.user(g.Dial)...)
	}
	return append(args, g.Devices...)
}

// kernelParameters make a panic end the guest, and leave out what only takes time when the processor is emulated.
const kernelParameters = "quiet panic=-1 mitigations=off nokaslr audit=0 apparmor=0 cryptomgr.notests"

// run runs the command until it has ended, with a file descriptor from 3 upwards for each writer, and everything
// that it wrote there is where it belongs.
func run(cmd *exec.Cmd, to ...io.Writer) (err error) {
	defer must.Catch(&err)
	errs := make([]error, len(to)+1)
	var copies sync.WaitGroup
	for i, w := range to {
		r, theirs, err := os.Pipe()
		must.OK(err)
		defer r.Close()
		defer theirs.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, theirs)
		copies.Go(func() { _, errs[i] = io.Copy(w, r) })
	}
	err = cmd.Start()
	for _, theirs := range cmd.ExtraFiles {
		theirs.Close()
	}
	copies.Wait()
	if err == nil {
		errs[len(to)] = cmd.Wait()
	}
	return errors.Join(append(errs, err)...)
}

// tail keeps the end of what is written to it.
type tail struct {
	max  int
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	t.kept = t.kept[max(0, len(t.kept)-t.max):]
	return len(p), nil
}
