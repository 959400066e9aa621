// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

const modeKey, linkKey = "ipam.fenceline.io/mode", "ipam.fenceline.io/host-link"

func TestRoutingOfAnInterface(t *testing.T) {
	yes, no := true, false
	configured := agentapi.Routing{
		Mode: agentapi.ModeUnderlay, HostLink: &yes, HostLinkCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, TxQueueLen: 9,
	}
	for _, c := range []struct {
		rule       string
		mode, link string
		iface      string
		wantMode   agentapi.Mode
		wantLink   *bool
	}{
		{rule: "without annotations, the network decides", wantMode: "underlay", wantLink: &yes},
		{rule: "a plain mode is for every interface", mode: "overlay", iface: "net1", wantMode: "overlay", wantLink: &yes},
		{rule: "an entry is for its interface", mode: `[{"interface":"net1","mode":"overlay"}]`, iface: "net1", wantMode: "overlay", wantLink: &yes},
		{rule: "an entry is for no other interface", mode: `[{"interface":"net1","mode":"off"}]`, wantMode: "underlay", wantLink: &yes},
		{rule: "no host link", link: "false", wantMode: "underlay", wantLink: &no},
		{rule: "a host link for one interface", link: `[{"interface":"eth0","hostLink":false},{"interface":"net1","hostLink":true}]`, wantMode: "underlay", wantLink: &no},
		{rule: "off makes no host link", mode: "off", wantMode: "off"},
		{rule: "off, and no host link", mode: "off", link: "false", wantMode: "off"},
		{rule: "a host link for another interface than the one that is off", mode: `[{"interface":"net1","mode":"off"}]`,
			link: `[{"interface":"eth0","hostLink":true}]`, iface: "net1", wantMode: "off"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			annotations := map[string]string{}
			for key, value := range map[string]string{modeKey: c.mode, linkKey: c.link} {
				if value != "" {
					annotations[key] = value
				}
			}
			if c.iface == "" {
				c.iface = "eth0"
			}
			want := configured
			want.Mode, want.HostLink = c.wantMode, c.wantLink
			got, err := RoutingOf(podWith(annotations), c.iface, configured)
			check.That(t, err == nil && reflect.DeepEqual(got, want), "got %+v, %v, want %+v", got, err, want)
		})
	}
}

func TestTheOtherPrefixNamesARoutingToo(t *testing.T) {
	got, err := RoutingOf(podWith(map[string]string{"ipam.spidernet.io/mode": "overlay", "ipam.spidernet.io/host-link": "yes", linkKey: "true"}), "eth0", agentapi.Routing{})
	check.That(t, err == nil && got.Mode == agentapi.ModeOverlay && got.HostLink != nil && *got.HostLink, "got %+v, %v", got, err)
}

func TestAHostLinkInModeOffIsRefused(t *testing.T) {
	for rule, annotations := range map[string]map[string]string{
		"the network is off": {linkKey: "true"},
		"the pod is off":     {linkKey: "true", modeKey: "off"},
	} {
		_, err := RoutingOf(podWith(annotations), "eth0", agentapi.Routing{Mode: agentapi.ModeOff})
		bad := (*AnnotationError)(nil)
		check.That(t, errors.As(err, &bad) && bad.Annotation == linkKey && strings.Contains(err.Error(), "mode off"), "%s: %v", rule, err)
	}
}

// The IPAM ADD refuses what the chained ADD would refuse, before there is an address.
func TestARoutingThatCannotBeUsedGetsNoAddress(t *testing.T) {
	for _, c := range []struct{ rule, annotation, value, problem string }{
		{"an unknown mode", modeKey, `bridge`, `"bridge" is not one of the modes ["auto" "underlay" "overlay" "off"]`},
		{"an empty mode", modeKey, ``, `"" is not one of the modes`},
		{"a mode in quotation marks", modeKey, `"off"`, `is not one of the modes`},
		{"an unknown mode of one interface", modeKey, `[{"interface":"eth0","mode":"disable"}]`, `"disable" is not one of the modes`},
		{"an entry without interface", modeKey, `[{"mode":"off"}]`, "entry 0 names no interface"},
		{"an unknown field", modeKey, `[{"interface":"eth0","mode":"off","hostLink":true}]`, `unknown field "hostLink"`},
		{"an empty list", modeKey, `[]`, "the list has 0 entries"},
		{"an interface named twice", modeKey, `[{"interface":"eth0","mode":"off"},{"interface":"eth0","mode":"auto"}]`, "interface eth0 is named twice"},
		{"an interface that no pod has", modeKey, `[{"interface":"eth 0","mode":"off"}]`, `"eth 0" is not the name of an interface`},
		{"more entries than a pod has interfaces", modeKey, "[" + strings.Repeat(`{"interface":"a","mode":"off"},`, 256) + `{"interface":"a","mode":"off"}]`, "the list has 257 entries"},
		{"a word for true", linkKey, `yes`, "it is neither true nor false"},
		{"no word", linkKey, ``, "it is neither true nor false"},
		{"an entry without value", linkKey, `[{"interface":"eth0"}]`, "entry 0 has no hostLink"},
		{"text for true", linkKey, `[{"interface":"eth0","hostLink":"true"}]`, "not the JSON expected"},
		{"an interface that this pod has not", linkKey, `[{"interface":"net7","hostLink":true}]`, "the pod has no interface net7, its annotations name eth0, net1"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			request := requestOf(onPod(c.annotation, c.value), onPod(multusNetworks, "blue"))
			_, err := ChoosePools(request, objects(v4("a").asDefault()), poolset.Set{})
			bad := (*AnnotationError)(nil)
			check.Must(t, errors.As(err, &bad), "got %v, want an AnnotationError", err)
			check.Says(t, err, c.annotation, "pod shop/web-0", c.problem, "; expected the form "+bad.Expected)
		})
	}
}
