// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	eventsv1 "k8s.io/api/events/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// auditLog keeps the audit lines of a controller's log.
type auditLog struct {
	mu    sync.Mutex
	lines []map[string]any
}

// Write gets one line at a time.
func (a *auditLog) Write(line []byte) (int, error) {
	fields := map[string]any{}
	if err := json.Unmarshal(line, &fields); err != nil {
		return 0, fmt.Errorf("read the log's line %q: %w", line, err)
	}
	if fields["logger"] == "audit" {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.lines = append(a.lines, fields)
	}
	return len(line), nil
}

// of returns the lines of one kind and reason.
func (a *auditLog) of(kind, reason string) []map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(a.lines), func(l map[string]any) bool { return l["msg"] != kind || l["reason"] != reason })
}

// reasonsAreTold: whatever an address was taken for, which the leases of the other
// subtests have told, the same word is in an event, a metric and an audit line.
func (w world) reasonsAreTold(log *auditLog) {
	for _, reason := range []v1alpha1.LeaseReason{
		v1alpha1.ReasonPodDeleted, v1alpha1.ReasonPodGone, v1alpha1.ReasonPodReplaced, v1alpha1.ReasonPodTerminating,
		v1alpha1.ReasonPodFinished, v1alpha1.ReasonNodeUnreachable, v1alpha1.ReasonNodeGone, v1alpha1.ReasonOutOfService,
	} {
		word := string(reason)
		w.waitMetric("fenceline_reclaims_total reason="+word, func(v float64) bool { return v >= 1 })
		w.eventually("event of a reclaim for "+word, func() error {
			var events eventsv1.EventList
			if err := w.client.List(w.ctx, &events); err != nil {
				return err
			}
			if !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
				return e.Reason == "AddressReclaimed" && strings.Contains(e.Note, ": "+word+": ")
			}) {
				return fmt.Errorf("none of %d events tells of one", len(events.Items))
			}
			return nil
		})
		lines := log.of("reclaim", word)
		if len(lines) == 0 {
			w.Errorf("no audit line tells of a reclaim for %s", word)
		}
		for _, line := range lines {
			for _, field := range []string{"address", "pool", "namespace", "pod", "uid", "node", "mac", "token"} {
				if _, ok := line[field]; !ok {
					w.Errorf("an audit line of %s lacks %s: %v", word, field, line)
				}
			}
			if line["address"] == "" || line["pool"] == "" || line["node"] == "" {
				w.Errorf("an audit line of %s says nothing: %v", word, line)
			}
		}
	}
}
