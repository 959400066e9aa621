// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// leasesFrom are n leases in the state, of the address and those after it.
func leasesFrom(first string, n int, state v1alpha1.LeaseState) []v1alpha1.IPLease {
	a := netip.MustParseAddr(first)
	var leases []v1alpha1.IPLease
	for range n {
		leases = append(leases, lease(a.String(), state))
		a = a.Next()
	}
	return leases
}

func edited(pool v1alpha1.IPPool, edit func(*v1alpha1.IPPool)) v1alpha1.IPPool {
	edit(&pool)
	return pool
}

func TestConditions(t *testing.T) {
	const (
		bound       = v1alpha1.StateBound
		warm        = v1alpha1.StateWarm
		quarantined = v1alpha1.StateQuarantined
		retained    = v1alpha1.StateRetained
	)
	blue := func(edit func(*v1alpha1.IPPool)) v1alpha1.IPPool {
		return edited(subnetPool("blue", "10.6.0.0/29", 1), edit)
	}
	plain := subnetPool("blue", "10.6.0.0/29", 1)
	older := subnetPool("older", "10.6.0.0/24", 0)
	deleting := blue(func(p *v1alpha1.IPPool) { p.DeletionTimestamp = ptr.To(noon()) })
	disabled := blue(func(p *v1alpha1.IPPool) { p.Spec.Disable = ptr.To(true) })
	reversed := edited(subnetPool("blue", "fd00:6::/64", 1), func(p *v1alpha1.IPPool) { p.Spec.IPs = []string{"fd00:6::20-fd00:6::10"} })
	excluded := blue(func(p *v1alpha1.IPPool) { p.Spec.ExcludeIPs = []string{"10.6.0.0/29"} })
	elsewhere := edited(older, func(p *v1alpha1.IPPool) { p.Spec.Network = "lab" })
	apart := edited(older, func(p *v1alpha1.IPPool) { p.Spec.IPs = []string{"10.6.0.100-10.6.0.110"} })
	some := edited(older, func(p *v1alpha1.IPPool) { p.Spec.Subnet, p.Spec.IPs = "10.6.0.0/24", []string{"10.6.0.4-10.6.0.200"} })
	wide := edited(subnetPool("blue", "10.6.0.0/24", 1), func(p *v1alpha1.IPPool) { p.Spec.IPs = []string{"10.6.0.1-10.6.0.99"} })
	shrunk := blue(func(p *v1alpha1.IPPool) { p.Spec.IPs = []string{"10.6.0.1-10.6.0.3"} })
	gateway := func(name, address, ips string) v1alpha1.IPPool {
		return edited(subnetPool(name, "10.6.0.0/24", 2), func(p *v1alpha1.IPPool) {
			p.Spec.Gateway, p.Spec.IPs = ptr.To(address), []string{ips}
		})
	}
	virtual := edited(gateway("red", "10.6.0.1", "10.6.0.30-10.6.0.40"), func(p *v1alpha1.IPPool) {
		p.Spec.SourceGuardAllow = &v1alpha1.SourceGuardAllow{CIDRs: []string{"10.6.0.9/32"}}
	})
	ahead := lease("10.6.0.2", bound)
	ahead.Spec.Reason = v1alpha1.ReasonStoreWentBack
	unguarded := lease("10.6.0.2", bound)
	unguarded.Spec.Holder.Guarded = false
	notSilent := lease("10.6.0.3", quarantined)
	notSilent.Spec.Holder, notSilent.Spec.Previous = nil, &v1alpha1.PreviousHolder{Node: "n1", PodUID: "u1"}
	one := []v1alpha1.IPLease{lease("10.6.0.5", bound)}

	for _, row := range []struct {
		name     string
		pool     v1alpha1.IPPool
		leases   []v1alpha1.IPLease
		others   []v1alpha1.IPPool
		reserved []string
		want     map[string]string // condition type to "status/reason"
	}{
		{"a good pool", plain, nil, nil, nil, map[string]string{"Ready": "True/Ready", "Overlapping": "False/None",
			"Exhausted": "False/AddressLeft", "Unfenced": "False/AllHoldersGuarded", "Outside": "False/None", "StoreWentBack": "False/None", "AnsweredByOne": "False/None", "SharedMAC": "False/None"}},
		{"an IPv6 range that ends before it starts", reversed, nil, nil, nil, map[string]string{"Ready": "False/Invalid"}},
		{"nothing left to hand out", excluded, nil, nil, nil, map[string]string{"Ready": "False/AllExcluded", "Exhausted": "False/None"}},
		{"being deleted", deleting, nil, nil, nil, map[string]string{"Ready": "False/Deleting"}},
		{"disabled", disabled, nil, nil, nil, map[string]string{"Ready": "False/Disabled"}},
		{"disabled, and an older pool has some of the addresses", disabled, nil, []v1alpha1.IPPool{older}, nil,
			map[string]string{"Ready": "False/Disabled", "Overlapping": "True/SharedAddresses"}},
		{"the store went back behind a holder", plain, []v1alpha1.IPLease{ahead}, nil, nil, map[string]string{"StoreWentBack": "True/TokensAhead"}},
		{"a holder without guard", plain, []v1alpha1.IPLease{unguarded}, nil, nil, map[string]string{"Unfenced": "True/HolderWithoutGuard"}},
		{"an address waits for such a holder", plain, []v1alpha1.IPLease{unguarded, notSilent}, nil, nil, map[string]string{"Unfenced": "True/HolderNotSilent"}},

		{"every address in use, in whatever state", plain,
			append(leasesFrom("10.6.0.1", 4, bound), lease("10.6.0.5", quarantined), lease("10.6.0.6", retained)), nil, nil,
			map[string]string{"Ready": "True/Ready", "Exhausted": "True/NoAddress"}},
		{"a Warm address is left to whoever needs it", plain, append(leasesFrom("10.6.0.1", 5, bound), lease("10.6.0.6", warm)), nil, nil,
			map[string]string{"Exhausted": "False/AddressLeft"}},
		{"leases outside take no address of the pool", shrunk, leasesFrom("10.6.0.3", 4, bound), nil, nil,
			map[string]string{"Exhausted": "False/AddressLeft", "Outside": "True/AddressInUse"}},
		{"what is reserved and free is not left", plain, leasesFrom("10.6.0.1", 4, bound), nil, []string{"10.6.0.5-10.6.0.6"},
			map[string]string{"Exhausted": "True/NoAddress", "Outside": "False/None"}},

		{"ips without an address in use", shrunk, one, nil, nil, map[string]string{"Ready": "True/Ready", "Outside": "True/AddressInUse"}},
		{"excludeIPs with an address in use", blue(func(p *v1alpha1.IPPool) { p.Spec.ExcludeIPs = []string{"10.6.0.4/31"} }), one, nil, nil,
			map[string]string{"Outside": "True/AddressInUse"}},
		{"the gateway moved onto an address in use", blue(func(p *v1alpha1.IPPool) { p.Spec.Gateway = ptr.To("10.6.0.5") }), one, nil, nil,
			map[string]string{"Outside": "True/AddressInUse"}},
		{"a reservation of an address in use", plain, one, nil, []string{"10.6.0.5"}, map[string]string{"Ready": "True/Ready", "Outside": "True/AddressInUse"}},
		{"the address is free again", shrunk, nil, nil, nil, map[string]string{"Outside": "False/None"}},
		{"an address that cools down is nobody's", shrunk, leasesFrom("10.6.0.1", 2, bound), nil, nil, map[string]string{"Outside": "False/None"}},
		{"of an invalid pool nobody knows", reversed, one, nil, nil, map[string]string{"Outside": "Unknown/Invalid"}},

		{"wholly reserved", plain, nil, nil, []string{"10.6.0.0/16"}, map[string]string{"Ready": "False/AllReserved", "Exhausted": "False/None"}},
		{"wholly reserved by several, what is excluded aside", blue(func(p *v1alpha1.IPPool) { p.Spec.ExcludeIPs = []string{"10.6.0.6"} }), nil, nil,
			[]string{"10.6.0.1-10.6.0.3", "10.6.0.4", "10.6.0.5"}, map[string]string{"Ready": "False/AllReserved"}},
		{"reserved in the other family", plain, nil, nil, []string{"::/0"}, map[string]string{"Ready": "True/Ready"}},

		{"an older pool has some of the addresses", plain, nil, []v1alpha1.IPPool{some}, nil,
			map[string]string{"Ready": "True/Ready", "Overlapping": "True/SharedAddresses"}},
		{"an older pool is being deleted", plain, nil, []v1alpha1.IPPool{edited(older, func(p *v1alpha1.IPPool) { p.DeletionTimestamp = ptr.To(noon()) })}, nil,
			map[string]string{"Ready": "True/Ready", "Overlapping": "False/None"}},
		{"the younger pool was edited later", edited(plain, func(p *v1alpha1.IPPool) { p.Status.ObservedGeneration = p.Generation }), nil, []v1alpha1.IPPool{older}, nil,
			map[string]string{"Ready": "True/Ready", "Overlapping": "True/SharedAddresses"}},
		{"subnets that overlap with different masks", plain, nil, []v1alpha1.IPPool{apart}, nil,
			map[string]string{"Ready": "True/Ready", "Overlapping": "True/SubnetsDiffer"}},
		{"an older pool has all of the addresses", plain, nil, []v1alpha1.IPPool{older}, nil,
			map[string]string{"Ready": "False/Overlapping", "Overlapping": "True/SharedAddresses"}},
		{"a younger pool has some of the addresses", plain, nil, []v1alpha1.IPPool{subnetPool("younger", "10.6.0.0/24", 2)}, nil,
			map[string]string{"Ready": "True/Ready", "Overlapping": "True/SharedAddresses"}},
		{"of the same age, the name decides", plain, nil, []v1alpha1.IPPool{subnetPool("amber", "10.6.0.0/24", 1)}, nil,
			map[string]string{"Ready": "False/Overlapping"}},
		{"the same addresses in another network", plain, nil, []v1alpha1.IPPool{elsewhere}, nil,
			map[string]string{"Ready": "True/Ready", "Overlapping": "False/None"}},
		{"other addresses of the same subnet", wide, nil, []v1alpha1.IPPool{apart}, nil,
			map[string]string{"Ready": "True/Ready", "Overlapping": "False/None"}},
		{"only what is reserved is shared", wide, nil, []v1alpha1.IPPool{some},
			[]string{"10.6.0.4-10.6.0.99"}, map[string]string{"Ready": "True/Ready", "Overlapping": "False/None"}},
		{"itself", plain, nil, []v1alpha1.IPPool{plain}, nil, map[string]string{"Ready": "True/Ready", "Overlapping": "False/None"}},

		{"the same subnet with another gateway, other addresses", gateway("blue", "10.6.0.1", "10.6.0.10-10.6.0.20"), nil,
			[]v1alpha1.IPPool{gateway("red", "10.6.0.2", "10.6.0.30-10.6.0.40")}, nil, map[string]string{"Overlapping": "False/None"}},
		{"another pool's gateway is an address of this one", gateway("blue", "10.6.0.1", "10.6.0.2-10.6.0.20"), nil,
			[]v1alpha1.IPPool{gateway("red", "10.6.0.2", "10.6.0.30-10.6.0.40")}, nil,
			map[string]string{"Ready": "True/Ready", "Overlapping": "True/GatewayHandedOut"}},
		{"this one's gateway is an address of another pool", gateway("red", "10.6.0.2", "10.6.0.30-10.6.0.40"), nil,
			[]v1alpha1.IPPool{gateway("blue", "10.6.0.1", "10.6.0.2-10.6.0.20")}, nil,
			map[string]string{"Ready": "True/Ready", "Overlapping": "True/GatewayHandedOut"}},
		{"another pool's virtual address is an address of this one", gateway("blue", "10.6.0.1", "10.6.0.3-10.6.0.20"), nil,
			[]v1alpha1.IPPool{virtual}, nil, map[string]string{"Ready": "True/Ready", "Overlapping": "True/GatewayHandedOut"}},
		{"this one's virtual address is an address of another pool", virtual, nil,
			[]v1alpha1.IPPool{gateway("blue", "10.6.0.1", "10.6.0.3-10.6.0.20")}, nil, map[string]string{"Overlapping": "True/GatewayHandedOut"}},
		{"the gateway is the same", gateway("blue", "10.6.0.1", "10.6.0.2-10.6.0.20"), nil,
			[]v1alpha1.IPPool{gateway("red", "10.6.0.1", "10.6.0.30-10.6.0.40")}, nil, map[string]string{"Overlapping": "False/None"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := NewReport(Facts{Pool: &row.pool, Leases: row.leases, Others: row.others, Reserved: parsed(t, row.reserved), Now: noon()})
			for kind, want := range row.want {
				c := meta.FindStatusCondition(r.Status.Conditions, kind)
				check.That(t, c != nil && fmt.Sprintf("%s/%s", c.Status, c.Reason) == want, "%s is %+v, want %s", kind, c, want)
			}
		})
	}
}

