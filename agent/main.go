// SPDX-License-Identifier: Apache-2.0

// The agent runs on every node: it serves the CNI plugin, binds pods to
// addresses, guards them, and verifies addresses that were taken by force.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fenceline/fenceline/agent/hostlink/cidr"
	"github.com/fenceline/fenceline/agent/install"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/diagnosis"
	"github.com/fenceline/fenceline/internal/metricsendpoint"
	"github.com/fenceline/fenceline/internal/version"
)

// settings are the agent's flags.
type settings struct {
	node, namespace, pod     string
	stateDir, socket, bpfDir string
	cgroupDir                string
	plugin, binDir           string
	conflist, confDir        string
	multusNetwork            string
	metrics                  metricsendpoint.Endpoint
	healthAddress            string
	logLevel                 slog.Level
	addressWait              time.Duration
	statefulSet              v1alpha1.StatefulSetMode
	serviceCIDRs             []netip.Prefix
	podCIDRs                 []netip.Prefix
	exclusiveParents         []string
	vlanParents              []string
	vfWalls                  bool
	defaultSubnets           ipam.ConfigPools
	mountBPFFS               string
	remove                   bool
}

func main() {
	// A thread that has entered a pod's network namespace ends with its goroutine.
	// The main thread cannot end and would keep the namespace and its links alive:
	// no other goroutine may run on it.
	runtime.LockOSThread()
	beginFootprint()
	if err := command().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "fenceline-agent:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var s settings
	c := &cobra.Command{
		Use: "agent", Args: cobra.NoArgs, Version: version.String(), SilenceUsage: true, SilenceErrors: true,
		Short: "Gives pods on underlay networks their addresses and ensures that each address has one speaker.",
		RunE: func(c *cobra.Command, _ []string) error {
			if s.mountBPFFS != "" {
				return install.MountBPFFS(s.mountBPFFS)
			}
			if s.remove {
				return removeAndWait(c.Context(), s)
			}
			return run(c.Context(), s)
		},
	}
	f := c.Flags()
	f.StringVar(&s.node, "node-name", os.Getenv("NODE_NAME"), "name of this node")
	f.StringVar(&s.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace of Fenceline, which holds the claim key")
	f.StringVar(&s.pod, "pod-name", os.Getenv("POD_NAME"), "name of this agent's pod, whose annotation holds the agent's index")
	f.StringVar(&s.stateDir, "state-dir", "/var/lib/fenceline", "directory of the journal and the spool")
	f.StringVar(&s.socket, "socket", agentapi.DefaultSocket, "unix socket that the plugin calls")
	f.StringVar(&s.bpfDir, "bpf-dir", "/sys/fs/bpf/fenceline", "directory of pins on the host's bpffs")
	f.StringVar(&s.cgroupDir, "cgroup-dir", "", "where the node's cgroup v2 hierarchy is mounted, such as /sys/fs/cgroup: pods get no sockets that skip their guard; empty does not restrict sockets")
	f.StringVar(&s.plugin, "cni-plugin", "", "plugin binary to install; empty installs none")
	f.StringVar(&s.binDir, "cni-bin-dir", "/opt/cni/bin", "directory in which the plugin is installed")
	f.StringVar(&s.conflist, "cni-conflist", "", "network configuration to install once ADD can be served; empty installs none")
	f.StringVar(&s.confDir, "cni-conf-dir", "/etc/cni/net.d", "directory in which the network configuration is installed")
	f.StringVar(&s.multusNetwork, "multus-cluster-network", "", "NetworkAttachmentDefinition (namespace/name) of the first interface of pods; empty reads it from Multus' configuration in --cni-conf-dir")
	f.StringVar(&s.metrics.Address, "metrics-address", ":9474", "address of /metrics")
	f.BoolVar(&s.metrics.Secure, "metrics-secure", false, "serve /metrics by TLS, and only to clients whose token may get it")
	f.StringVar(&s.metrics.CertDir, "metrics-cert-dir", "", "directory of tls.crt and tls.key for /metrics; empty makes a certificate that nobody has signed")
	f.StringVar(&s.healthAddress, "health-address", "127.0.0.1:9476", "address of /healthz and /readyz")
	f.DurationVar(&s.addressWait, "address-wait", agentapi.WaitTimeout,
		fmt.Sprintf("how long an ADD waits for an address of a full pool, at most %s; 0: not at all", agentapi.WaitTimeout))
	s.statefulSet = v1alpha1.StatefulSetPrefer
	f.Func("stateful-set", "Prefer, Require or Off: whether addresses of StatefulSet pods stay with their names, for pools without statefulSet (default Prefer)", into(&s.statefulSet, v1alpha1.ParseStatefulSetMode))
	f.Func("service-cidrs", "prefixes of all ClusterIPs, separated by commas; empty reads the ServiceCIDRs of the API server", into(&s.serviceCIDRs, list(cidr.ParseService)))
	f.Func("pod-cidrs", "prefixes of the pods of other networks, separated by commas; empty reads the Nodes, and the settings of Calico and Cilium", into(&s.podCIDRs, list(cidr.ParsePod)))
	f.BoolVar(&s.vfWalls, "vf-walls", true, "check the sources of virtual functions (SR-IOV) at their PF too, and switch fenced ones off there")
	f.StringSliceVar(&s.exclusiveParents, "exclusive-parents", nil, "interfaces on which only this node and pods of Fenceline send, separated by commas: frames of other MACs are dropped there")
	f.StringSliceVar(&s.vlanParents, "vlan-parents", nil, "interfaces on which the agent makes the VLAN subinterfaces that networks name, separated by commas; none: it makes none")
	f.StringSliceVar(&s.defaultSubnets.V4, "default-subnets-ipv4", nil, "IPSubnets for pods for which nothing names pools, separated by commas; none: those with spec.default")
	f.StringSliceVar(&s.defaultSubnets.V6, "default-subnets-ipv6", nil, "the same for IPv6")
	f.TextVar(&s.logLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
	f.StringVar(&s.mountBPFFS, "mount-bpffs", "", "mount a bpffs at this path, unless there is one, and exit")
	c.AddCommand(diagnose(), hostLocal())
	f.BoolVar(&s.remove, "remove", false, "remove Fenceline from this node, as part of an uninstallation, and answer /healthz when that is done")
	return c
}

// into returns a function that parses the text of a flag into its value.
func into[T any](value *T, parse func(string) (T, error)) func(string) error {
	return func(text string) (err error) {
		*value, err = parse(text)
		return err
	}
}

// list returns a function that parses words separated by commas. The empty text has none.
func list[T any](parse func(string) (T, error)) func(string) ([]T, error) {
	return func(text string) (all []T, err error) {
		if text == "" {
			return nil, nil
		}
		for word := range strings.SplitSeq(text, ",") {
			value, err := parse(strings.TrimSpace(word))
			if err != nil {
				return nil, err
			}
			all = append(all, value)
		}
		return all, nil
	}
}

// removeAndWait removes Fenceline from the node and then answers liveness probes
// until ctx ends: an answer reports that the node is done.
func removeAndWait(ctx context.Context, s settings) error {
	o := install.RemoveOptions{StateDir: s.stateDir, BPFDir: s.bpfDir, ConfDir: s.confDir}
	if s.conflist != "" {
		o.Conflist = filepath.Base(s.conflist)
	}
	if err := install.RemoveNode(o); err != nil {
		return err
	}
	stop, err := AnswerAlive(s.healthAddress, newLogger(s.logLevel))
	if err != nil {
		return err
	}
	defer stop()
	<-ctx.Done()
	return nil
}

// diagnose asks the agent that runs on this node. A person runs it in the agent's container. The
// right to do that decides, so the agent listens on no port for it.
func diagnose() *cobra.Command {
	socket := ""
	c := &cobra.Command{
		Use: "diagnose", Short: "Ask the running agent about its node: JSON in, JSON out", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var request diagnosis.Request
			if err := json.NewDecoder(c.InOrStdin()).Decode(&request); err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("read the request: %w", err)
			}
			var report diagnosis.Report
			if err := agentapi.NewClient(socket).Diagnose(c.Context(), request, &report); err != nil {
				return err
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(report)
		},
	}
	c.Flags().StringVar(&socket, "socket", agentapi.DefaultSocket, "unix socket of the agent")
	return c
}
