// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestWhichChangesOfLeasesWakeWhom(t *testing.T) {
	in := func(state v1alpha1.LeaseState, uid types.UID) *v1alpha1.IPLease {
		return &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: v1alpha1.IPLeaseSpec{State: state}}
	}
	bound, warm, quarantined := in(v1alpha1.StateBound, "1"), in(v1alpha1.StateWarm, "1"), in(v1alpha1.StateQuarantined, "1")
	for name, c := range map[string]struct {
		old, new                  *v1alpha1.IPLease
		holders, verifier, keeper bool
	}{
		"created by an ADD":                      {nil, bound, false, false, false},
		"made ready":                             {nil, warm, false, false, true},
		"assigned to be verified":                {nil, quarantined, true, true, false},
		"bound by an ADD":                        {warm, bound, false, false, true},
		"bound, but not the one that was ready":  {warm, in(v1alpha1.StateBound, "2"), true, false, true},
		"edited while it is bound":               {bound, bound, true, false, false},
		"taken from its pod":                     {bound, quarantined, true, true, false},
		"taken over by its pod":                  {quarantined, bound, true, true, false},
		"ready, and thrown out":                  {warm, quarantined, true, true, true},
		"bound, and deleted or no longer ours":   {bound, nil, true, false, false},
		"ready, and deleted or no longer ours":   {warm, nil, true, false, true},
		"settled, so that it is no longer there": {quarantined, nil, true, true, false},
	} {
		for who, w := range map[string]struct {
			passes func(was, now *v1alpha1.IPLease) bool
			want   bool
		}{
			"holders": {madeByOthers, c.holders}, "verifier": {about(v1alpha1.StateQuarantined), c.verifier}, "keeper": {about(v1alpha1.StateWarm), c.keeper},
		} {
			check.Equal(t, w.passes(c.old, c.new), w.want, "%s: the %s is told", name, who)
		}
	}
}

func TestAPoolThatIgnoresAMACWakesTheVerifierForItsAddresses(t *testing.T) {
	conflict := func(name, pool, mac string) *v1alpha1.IPLease {
		return &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPLeaseSpec{
			Pool: pool, State: v1alpha1.StateQuarantined, Reason: v1alpha1.ReasonConflict, Conflict: &v1alpha1.Conflict{MAC: mac},
		}}
	}
	bound := conflict("10.0.0.5", "v4", "02:bd:00:00:00:01")
	bound.Spec.State = v1alpha1.StateBound
	scheme := runtime.NewScheme()
	check.OK(t, v1alpha1.AddToScheme(scheme))
	leases := fake.NewClientBuilder().WithScheme(scheme).WithObjects(conflict("10.0.0.2", "v4", "02:bd:00:00:00:01"),
		conflict("10.0.0.3", "v4", "02:bd:00:00:00:02"), conflict("10.0.0.4", "other", "02:bd:00:00:00:01"), bound).Build()
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "v4"}}
	check.None(t, ignored(leases)(t.Context(), pool), "got")
	pool.Spec.ConflictDetection = &v1alpha1.ConflictDetection{IgnoreMACs: []string{"02:bd:00:00:00:01"}}
	got := ignored(leases)(t.Context(), pool)
	check.That(t, len(got) == 1 && got[0].Name == "10.0.0.2", "got %v", got)
}

func TestWhichChangesOfIPSubnetsWakeTheADDsThatWait(t *testing.T) {
	at := func(generation int64, allocated int64, reasons ...string) *v1alpha1.IPSubnet {
		s := &v1alpha1.IPSubnet{ObjectMeta: metav1.ObjectMeta{Name: "floor", Generation: generation}}
		s.Status.Allocated = allocated
		for _, r := range reasons {
			s.Status.Unserved = append(s.Status.Unserved, v1alpha1.Unserved{Application: v1alpha1.Application{Name: "web"}, Message: r})
		}
		return s
	}
	for name, c := range map[string]struct {
		old, new *v1alpha1.IPSubnet
		want     bool
	}{
		"a count":              {at(1, 0), at(1, 5), false},
		"a count and a reason": {at(1, 0, "full"), at(1, 5, "full"), false},
		"an edit":              {at(1, 0), at(2, 0), true},
		"a reason":             {at(1, 0), at(1, 0, "full"), true},
		"another reason":       {at(1, 0, "full"), at(1, 0, "invalid"), true},
		"no reason any more":   {at(1, 0, "full"), at(1, 0), true},
	} {
		check.Equal(t, explains().Update(event.UpdateEvent{ObjectOld: c.old, ObjectNew: c.new}), c.want, "%s: passed", name)
	}
}

func TestTheNetworksOfPoolsAreToldOnce(t *testing.T) {
	pools := make([]v1alpha1.IPPool, 3)
	pools[2].Spec.Network = "storage"
	check.List(t, networks("c", pools), []uint64{claim.Network("c", ""), claim.Network("c", "storage")}, "got")
	got := networks("c", nil)
	check.That(t, got != nil && len(got) == 0, "without pools: %x", got)
}