func parsed(t *testing.T, entries []string) poolset.Set {
	t.Helper()
	return check.Value(poolset.Parse(entries))(t)
}

func TestMessages(t *testing.T) {
	inUse := append(leasesFrom("10.6.0.3", 2, v1alpha1.StateBound), lease("10.6.0.5", v1alpha1.StateRetained))
	for i := range inUse {
		inUse[i].Spec.Holder.Namespace, inUse[i].Spec.Holder.Pod = "shop", fmt.Sprintf("web-%d", i)
	}
	pool := edited(subnetPool("blue", "10.6.0.0/24", 1), func(p *v1alpha1.IPPool) {
		p.Spec.Gateway, p.Spec.IPs = ptr.To("10.6.0.1"), []string{"10.6.0.2-10.6.0.3"}
		p.DeletionTimestamp = ptr.To(noon())
	})
	amber := edited(subnetPool("amber", "10.6.0.0/24", 0), func(p *v1alpha1.IPPool) { p.Spec.Gateway = ptr.To("10.6.0.2") })
	zinc := edited(subnetPool("zinc", "10.6.0.0/24", 2), func(p *v1alpha1.IPPool) { p.Spec.Gateway = ptr.To("10.6.0.1") })
	full := append(leasesFrom("10.6.0.2", 2, v1alpha1.StateBound), lease("10.6.0.77", v1alpha1.StateWarm))
	for _, row := range []struct {
		kind   string
		leases []v1alpha1.IPLease
		want   string
	}{
		{"Ready", inUse, "the pool is deleted once its leases are gone: 2 Bound, 1 Retained"},
		{"Ready", nil, "the pool is deleted once its leases are gone: none"},
		{"Outside", inUse, "not handed out again once they are free: 10.6.0.3 (pod shop/web-0), 10.6.0.4 (pod shop/web-1), 10.6.0.5 (Retained for pod shop/web-2)"},
		{"Overlapping", nil, "other pools hand out addresses of this pool: amber (10.6.0.3); this pool hands out addresses of other pools: zinc (10.6.0.2); addresses are the gateway or virtual addresses of pools: amber; the gateway or a virtual address is an address of pools: amber"},
		{"Exhausted", full, "all 1 addresses are in use; leases: 2 Bound, 1 Warm"},
	} {
		r := NewReport(Facts{Pool: &pool, Leases: row.leases, Others: []v1alpha1.IPPool{zinc, amber}, Now: noon()})
		c := meta.FindStatusCondition(r.Status.Conditions, row.kind)
		check.That(t, c != nil && c.Message == row.want, "%s is %+v, want %s", row.kind, c, row.want)
	}
}

