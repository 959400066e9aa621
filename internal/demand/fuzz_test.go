// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"errors"
	"testing"
)

// FuzzDemand: a demand within its bounds, or an error that names the annotation.
func FuzzDemand(f *testing.F) {
	keys := Annotations()
	for i := range keys {
		for _, value := range []string{
			"", "null", "{}", "[]", `[{}]`, `{"ipv4":["a"]}`, `{"ipv4":["a","a"]}`, `{"ipv6":[""]}`, `[{"interface":"eth0","ipv4":["a"],"ipv6":["b"]}]`,
			`[{"ipv4":["a"]},{"interface":"0","ipv4":["b"]}]`, "3", "+3", "+0", "0", "-1", "+", "99999999", "true", "false", `{"ipv4":["a"]} {}`,
		} {
			f.Add(byte(i), value, "+1")
		}
	}
	f.Fuzz(func(t *testing.T, which byte, value, number string) {
		annotations := map[string]string{keys[2]: number}
		annotations[keys[int(which)%len(keys)]] = value
		d, ok, err := Parse(annotations)
		if err != nil {
			e, is := errors.AsType[*Error](err)
			if !is || annotations[e.Key] != e.Value || len(err.Error()) > 64<<10 {
				t.Errorf("%v: %T %v", annotations, err, err)
			}
			return
		}
		if !ok {
			return
		}
		if n := d.Size.Addresses; n < 0 || n > MaxAddresses || d.Size.Fixed && n == 0 || len(d.Interfaces) == 0 || len(d.Interfaces) > MaxEntries {
			t.Errorf("%v: %+v", annotations, d)
		}
		for _, i := range d.Interfaces {
			if got, found := d.For(i.Name, -1); !found || got.Name != i.Name || len(i.V4)+len(i.V6) == 0 {
				t.Errorf("%v: interface %+v is found as %+v, %v", annotations, i, got, found)
			}
		}
	})
}
