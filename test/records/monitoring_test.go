// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/test/check"
)

func TestEachAlertLeadsToItsRunbook(t *testing.T) {
	for values, base := range map[string]string{
		"prometheusRule.enabled=true": "https://github.com/fenceline/fenceline/blob/main/docs/runbooks.md#",
		// Values of an older build.
		`prometheusRule={"enabled":true,"labels":{},"runbookURL":null}`:                "https://github.com/fenceline/fenceline/blob/main/docs/runbooks.md#",
		`prometheusRule.enabled=true,prometheusRule.runbookURL="https://wiki/fenceline"`: "https://wiki/fenceline#",
	} {
		out := check.Value(template(t, "templates/monitoring.yaml", values))(t)
		var rules struct {
			Spec struct {
				Groups []struct {
					Rules []struct {
						Alert       string            `json:"alert"`
						Annotations map[string]string `json:"annotations"`
					} `json:"rules"`
				} `json:"groups"`
			} `json:"spec"`
		}
		check.OK(t, yaml.Unmarshal([]byte(out), &rules))
		alerts := 0
		for _, group := range rules.Spec.Groups {
			for _, r := range group.Rules {
				alerts++
				if want := base + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want || r.Annotations["summary"] == "" {
					t.Errorf("%s: %s has the annotations %v, want runbook_url %s", values, r.Alert, r.Annotations, want)
				}
			}
		}
		if alerts < 10 {
			t.Errorf("%s: only %d alerts", values, alerts)
		}
	}
}