// TestEveryStatusIsAccepted: the API server takes no message above 32768 characters.
func TestEveryStatusIsAccepted(t *testing.T) {
	pool := subnetPool("blue", "fd00:6::/64", 1)
	for i := range 4096 {
		pool.Spec.IPs = append(pool.Spec.IPs, fmt.Sprintf("fd00:0006:0000:0000:0000:0000:0001:%04x-fd00:0006:0000:0000:0000:0000:0000:%04x", i, i))
	}
	pool.Spec.ExcludeIPs = pool.Spec.IPs
	var others []v1alpha1.IPPool
	for i := range 1000 {
		var single []string
		for n := range 11 {
			single = append(single, fmt.Sprintf("10.6.%d.%d", 10+i/100*11+n, 1+2*(i%100)))
		}
		others = append(others, edited(subnetPool(fmt.Sprintf("%s-%d", strings.Repeat("x", 240), i), "10.6.0.0/16", 0), func(p *v1alpha1.IPPool) { p.Spec.IPs = single }))
	}
	crowded := edited(subnetPool("green", "10.6.0.0/16", 1), func(p *v1alpha1.IPPool) {
		for i := range others {
			p.Spec.IPs = append(p.Spec.IPs, others[i].Spec.IPs[:4]...)
		}
	})
	leases := leasesFrom("10.6.0.2", 5000, v1alpha1.StateBound)
	for i := range leases {
		leases[i].Spec.Holder.Namespace, leases[i].Spec.Holder.Pod = strings.Repeat("n", 63), strings.Repeat("p", 253)
	}
	for _, f := range []Facts{{Pool: &pool, Now: noon()}, {Pool: &crowded, Others: others, Leases: leases, Now: noon()}} {
		told := false
		for _, c := range NewReport(f).Status.Conditions {
			check.That(t, len(c.Message) <= 32768, "pool %s: the message of %s has %d bytes", f.Pool.Name, c.Type, len(c.Message))
			told = told || c.Status == metav1.ConditionFalse && strings.HasSuffix(c.Message, " more")
		}
		check.That(t, told, "pool %s: no message counts what it leaves out", f.Pool.Name)
	}
}

