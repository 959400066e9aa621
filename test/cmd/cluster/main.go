// SPDX-License-Identifier: Apache-2.0

// Cluster starts, uses and ends the cluster of package test/cluster.
//
//	cluster [-prefix P] up [-nodes N] [-proxy MODE] [-single-nic] [-fenceline VERSION [-set VALUE]... [-pools]]
//	cluster [-prefix P] install VERSION               build and install Fenceline, or another version of it
//	cluster [-prefix P] down
//	cluster [-prefix P] env                           print shell settings for kubectl and helm
//	cluster [-prefix P] exec NODE COMMAND...          run a command inside a node, or on the host "outside"
//	cluster [-prefix P] pod NAMESPACE/NAME COMMAND... run a command in a pod's network namespace
//	cluster [-prefix P] cut|heal management|underlay NODE
//	cluster [-prefix P] import TARBALL...             import images on every node
//	cluster [-prefix P] capture                       print the frames that enter the underlay, until interrupted
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/must"
)

func main() {
	prefix := flag.String("prefix", cluster.DefaultPrefix, "prefix of the cluster's namespaces")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, *prefix, flag.Args())
	if status := exitError(0); errors.As(err, &status) {
		os.Exit(int(status))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// exitError is the exit status of a command that a person has started and watched.
type exitError int

func (s exitError) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func run(ctx context.Context, prefix string, args []string) (err error) {
	defer must.Catch(&err)
	must.That(len(args) != 0, "a verb is missing: up, install, down, env, exec, pod, cut, heal, import or capture")
	verb, args := args[0], args[1:]
	switch verb {
	case "up":
		up(ctx, prefix, args)
		return nil
	case "down":
		return cluster.Down(ctx, prefix)
	}
	c := must.Value(cluster.Open(prefix))
	switch verb {
	case "install":
		install(ctx, c, args)
	case "env":
		printEnvironment(c)
	case "exec":
		execute(ctx, c, args)
	case "pod":
		executeInPod(ctx, c, args)
	case "cut", "heal":
		plug(c, verb, args)
	case "import":
		for _, tarball := range args {
			must.OK(c.Import(ctx, tarball))
		}
	case "capture":
		printFrames(ctx, c)
	default:
		return fmt.Errorf("no verb %q", verb)
	}
	return nil
}

func up(ctx context.Context, prefix string, args []string) {
	o := cluster.Whole()
	o.Prefix, o.Progress = prefix, os.Stderr
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	flags.IntVar(&o.Nodes, "nodes", 3, "number of nodes")
	flags.TextVar(&o.Management, "management", netip.MustParsePrefix("172.30.0.0/24"), "management network, so that several clusters can run")
	flags.StringVar(&o.KubeProxy, "proxy", cluster.Nftables, "mode of kube-proxy, nftables or iptables")
	flags.BoolVar(&o.SingleNIC, "single-nic", false, "put the addresses of the nodes on the underlay")
	version := flags.String("fenceline", "", "build and install Fenceline as that version, and CoreDNS")
	var values []string
	flags.Func("set", "a `value` of the chart, as helm's --set; may be repeated", func(value string) error {
		values = append(values, value)
		return nil
	})
	pools := flags.Bool("pools", false, "make pools for all pods; needs -fenceline")
	must.OK(flags.Parse(args))
	c := must.Value(cluster.Up(ctx, o))
	if *version != "" {
		must.OK(c.InstallFenceline(ctx, *version, values...))
		must.OK(errors.Join(c.WaitReady(ctx), c.Furnish(ctx)))
	}
	if *pools {
		openToAllPods(ctx, c)
	}
	guide(c, *version != "" && !*pools)
}

// guide prints what the cluster has. Only the shell settings are on the standard output.
func guide(c *cluster.Cluster, empty bool) {
	must.OK(c.Guide(os.Stderr))
	fmt.Fprintln(os.Stderr, "\nTo use kubectl and helm:")
	printEnvironment(c)
	if empty {
		fmt.Fprintf(os.Stderr, "\nThen go on with docs/start.md#use, or try:\n%s\n", strings.Join(cluster.FirstSteps(), "\n"))
	}
}

// openToAllPods makes a pool of each family for the pods of all namespaces.
func openToAllPods(ctx context.Context, c *cluster.Cluster) {
	for i, gateway := range c.Options.Gateways {
		first := gateway.Addr().AsSlice()
		first[len(first)-2], first[len(first)-1] = 200, 1 // far from the addresses of nodes and scenarios
		from, _ := netip.AddrFromSlice(first)
		first[len(first)-1] = 250
		to, _ := netip.AddrFromSlice(first)
		must.OK(c.Apply(ctx, fmt.Sprintf(pool, i, gateway.Masked(), from, to, gateway.Addr())))
	}
}

const pool = `apiVersion: fenceline.io/v1alpha1
kind: IPPool
metadata: {name: everywhere-%d}
spec: {subnet: %q, ips: ["%s-%s"], gateway: %q, default: true}
`

// install builds the present code as a new version and rolls it out.
func install(ctx context.Context, c *cluster.Cluster, args []string) {
	must.That(len(args) == 1, "usage: install VERSION")
	c.Options.Progress = os.Stderr
	must.OK(c.InstallFenceline(ctx, args[0]))
}

func printEnvironment(c *cluster.Cluster) {
	fmt.Printf("export KUBECONFIG=%s\n", c.Kubeconfig())
	fmt.Printf("export PATH=%s:$PATH\n", strings.Join(c.Tools(), ":"))
}

func execute(ctx context.Context, c *cluster.Cluster, args []string) {
	must.That(len(args) >= 2, "usage: exec NODE COMMAND [ARGUMENT]")
	if args[0] == "outside" {
		host, _, err := c.Outside()
		must.OK(err)
		attached(host.Command(ctx, args[1], args[2:]...))
		return
	}
	node := must.Value(c.NodeByName(args[0]))
	attached(node.Command(ctx, args[1:]...))
}

func executeInPod(ctx context.Context, c *cluster.Cluster, args []string) {
	must.That(len(args) >= 2, "usage: pod NAMESPACE/NAME COMMAND [ARGUMENT]")
	namespace, name, ok := strings.Cut(args[0], "/")
	if !ok {
		namespace, name = "default", args[0]
	}
	pod := must.Value(c.Pod(ctx, namespace, name))
	attached(must.Value(pod.Command(ctx, args[1], args[2:]...)))
}

func attached(cmd *exec.Cmd) {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = exitError(exit.ExitCode())
	}
	must.OK(err)
}

func plug(c *cluster.Cluster, verb string, args []string) {
	must.That(len(args) == 2, "usage: %s management|underlay NODE", verb)
	node := must.Value(c.NodeByName(args[1]))
	switch verb + " " + args[0] {
	case "cut management":
		must.OK(node.CutManagement())
	case "heal management":
		must.OK(node.HealManagement())
	case "cut underlay":
		must.OK(node.CutUnderlay())
	case "heal underlay":
		must.OK(node.HealUnderlay())
	default:
		panic(must.Failure("no network %q", args[0]))
	}
}

func printFrames(ctx context.Context, c *cluster.Cluster) {
	running := must.Value(c.Capture())
	printed := 0
	for {
		frames := running.Frames()
		for _, f := range frames[printed:] {
			fmt.Println(f)
		}
		printed = len(frames)
		if err := running.WaitMore(ctx, printed); err != nil {
			must.Value(running.Stop())
			return
		}
	}
}
