// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/fenceline/fenceline/controller/reclaim"
	"github.com/fenceline/fenceline/controller/subnet"
	"github.com/fenceline/fenceline/internal/metricsendpoint"
)

// options holds the command line.
type options struct {
	namespace     string
	metrics       metricsendpoint.Endpoint
	healthAddress string
	// uiAddress and uiCertDir are those of page.Server. The page is not served if the address is empty.
	uiAddress, uiCertDir string
	leaderElect          bool
	// scheduling writes the labels of nodes.
	scheduling  bool
	reclaim     reclaim.Policy
	auditPeriod time.Duration
	logLevel    slog.Level
	// defaultSubnets4 and defaultSubnets6 are the IPSubnets of applications that name nothing.
	defaultSubnets4, defaultSubnets6 []string
	// settle is the time between the withdrawal of an address from a pool and its return to the IPSubnet.
	settle time.Duration
}

// parse parses the arguments, without the program's name. The error of -h is flag.ErrHelp.
func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("fenceline-controller", flag.ContinueOnError)
	flags.StringVar(&o.namespace, "namespace", "fenceline-system", "`namespace` of the agents, the claim key and the leader's Lease")
	flags.StringVar(&o.metrics.Address, "metrics-address", ":9475", "`address` that serves /metrics")
	flags.BoolVar(&o.metrics.Secure, "metrics-secure", false, "serve /metrics by TLS, and only to clients whose token may get it")
	flags.StringVar(&o.metrics.CertDir, "metrics-cert-dir", "", "`directory` of tls.crt and tls.key for /metrics; empty makes a certificate that nobody has signed")
	flags.StringVar(&o.healthAddress, "health-address", "127.0.0.1:9477", "`address` that serves /healthz and /readyz")
	flags.StringVar(&o.uiAddress, "ui-address", "", "`address` that serves the page, by HTTP on a loopback address and by TLS on others; empty switches the page off")
	flags.StringVar(&o.uiCertDir, "ui-cert-dir", "", "`directory` of tls.crt and tls.key for the page; empty makes a certificate that nobody has signed")
	flags.BoolVar(&o.leaderElect, "leader-elect", true, "work only as the leader; necessary with more than one replica")
	flags.BoolVar(&o.scheduling, "scheduling", false, "label nodes by the pools that serve some nodes only")
	o.reclaim.AddFlags(flags)
	flags.DurationVar(&o.auditPeriod, "audit-period", 10*time.Minute, "how often the controller looks at all leases")
	flags.Func("default-subnets-ipv4", "`names` of IPSubnets for applications whose annotations name nothing, separated by commas; none: those with spec.default", list(&o.defaultSubnets4))
	flags.Func("default-subnets-ipv6", "the same for IPv6", list(&o.defaultSubnets6))
	flags.DurationVar(&o.settle, "settle", subnet.Settle, "how long an address that a pool no longer needs stays in the pool")
	flags.TextVar(&o.logLevel, "log-level", slog.LevelInfo, "DEBUG, INFO, WARN or ERROR")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.namespace == "":
		return o, fmt.Errorf("--namespace must not be empty")
	case o.reclaim.ExtraGrace < 0:
		return o, fmt.Errorf("--extra-grace %s must not be negative", o.reclaim.ExtraGrace)
	case o.settle < 0:
		return o, fmt.Errorf("--settle %s must not be negative", o.settle)
	case o.auditPeriod <= 0:
		return o, fmt.Errorf("--audit-period %s must be positive", o.auditPeriod)
	}
	return o, nil
}

// list returns a function that reads names separated by commas.
func list(into *[]string) func(string) error {
	return func(text string) error {
		*into = strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' })
		return nil
	}
}