// watches is what the agent of node n1 watches. The documents say the same.
var watches = []struct {
	kind, documented string
	object           client.Object
	only             string // namespace and field selector; empty: all of them
}{
	{"IPPool", "pools", &v1alpha1.IPPool{}, ""},
	{"ReservedIP", "reservations", &v1alpha1.ReservedIP{}, ""},
	{"IPSubnet", "IPSubnets", &v1alpha1.IPSubnet{}, ""},
	{"LeaseHint", "the hint of its own node", &v1alpha1.LeaseHint{}, "metadata.name=n1"},
	{"Pod", "pods of its own node (field selector)", &corev1.Pod{}, "spec.nodeName=n1"},
	{"Namespace", "namespaces' metadata", &corev1.Namespace{}, ""},
	{"Node", "its own Node", &corev1.Node{}, "metadata.name=n1"},
	{"Service", "Services of type LoadBalancer", &corev1.Service{}, "spec.type=LoadBalancer"},
	{"ServiceCIDR", "ServiceCIDRs", &networkingv1.ServiceCIDR{}, ""},
	{"Secret", "the claim key", &corev1.Secret{}, "fenceline-system: metadata.name=fenceline-claim-key"},
}

func TestAnAgentWatchesItsOwnNodeOnly(t *testing.T) {
	options := Cache("n1", "fenceline-system", "fenceline-claim-key")
	check.That(t, len(options.DefaultNamespaces) == 0 && options.DefaultFieldSelector == nil && options.DefaultLabelSelector == nil,
		"restrictions for every kind: %+v", options)
	got := map[string]string{}
	for object, by := range options.ByObject {
		got[reflect.TypeOf(object).Elem().Name()] = restriction(by)
	}
	want := map[string]string{}
	for _, w := range watches {
		if w.only != "" {
			want[w.kind] = w.only
		}
	}
	check.That(t, reflect.DeepEqual(got, want), "got  %v\nwant %v", got, want)
}

func restriction(by cache.ByObject) string {
	var all []string
	if by.Field != nil {
		all = append(all, by.Field.String())
	}
	if by.Label != nil {
		all = append(all, by.Label.String())
	}
	for namespace, config := range by.Namespaces {
		if config.FieldSelector != nil {
			namespace += ": " + config.FieldSelector.String()
		}
		all = append(all, namespace)
	}
	return strings.Join(all, ", ")
}

// A kind without a mapping can be neither watched nor read.
func TestAnAgentCanReachNoOtherKind(t *testing.T) {
	scheme := runtime.NewScheme()
	check.OK(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	reached := map[schema.GroupKind]bool{}
	for kind := range scheme.AllKnownTypes() {
		if _, err := Kinds().RESTMapping(kind.GroupKind(), kind.Version); err == nil {
			reached[kind.GroupKind()] = true
		}
	}
	for _, w := range watches {
		of, _, err := scheme.ObjectKinds(w.object)
		if err != nil || len(of) != 1 || !reached[of[0].GroupKind()] {
			t.Errorf("%s (%v) cannot be watched: %v", w.kind, of, err)
			continue
		}
		delete(reached, of[0].GroupKind())
	}
	// ADD reads the owner of a pod, and watches none.
	for _, kind := range []schema.GroupKind{{Group: "apps", Kind: "ReplicaSet"}, {Group: "batch", Kind: "Job"}} {
		// owner.Asker names no version.
		check.Is(t, check.Err(Kinds().RESTMapping(kind)), nil, "%s cannot be read:", kind)
		delete(reached, kind)
	}
	// Leases are read by name, and the move that gives a pod back.
	delete(reached, schema.GroupKind{Group: v1alpha1.GroupName, Kind: "Move"})
	delete(reached, schema.GroupKind{Group: v1alpha1.GroupName, Kind: "IPLease"})
	delete(reached, schema.GroupKind{Kind: "Service"})   // servicecidr tries to create one
	delete(reached, schema.GroupKind{Kind: "ConfigMap"}) // podcidr reads that of Cilium
	check.None(t, reached, "others can:")
}

func TestTheDocsSayWhatAnAgentWatches(t *testing.T) {
	text := check.Value(os.ReadFile("../../docs/operations.md"))(t)
	var want []string
	for _, w := range watches {
		want = append(want, w.documented)
	}
	row := "| agent | " + strings.Join(want, "; ") + " |"
	check.That(t, strings.Contains(string(text), row), "the table of watches has no row that begins %q", row)
}

func TestTheResourcesOfWhatTheAgentWrites(t *testing.T) {
	for kind, want := range map[schema.GroupVersionKind]string{
		v1alpha1.GroupVersion().WithKind("IPLease"):   "ipleases",
		v1alpha1.GroupVersion().WithKind("LeaseHint"): "leasehints",
		v1alpha1.GroupVersion().WithKind("IPPool"):    "ippools",
		{Version: "v1", Kind: "Pod"}:                  "pods",
		{Version: "v1", Kind: "Namespace"}:            "namespaces",
	} {
		m, err := Kinds().RESTMapping(kind.GroupKind(), kind.Version)
		check.That(t, err == nil && m.Resource.Resource == want, "%s: %v, %v", kind, m, err)
	}
}
