// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/test/check"
)

func TestEachAlertLeadsToItsRunbook(t *testing.T) {
	for values, base := range map[string]string{
		"prometheusRule.enabled=true": "https://github.com/fenceline/fenceline/blob/main/docs/runbooks.md#",
		// Values of an older build.
		`prometheusRule={"enabled":true,"labels":{},"runbookURL":null}`:                  "https://github.com/fenceline/fenceline/blob/main/docs/runbooks.md#",
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
		check.That(t, alerts >= 10, "%s: only %d alerts", values, alerts)
	}
}

func TestTheDashboardsAreWhereGrafanaLooks(t *testing.T) {
	out, err := template(t, "templates/dashboards.yaml", "")
	check.That(t, err != nil, "dashboards without a value: %s", out)
	for values, want := range map[string][]string{
		"grafanaDashboard.enabled=true": {"  namespace: default\n", "    grafana_dashboard: \"1\"\n"},
		`grafanaDashboard={"enabled":true,"namespace":"monitoring","labels":{"grafana_dashboard":null,"board":"yes"}}`: {"  namespace: monitoring\n", "    board: \"yes\"\n"},
	} {
		out := check.Value(template(t, "templates/dashboards.yaml", values))(t)
		boards := 0
		for _, document := range strings.Split(out, "---\n")[1:] {
			var found corev1.ConfigMap
			check.OK(t, yaml.Unmarshal([]byte(document), &found))
			for _, text := range want {
				check.That(t, strings.Contains(document, text), "%s: ConfigMap %s lacks %q", values, found.Name, text)
			}
			for name, text := range found.Data {
				boards++
				check.That(t, json.Valid([]byte(text)) && strings.Contains(text, "{{pool}}"), "%s: %s is no dashboard: %s", values, name, text)
			}
		}
		check.That(t, boards == 2, "%s: %d dashboards", values, boards)
	}
}
