// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"bytes"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/go-logr/logr"

	"github.com/fenceline/fenceline/internal/audit"
	"github.com/fenceline/fenceline/test/check"
)

// An operator who wants fewer log lines still needs the holder of an address at 14:03 (R14).
func TestAnAuditLineIsWrittenWhateverTheLogLevelIs(t *testing.T) {
	var out bytes.Buffer
	log := logr.FromSlogHandler(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelError}))
	log.Info("not an audit line")
	audit.Log(log, audit.Grant, audit.Record{Address: netip.MustParseAddr("10.6.0.17"), Token: 5})
	check.Says(t, out.String(), `"msg":"grant"`, `"logger":"audit"`, `"address":"10.6.0.17"`, `"token":5`)
	check.That(t, bytes.Count(out.Bytes(), []byte("\n")) == 1, "want the audit line and no other:\n%s", &out)
}

func TestALoggerThatWritesNothingTakesAuditLines(*testing.T) {
	audit.Log(logr.Discard(), audit.Grant, audit.Record{})
}
