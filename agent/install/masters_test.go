// SPDX-License-Identifier: Apache-2.0

package install

import (
	"slices"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestTheMastersOfANetworkConfiguration(t *testing.T) {
	for _, row := range []struct {
		name, conflist string
		want           []string
	}{
		{"as the chart writes it", `{"plugins":[{"type":"macvlan","master":"eth1","ipam":{"type":"fenceline"}},{"type":"fenceline"}]}`, []string{"eth1"}},
		{"the interface of the default route", `{"plugins":[{"type":"ipvlan","ipam":{"type":"fenceline"}}]}`, []string{""}},
		{"another IPAM", `{"plugins":[{"type":"macvlan","master":"eth1","ipam":{"type":"host-local"}}]}`, nil},
		{"no plugin", `{}`, nil},
	} {
		got, err := Masters([]byte(row.conflist))
		check.That(t, err == nil && slices.Equal(got, row.want), "%s: %q, %v", row.name, got, err)
	}
	_, err := Masters([]byte("no JSON"))
	check.That(t, err != nil, "no JSON is read")
}
