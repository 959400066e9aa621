// SPDX-License-Identifier: Apache-2.0

// Guest runs a test binary on another kernel, in place of go test:
//
//	CGO_ENABLED=0 go build -o guest ./test/cmd/guest
//	CGO_ENABLED=0 go test -tags kernel,guest -exec "$PWD/guest -kernel 5.10" -run TestX ./bpf
//
// It exits with the code of the binary, or with 125 if the guest gave no verdict. The binary finds the
// testdata of its package and what -files names, and no other file of this machine. It has the
// variables of this process that begin with FENCELINE_TEST_.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/guest"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// noVerdict is the exit code if the binary did not report one.
const noVerdict = 125

// memory of a guest in MiB, and what it has more for the agents, if there is an API server.
const (
	memory     = 768
	moreMemory = 512
)

func main() {
	if guest.IsInit() {
		guest.Init()
	}
	if len(os.Args) == 3 && os.Args[1] == dialCommand {
		if err := dial(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "guest:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	defer stop()
	code, err := run(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		code = noVerdict
	}
	os.Exit(code)
}

func run(ctx context.Context, args []string) (code int, err error) {
	defer must.Catch(&err)
	flags := flag.NewFlagSet("guest", flag.ContinueOnError)
	kernel := flags.String("kernel", "newest", "one of 5.10, 6.1, 6.12, newest")
	arch := flags.String("arch", "amd64", "amd64, or arm64, for which arm64-guest beside this program is the same program")
	modules := flags.String("modules", "macvlan,ipvlan,8021q,bonding,dummy,veth,bridge,sch_ingress,cls_bpf,nfnetlink,xfrm_user", "modules to load, by comma")
	parameters := flags.String("parameters", "", "further parameters of the kernel, such as ipv6.disable=1, by space")
	devices := flags.String("devices", "", "further arguments of QEMU, by space")
	files := flags.String("files", "", "further files and directories that the binary finds, by comma")
	limit := flags.Duration("timeout", 30*time.Minute, "after which the guest is switched off")
	sriov := flags.Bool("sriov", false, "give the guest two network cards that can have virtual functions, and their modules")
	server := flags.Bool("server", false, "start an API server, which the guest reaches")
	steady := flags.Bool("steady", false, "have the guest's clock count instructions: no deadline passes because this machine is busy")
	console := flags.Bool("console", false, "print what the kernel prints")
	must.OK(flags.Parse(args))
	must.That(flags.NArg() != 0, "a program is missing")
	g := must.Value(describe(ctx, *arch, *kernel, flags.Args()))
	for file := range strings.SplitSeq(*files, ",") {
		if file != "" {
			g.Files = append(g.Files, file)
		}
	}
	g.Modules, g.Devices = strings.Split(*modules, ","), strings.Fields(*devices)
	g.Parameters, g.Steady = strings.Fields(*parameters), *steady
	if *sriov {
		g.Modules = append(g.Modules, "virtio_pci", "virtio_net", "igb", "igbvf", "uio_pci_generic", "act_bpf", "bonding", "crc32c_generic", "openvswitch")
		g.Devices = append(g.Devices, guest.SRIOV()...)
	}
	if *console {
		g.Console = os.Stderr
	}
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	if *server {
		stop := must.Value(serve(ctx, &g))
		defer func() { err = errors.Join(err, stop()) }()
		g.Files = append(g.Files, guest.Busybox)
		// The way to the server, and Services as kube-proxy and host links make them.
		g.Modules = append(g.Modules, "virtio_pci", "virtio_net", "crc32c_generic", "nft_chain_nat", "nft_nat", "nft_masq", "nft_fib_ipv4", "nft_fib_ipv6", "nft_ct")
	}
	return g.Run(ctx)
}

// describe returns the guest that runs a program of this machine where it would run here.
func describe(ctx context.Context, arch, kernel string, command []string) (g guest.Guest, err error) {
	defer must.Catch(&err)
	b := must.Value(thirdparty.NewBuilder(os.Stderr))
	g.QEMU = must.Value(b.Dir(ctx, thirdparty.For(arch, thirdparty.QEMU)))
	g.Kernel = must.Value(b.Dir(ctx, thirdparty.For(arch, "linux-"+kernel)))
	self := must.Value(os.Executable())
	g.Arch, g.Init = arch, filepath.Join(filepath.Dir(self), thirdparty.For(arch, filepath.Base(self)))
	g.Program = must.Value(filepath.Abs(command[0]))
	g.Dir = must.Value(os.Getwd())
	g.Args, g.Files = command[1:], []string{g.Program}
	data := filepath.Join(g.Dir, "testdata")
	if _, err := os.Stat(data); err == nil {
		g.Files = append(g.Files, data)
	}
	g.Output, g.Console, g.Memory = os.Stdout, io.Discard, memory
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "FENCELINE_TEST_") {
			g.Environment = append(g.Environment, v)
		}
	}
	return g, nil
}

// dialCommand is the argument that makes this program the other end of one connection of a guest.
const dialCommand = "dial"

// dial carries one connection of a guest to an address of this machine.
func dial(address string) (err error) {
	defer must.Catch(&err)
	conn := must.Value(net.Dial("tcp", address))
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, os.Stdin)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(os.Stdout, conn)
	return err
}

// serve starts an API server and leads the guest to it. The guest finds what controlplane.New needs.
func serve(ctx context.Context, g *guest.Guest) (stop func() error, err error) {
	defer must.Catch(&err)
	self := must.Value(os.Executable())
	root := must.Value(thirdparty.Root())
	s := must.Value(controlplane.Launch(ctx))
	file, access := filepath.Join(s.Config.Dir, "guest.kubeconfig"), s.Admin()
	access.Host, access.ServerName = "https://"+guest.ServerAddress, "kubernetes"
	if err := controlplane.WriteKubeconfig(access, file); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	g.Memory += moreMemory
	g.Dial = strings.Join([]string{self, dialCommand, strings.TrimPrefix(s.Config.URL(), "https://")}, " ")
	g.Files = append(g.Files, file, filepath.Join(root, "go.mod"), filepath.Join(root, "charts", "fenceline", "files", "crds"))
	g.Environment = append(g.Environment, controlplane.ServerVariable+"="+file)
	return s.Close, nil
}
