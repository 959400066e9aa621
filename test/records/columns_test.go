// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// testColumns reads what `kubectl get` prints.
func (e *env) testColumns(t *testing.T) {
	e.create(t, bound("", "10.1.0.1", forced))
	e.create(t, record("IPPool", "blue", fields{"subnet": "10.1.0.0/24", "gateway": "10.1.0.1"}))
	e.create(t, record("ReservedIP", "routers", fields{"ips": list("10.1.0.1", "10.1.0.9")}))
	e.create(t, record("IPSubnet", "floor", fields{"subnet": "10.2.0.0/24"}))
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	check.OK(t, e.admin.Get(t.Context(), objectKey("blue"), pool))
	pool.Status = v1alpha1.IPPoolStatus{Total: 253, Used: 7, Quarantined: 1, Conditions: []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Valid", LastTransitionTime: metav1.Now()},
	}}
	check.OK(t, e.admin.Status().Update(t.Context(), pool))
	for resource, want := range map[string][2]string{
		"ipleases":    {"Name Address State Pool Node Namespace Pod Reason Age", "10.1.0.1 10.1.0.1 Bound pool n1 default web-0 <nil>"},
		"ippools":     {"Name Subnet Total Used Quarantined Ready Reason Age", "blue 10.1.0.0/24 253 7 1 True Valid"},
		"ipsubnets":   {"Name Subnet Total Allocated Pools Ready Reason Age", "floor 10.2.0.0/24 <nil> <nil> <nil> <nil> <nil>"},
		"reservedips": {"Name IPs In use Ready Age", `routers ["10.1.0.1","10.1.0.9"] <nil> <nil>`},
	} {
		table := e.table(t, resource)
		var names, cells []string
		for _, column := range table.ColumnDefinitions {
			if column.Priority == 0 {
				names = append(names, column.Name)
			}
		}
		if got := strings.Join(names, " "); got != want[0] {
			t.Errorf("%s: columns %s, want %s", resource, got, want[0])
		}
		if len(table.Rows) != 1 {
			t.Fatalf("%s: %d rows, want 1", resource, len(table.Rows))
		}
		for _, cell := range table.Rows[0].Cells[:len(names)-1] { // without the age
			cells = append(cells, fmt.Sprint(cell))
		}
		if got := strings.Join(cells, " "); got != want[1] {
			t.Errorf("%s: row %s, want %s", resource, got, want[1])
		}
	}
}

func (e *env) table(t *testing.T, resource string) *metav1.Table {
	t.Helper()
	clients, err := kubernetes.NewForConfig(e.server.Admin())
	check.OK(t, err)
	data, err := clients.RESTClient().Get().AbsPath("/apis", v1alpha1.GroupVersion().Group, v1alpha1.GroupVersion().Version, resource).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	check.OK(t, err)
	table := &metav1.Table{}
	check.OK(t, json.Unmarshal(data, table))
	return table
}
