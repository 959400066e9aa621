// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/reclaim"
	"github.com/fenceline/fenceline/internal/metricsendpoint"
	"github.com/fenceline/fenceline/test/check"
)

func TestCommandLine(t *testing.T) {
	o, err := parse(nil)
	check.OK(t, err)
	want := options{
		namespace: "fenceline-system", metrics: metricsendpoint.Endpoint{Address: ":9475"}, healthAddress: "127.0.0.1:9477", leaderElect: true,
		reclaim: reclaim.Policy{
			Enabled: true, Terminating: true, ExtraGrace: 5 * time.Second, NodeDown: reclaim.NodeDown{Take: true},
			RetentionLimit: v1alpha1.DefaultRetention,
		},
		auditPeriod: 10 * time.Minute, logLevel: slog.LevelInfo, settle: time.Minute,
	}
	check.That(t, reflect.DeepEqual(o, want), "defaults %+v, want %+v", o, want)
	for _, args := range [][]string{
		{"--namespace", ""}, {"--extra-grace", "-1s"}, {"--node-down", "Later"}, {"--reclaim=maybe"}, {"--audit-period", "0s"}, {"--log-level", "loud"}, {"start"}, {"--nonsense"}, {"--settle", "-1s"},
	} {
		check.That(t, check.Err(parse(args)) != nil, "%v was accepted", args)
	}
	o, err = parse([]string{"--reclaim=false", "--terminating=false", "--extra-grace=1m", "--node-down", "After 2m"})
	if want := (reclaim.Policy{RetentionLimit: v1alpha1.DefaultRetention, ExtraGrace: time.Minute, NodeDown: reclaim.NodeDown{Take: true, DeletePods: true, After: 2 * time.Minute}}); err != nil || o.reclaim != want {
		t.Errorf("reclaim %+v (%v), want %+v", o.reclaim, err, want)
	}
	o, err = parse([]string{"--default-subnets-ipv4=floor, floor-2", "--default-subnets-ipv6="})
	check.That(t, err == nil && slices.Equal(o.defaultSubnets4, []string{"floor", "floor-2"}) && len(o.defaultSubnets6) == 0,
		"default subnets %v and %v (%v)", o.defaultSubnets4, o.defaultSubnets6, err)
	o, err = parse([]string{"--ui-address=127.0.0.1:9478", "--ui-cert-dir=/certs"})
	check.That(t, err == nil && o.uiAddress == "127.0.0.1:9478" && o.uiCertDir == "/certs", "page %q with %q (%v)", o.uiAddress, o.uiCertDir, err)
	check.Is(t, check.Err(parse([]string{"-h"})), flag.ErrHelp, "-h:")
}

func TestCommandLineOfTheUninstallation(t *testing.T) {
	for step, finish := range map[string]bool{"begin": false, "finish": true} {
		o, err := parseUninstall([]string{"--namespace=net", step})
		want := (uninstallOptions{namespace: "net", finish: finish})
		check.That(t, err == nil && o == want, "%s: %+v (%v), want %+v", step, o, err, want)
	}
	for _, args := range [][]string{nil, {"start"}, {"begin", "finish"}, {"--force", "begin"}} {
		check.That(t, check.Err(command(append([]string{uninstallCommand}, args...))) != nil, "%v was accepted", args)
	}
}

func TestCommandLineOfHelmTest(t *testing.T) {
	o, err := parseTest([]string{"--namespace=net", "--timeout=8s", "check"})
	want := testOptions{namespace: "net", part: "check", timeout: 8 * time.Second}
	check.That(t, err == nil && o == want, "%+v (%v), want %+v", o, err, want)
	for _, args := range [][]string{nil, {"start"}, {"judge", "serve"}, {"--force", "judge"}} {
		check.That(t, check.Err(command(append([]string{testCommand}, args...))) != nil, "%v was accepted", args)
	}
}
