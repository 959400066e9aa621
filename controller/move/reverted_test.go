// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// The end of a move removes the SpiderReservedIPs, and then the Move.
func TestASecondLookConfirmsThatAFreezeWasRemoved(t *testing.T) {
	r := &Reconciler{lacking: map[string]bool{}}
	for i, look := range []struct {
		name, reason string
		sure         bool
	}{
		{"a", "None", true}, {"a", v1alpha1.ReasonFreezeRemoved, false}, {"b", v1alpha1.ReasonFreezeRemoved, false}, {"a", v1alpha1.ReasonFreezeRemoved, true},
		{"a", v1alpha1.ReasonFreezeRemoved, true}, {"a", v1alpha1.ReasonDefinitionReverted, true}, {"a", v1alpha1.ReasonFreezeRemoved, false},
	} {
		check.Equal(t, r.isSure(look.name, look.reason), look.sure, "look %d at %s: %s:", i, look.name, look.reason)
	}
}

func TestWhatOthersUndoOfAMove(t *testing.T) {
	const (
		before   = `{"type":"macvlan","ipam":{"type":"whereabouts","range":"10.1.0.0/24"}}`
		frozen   = `{"type":"macvlan","ipam":{"type":"whereabouts","range":"10.1.0.0/24","exclude":["10.1.0.0/24"]}}`
		switched = `{"plugins":[{"type":"macvlan","ipam":{"type":"fenceline"}},{"type":"fenceline"}]}`
	)
	in := func(from v1alpha1.MoveSource, step v1alpha1.MoveStep) v1alpha1.MoveSpec {
		return v1alpha1.MoveSpec{From: from, Step: step}
	}
	out, outTo := in(v1alpha1.MoveWhereabouts, v1alpha1.MoveBack), in(v1alpha1.MoveSpiderpool, v1alpha1.MoveBack)
	out.Out, outTo.Out = true, true
	for name, c := range map[string]struct {
		spec     v1alpha1.MoveSpec
		config   string
		reserved []string
		reason   string
		says     string
		leased   []string
	}{
		"switched":                           {spec: in(v1alpha1.MoveWhereabouts, v1alpha1.MoveOpen), config: switched},
		"reverted":                           {in(v1alpha1.MoveWhereabouts, v1alpha1.MoveOpen), before, nil, v1alpha1.ReasonDefinitionReverted, "shop/b. Repeat `kubectl fenceline move-in start whereabouts shop/a`", nil},
		"not switched yet":                   {spec: in(v1alpha1.MoveWhereabouts, v1alpha1.MoveOpen), config: frozen},
		"frozen":                             {spec: in(v1alpha1.MoveHostLocal, v1alpha1.MoveAdopt), config: frozen},
		"frozen no more":                     {in(v1alpha1.MoveHostLocal, v1alpha1.MoveAdopt), before, nil, v1alpha1.ReasonDefinitionReverted, "shop/b", nil},
		"deleted":                            {spec: in(v1alpha1.MoveWhereabouts, v1alpha1.MoveOpen)},
		"unreadable":                         {spec: in(v1alpha1.MoveWhereabouts, v1alpha1.MoveOpen), config: "{"},
		"of Spiderpool, reserved":            {spec: in(v1alpha1.MoveSpiderpool, v1alpha1.MoveOpen), config: switched, reserved: []string{"10.1.0.1-10.1.0.9"}},
		"of Spiderpool, a part is reserved":  {in(v1alpha1.MoveSpiderpool, v1alpha1.MoveOpen), switched, []string{"10.1.0.1-10.1.0.8"}, v1alpha1.ReasonFreezeRemoved, "has 10.1.0.9. Repeat", nil},
		"of Spiderpool, nothing is reserved": {in(v1alpha1.MoveSpiderpool, v1alpha1.MoveAdopt), switched, nil, v1alpha1.ReasonFreezeRemoved, "10.1.0.5-10.1.0.9", nil},
		"of Spiderpool, reverted":            {in(v1alpha1.MoveSpiderpool, v1alpha1.MoveAdopt), " " + before, []string{"10.1.0.1-10.1.0.9"}, v1alpha1.ReasonDefinitionReverted, "shop/b", nil},
		"moved out":                          {spec: out, config: before},
		"moved out to Spiderpool":            {spec: outTo, config: `{"ipam":{"type":"spiderpool"}}`, reserved: []string{"10.1.0.5"}, leased: []string{"10.1.0.5"}},
		"moved out, and freed":               {outTo, before, []string{"10.1.0.5"}, v1alpha1.ReasonFreezeRemoved, "has 10.1.0.7-10.1.0.8. Repeat `kubectl fenceline move-out start", []string{"10.1.0.5", "10.1.0.7-10.1.0.8"}},
		"moved out, and all have ended":      {spec: outTo, config: before},
		"moved out, and reverted":            {out, switched, nil, v1alpha1.ReasonDefinitionReverted, "move-out start", nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := &v1alpha1.Move{ObjectMeta: metav1.ObjectMeta{Name: "shop.a"}, Spec: c.spec}
			m.Spec.Network = "shop/a"
			m.Spec.Definitions = []v1alpha1.MoveDefinition{{Namespace: "shop", Name: "b", Config: before}}
			check.That(t, isJudged(&m.Spec), "the step %s is not judged", m.Spec.Step)
			reason, message := reverted(m, []v1alpha1.IPPool{poolWith("p", "10.1.0.0/24", "10.1.0.5-10.1.0.9")}, found{configs: []string{c.config}, reserved: c.reserved, leased: check.Value(poolset.Parse(c.leased))(t)})
			check.Equal(t, reason, c.reason, "reason: %s", message)
			check.Says(t, message, c.says)
		})
	}
	for name, c := range map[string]struct{ pool, offset, id, pod, says string }{
		"the pod of the move":               {"10.1.0.0-24", "5", "c5", "shop/web", ""},
		"its address, held":                 {"10.1.0.0-24", "6", "c6", "shop/gone", ""},
		"a later sandbox of that pod":       {"10.1.0.0-24", "5", "c9", "shop/web", "whereabouts has given 10.1.0.5 to pod shop/web"},
		"another pod":                       {"10.1.0.0-24", "6", "c9", "shop/new", "10.1.0.6 to pod shop/new"},
		"another address":                   {"10.1.0.0-24", "7", "c9", "shop/new", "since the start, whereabouts has given 10.1.0.7 to pod shop/new, which have to restart then. Repeat `kubectl"},
		"an address outside the pools":      {"10.1.0.0-24", "77", "c9", "shop/new", ""},
		"an allocation of a move":           {"10.1.0.0-24", "7", "fenceline-move/shop.a", "", ""},
		"a wrong offset":                    {"10.1.0.0-24", "777", "c9", "shop/new", ""},
		"the same range on another segment": {"blue-10.1.0.0-24", "7", "c9", "shop/new", ""},
	} {
		m := &v1alpha1.Move{Spec: in(v1alpha1.MoveWhereabouts, v1alpha1.MoveOpen)}
		m.Spec.Definitions = []v1alpha1.MoveDefinition{{Namespace: "shop", Name: "b", Config: before}}
		m.Spec.Records = []v1alpha1.MoveRecord{{Address: "10.1.0.5", Namespace: "shop", Pod: "web", ContainerID: "c5"}, {Address: "10.1.0.6", Namespace: "shop", Pod: "gone"}}
		text := `{"metadata":{"name":"` + c.pool + `"},"spec":{"range":"10.1.0.0/24","allocations":{"` + c.offset + `":{"id":"` + c.id + `","podref":"` + c.pod + `"}}}}`
		var r records
		check.OK(t, json.Unmarshal([]byte(text), &r))
		pools := []v1alpha1.IPPool{poolWith("p", "10.1.0.0/24", "10.1.0.5-10.1.0.9")}
		reason, message := reverted(m, pools, found{configs: []string{switched}, records: []records{r}})
		check.Equal(t, reason == v1alpha1.ReasonNewRecord, c.says != "", "%s: %s %s", name, reason, message)
		check.Says(t, message, c.says)
		reason, message = reverted(m, pools, found{configs: []string{before}, records: []records{r}})
		check.Equal(t, reason, v1alpha1.ReasonDefinitionReverted, "%s, and a definition:", name)
		check.Says(t, message, "shop/b", strings.TrimSuffix(c.says, ". Repeat `kubectl"))
	}
	for _, s := range []v1alpha1.MoveSpec{in("", v1alpha1.MoveFreeze), in("", v1alpha1.MoveBack), {Out: true, Step: v1alpha1.MoveFreeze}} {
		check.That(t, !isJudged(&s), "the step %s is judged", s.Step)
	}
}

