// SPDX-License-Identifier: Apache-2.0

// kubectl-fenceline shows who has which address, and why. As a plugin of kubectl it is called
// "kubectl fenceline". It only reads, except for its commands free, import and move-in.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/internal/diagnosis"
	"github.com/fenceline/fenceline/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	c := command(streams)
	c.SetArgs(argsOf(os.Args))
	if err := c.ExecuteContext(ctx); err != nil {
		stop()
		if !errors.Is(err, errFaults) && !errors.Is(err, errBlocked) { // they are printed
			fmt.Fprintln(printable{os.Stderr}, "error:", err)
		}
		os.Exit(1)
	}
}

// argsOf returns the arguments of the command. kubectl asks a plugin for completions by another name of
// its program.
func argsOf(called []string) []string {
	if strings.HasPrefix(filepath.Base(called[0]), "kubectl_complete-") {
		return append([]string{cobra.ShellCompRequestCmd}, called[1:]...)
	}
	return called[1:]
}

// session has the streams and flags that all commands share.
type session struct {
	genericiooptions.IOStreams
	flags *genericclioptions.ConfigFlags
	// fenceline is the namespace of Fenceline.
	fenceline string
	// output is json, yaml, wide or empty.
	output string
	// hostLocal asks the agent of a node for the files of host-local.
	hostLocal func(ctx context.Context, c *cluster.Cluster, pod string, r diagnosis.HostLocal) (*diagnosis.HostLocalFiles, error)
}

func command(streams genericiooptions.IOStreams) *cobra.Command {
	s := &session{IOStreams: streams}
	s.hostLocal = func(ctx context.Context, c *cluster.Cluster, pod string, r diagnosis.HostLocal) (*diagnosis.HostLocalFiles, error) {
		return c.HostLocal(ctx, pod, r)
	}
	return s.command()
}

func (s *session) command() *cobra.Command {
	s.ErrOut, s.flags = printable{s.ErrOut}, genericclioptions.NewConfigFlags(true)
	c := &cobra.Command{
		Use: "kubectl-fenceline", Short: "Show who has which address, what is free, and why a pod has none",
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl fenceline"},
		SilenceUsage: true, SilenceErrors: true,
	}
	c.SetOut(s.Out)
	c.SetErr(s.ErrOut)
	s.flags.AddFlags(c.PersistentFlags())
	c.PersistentFlags().StringVar(&s.fenceline, "fenceline-namespace", "fenceline-system", "namespace in which Fenceline is installed")
	c.PersistentFlags().StringVarP(&s.output, "output", "o", "", "json, yaml or wide")
	c.AddCommand(s.status(), s.mapOf(), s.explain(), s.why(), s.probe(), s.doctor(), s.free(), s.export(), s.importTable(), s.moveIn(), s.moveOut(), s.ui(), s.version())
	return c
}

// open returns the cluster of the kubeconfig.
func (s *session) open() (*cluster.Cluster, error) {
	config, err := s.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.UserAgent = "kubectl-fenceline/" + version.String()
	return cluster.Open(config, s.fenceline)
}

// writeEach prints answers with an empty line between two of them.
func writeEach[T interface{ write(paper) }](w paper, all []T) {
	for i, a := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		a.write(w)
	}
}

// answers returns the action of a command that reads the cluster and prints the answer. write
// prints it for people.
func answers[T any](s *session, read func(context.Context, *cluster.Cluster, []string) (T, error), write func(paper, T)) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		cl, err := s.open()
		if err != nil {
			return err
		}
		answer, err := read(c.Context(), cl, args)
		if err != nil {
			return err
		}
		defer s.sayUnread(cl)
		return s.print(answer, func(p paper) { write(p, answer) })
	}
}