func TestAPoolThatCannotBeReadHasNoLeaseOutside(t *testing.T) {
	pool := edited(subnetPool("blue", "fd00:6::/64", 1), func(p *v1alpha1.IPPool) { p.Spec.IPs = []string{"fd00:6::20-fd00:6::10"} })
	r := NewReport(Facts{Pool: &pool, Leases: leasesFrom("fd00:6::15", 3, v1alpha1.StateBound), Now: noon()})
	check.That(t, r.Outside == 0 && r.Status.Used == 3, "%d of %d leases are outside of nobody knows what", r.Outside, r.Status.Used)
}

func TestReservedAddressesAreCounted(t *testing.T) {
	for _, row := range []struct {
		name            string
		pool            v1alpha1.IPPool
		reserved        []string
		total, reserves int64
	}{
		{"none", subnetPool("blue", "10.6.0.0/24", 1), nil, 254, 0},
		{"of this pool only", subnetPool("blue", "10.6.0.0/24", 1), []string{"10.6.0.250-10.6.1.20", "10.7.0.0/16"}, 249, 5},
		{"what it would not hand out anyway is not counted", edited(subnetPool("blue", "10.6.0.0/24", 1), func(p *v1alpha1.IPPool) {
			p.Spec.Gateway, p.Spec.ExcludeIPs = ptr.To("10.6.0.1"), []string{"10.6.0.2"}
		}), []string{"10.6.0.0-10.6.0.3"}, 251, 1},
		{"of a subnet with more addresses than can be counted", subnetPool("blue", "fd00:6::/48", 1), []string{"fd00:6::10-fd00:6::13"}, 1<<63 - 1, 4},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := NewReport(Facts{Pool: &row.pool, Reserved: parsed(t, row.reserved), Now: noon()}).Status
			check.That(t, s.Total == row.total && s.Reserved == row.reserves,
				"total %d, reserved %d, want %d and %d", s.Total, s.Reserved, row.total, row.reserves)
		})
	}
}
