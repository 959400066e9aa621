// Package alerts tests the chart's alert rules with promtool, and that the
// metrics they and people rely on are those of docs/metrics.md.
package alerts