// cluster has a definition that others have reverted, and one set of records.
type cluster struct {
	client.Reader
	config string
	lists  int
	err    error
}

func (c *cluster) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	return unstructured.SetNestedField(o.(*unstructured.Unstructured).Object, c.config, "spec", "config")
}

func (c *cluster) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	c.lists++
	l.(*unstructured.UnstructuredList).Items = []unstructured.Unstructured{{Object: map[string]any{"metadata": map[string]any{"name": "10.1.0.0-24"}, "spec": map[string]any{
		"range": "10.1.0.0/24", "allocations": map[string]any{"7": map[string]any{"id": "c9", "podref": "shop/new"}}}}}}
	return c.err
}

func TestRecordsOfWhereaboutsAreListedSeldomAndMayBeUnread(t *testing.T) {
	const text, mine = `{"ipam":{"type":"whereabouts","range":"10.1.0.0/24"}}`, `{"ipam":{"type":"fenceline"}}`
	c, now := &cluster{config: mine}, clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	r := &Reconciler{Live: c, Clock: now, listed: map[string]listing{}}
	m := &v1alpha1.Move{ObjectMeta: metav1.ObjectMeta{Name: "shop.a", Generation: 1}, Spec: v1alpha1.MoveSpec{From: v1alpha1.MoveWhereabouts, Step: v1alpha1.MoveOpen,
		Definitions: []v1alpha1.MoveDefinition{{Namespace: "shop", Name: "b", Config: text}}}}
	judge := func() metav1.Condition {
		return r.judge(t.Context(), m, []v1alpha1.IPPool{poolWith("p", "10.1.0.0/24", "10.1.0.5-10.1.0.9")})
	}
	for i, step := range []struct {
		after  time.Duration
		change func()
		lists  int
		reason string
		says   string
	}{
		{0, func() {}, 1, v1alpha1.ReasonNewRecord, "10.1.0.7"},
		{lookEvery - 1, func() { c.config = text }, 1, v1alpha1.ReasonDefinitionReverted, "10.1.0.7"},
		{0, func() { m.Generation++ }, 2, v1alpha1.ReasonDefinitionReverted, "10.1.0.7"}, // a command has edited the move
		{lookEvery, func() { c.err = errors.New("forbidden") }, 3, v1alpha1.ReasonDefinitionReverted, "shop/b; records unread: list the records of whereabouts: forbidden. Repeat"},
		{time.Second, func() { c.config = mine }, 3, "Unread", "list the records of whereabouts: forbidden"},
	} {
		step.change()
		now.SetTime(now.Now().Add(step.after))
		got := judge()
		check.That(t, c.lists == step.lists && got.Reason == step.reason, "look %d: %d lists, want %d; %s, want %s: %s", i, c.lists, step.lists, got.Reason, step.reason, got.Message)
		check.Says(t, got.Message, step.says)
	}
}

