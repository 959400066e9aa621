// SPDX-License-Identifier: Apache-2.0

// Package alerts tests the chart's alert rules with promtool. It also tests that docs/metrics.md lists
// exactly the exported metrics, that rules and dashboards use no others, and that each alert has its
// runbook.
package alerts
