package main

import (
	"errors"
	"flag"
	"log/slog"
	"testing"
	"time"
)

func TestCommandLine(t *testing.T) {
	o, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := options{
		namespace: "fenceline-system", metricsAddress: ":9475", healthAddress: "127.0.0.1:9477", leaderElect: true,
		extraGrace: 5 * time.Second, auditPeriod: 10 * time.Minute, logLevel: slog.LevelInfo,
	}
	if o != want {
		t.Errorf("defaults %+v, want %+v", o, want)
	}
	for _, args := range [][]string{
		{"--namespace", ""}, {"--extra-grace", "-1s"}, {"--audit-period", "0s"}, {"--log-level", "loud"}, {"start"}, {"--nonsense"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
	if _, err := parse([]string{"-h"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
}
