// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"log/slog"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/reclaim"
)

// options holds the command line.
type options struct {
	namespace      string
	metricsAddress string
	healthAddress  string
	leaderElect    bool
	reclaim        reclaim.Policy
	auditPeriod    time.Duration
	logLevel       slog.Level
}

// parse parses the arguments, without the program's name. The error of -h is flag.ErrHelp.
func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("fenceline-controller", flag.ContinueOnError)
	flags.StringVar(&o.namespace, "namespace", "fenceline-system", "`namespace` of the agents, the claim key and the leader's Lease")
	flags.StringVar(&o.metricsAddress, "metrics-address", ":9475", "`address` that serves /metrics")
	flags.StringVar(&o.healthAddress, "health-address", "127.0.0.1:9477", "`address` that serves /healthz and /readyz")
	flags.BoolVar(&o.leaderElect, "leader-elect", true, "work only as the leader; necessary with more than one replica")
	flags.BoolVar(&o.reclaim.Enabled, "reclaim", true, "take addresses by force and end retention; if false, only the verification of Quarantined leases goes on")
	flags.BoolVar(&o.reclaim.Terminating, "terminating", true, "take addresses of pods that stay Terminating; for pools without reclaim.terminating")
	flags.DurationVar(&o.reclaim.ExtraGrace, "extra-grace", 5*time.Second, "how long to wait after the end of a pod before its address is taken; for pools without reclaim.extraGrace")
	o.reclaim.NodeDown = reclaim.NodeDown{Take: true}
	o.reclaim.RetentionLimit = v1alpha1.DefaultRetention
	flags.Func("node-down", "Never, AfterTerminating or After `duration`, for pools without reclaim.nodeDown (default AfterTerminating)", func(text string) (err error) {
		o.reclaim.NodeDown, err = reclaim.ParseNodeDown(v1alpha1.NodeDownPolicy(text))
		return err
	})
	flags.DurationVar(&o.auditPeriod, "audit-period", 10*time.Minute, "how often the controller looks at all leases")
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
	case o.auditPeriod <= 0:
		return o, fmt.Errorf("--audit-period %s must be positive", o.auditPeriod)
	}
	return o, nil
}