func TestTheNamesOfRecordsOfWhereabouts(t *testing.T) {
	sliced, blue := ipam{NodeSliceSize: "/28"}, ipam{NetworkName: "blue"}
	both := ipam{NetworkName: "blue", NodeSliceSize: "/28"}
	for start, want := range map[string][4]string{ // the node of the start of a name, by an ipam without any, sliced, blue, and both; "no" for no name
		"": {"", "", "no", "no"}, "n1-": {"no", "n1", "no", "no"}, "blue-": {"no", "blue", "", ""}, "blue-n1-": {"no", "blue-n1", "no", "n1"},
	} {
		var got [4]string
		for i, of := range []ipam{{}, sliced, blue, both} {
			node, is := of.names(start)
			if got[i] = node; !is {
				got[i] = "no"
			}
		}
		check.Equal(t, got, want, "names that start with %q:", start)
	}
}

// The records of a slice stay when its node goes, and the pod of a StatefulSet has its name on another node then.
func TestRecordsOfANodeThatHasGoneAreNotNew(t *testing.T) {
	s := &v1alpha1.MoveSpec{From: v1alpha1.MoveWhereabouts, Step: v1alpha1.MoveOpen,
		Definitions: []v1alpha1.MoveDefinition{{Config: `{"ipam":{"type":"whereabouts","range":"10.1.0.0/24","node_slice_size":"28"}}`}},
		Records:     []v1alpha1.MoveRecord{{Address: "10.1.0.21", Namespace: "shop", Pod: "db-0", ContainerID: "c5"}}}
	var is []records
	for name, allocations := range map[string]string{
		"gone-10.1.0.0-28": `"5":{"id":"c1","podref":"shop/db-0"},"6":{"id":"c2","podref":"shop/old"}`,
		"n2-10.1.0.16-28":  `"5":{"id":"c5","podref":"shop/db-0"},"6":{"id":"c6","podref":"shop/db-1"},"7":{"id":"c7","podref":"shop/ended"}`,
	} {
		var r records
		_, of, _ := strings.Cut(strings.TrimSuffix(name, "-28"), "-")
		check.OK(t, json.Unmarshal([]byte(`{"metadata":{"name":"`+name+`"},"spec":{"range":"`+of+`/28","allocations":{`+allocations+`}}}`), &r))
		is = append(is, r)
	}
	isOn := func(pod, node string) bool { return strings.HasPrefix(pod, "shop/db-") && node == "n2" }
	set := check.Value(poolset.Parse([]string{"10.1.0.0/24"}))(t)
	check.List(t, given(s, set, is, isOn), []string{"10.1.0.22 to pod shop/db-1"}, "whereabouts has given")
}
