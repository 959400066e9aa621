// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/test/check"
)

// older removes the values that values of an earlier build do not have. helm upgrade
// --reuse-values keeps them so.
const older = "cni.mode=null,cni.hostLink=null,cni.conflist.deviceID=null,cni.conflist.vlan=null,cni.conflist.portMap=null,cni.conflist.chained=false"

// The plugin's own tests read the same files.
func TestConflistsOfTheChart(t *testing.T) {
	for name, values := range map[string]string{
		"macvlan": "",
		"ipvlan":  `cni.conflist.type="ipvlan",cni.conflist.master="eth1",cni.conflist.mode="l2",cni.conflist.mtu=1400`,
		"sriov":   `cni.conflist.type="sriov",cni.conflist.deviceID="0000:03:02.0",cni.conflist.vlan=5`,
		"every-value": `cni.mode="underlay",cni.hostLink={"extraCIDRs":["169.254.20.10/32","fd00:8::/32"],"txQueueLen":500},` +
			`cni.conflist.cniVersion="1.0.0",cni.conflist.pools={"ipv4":["a"],"ipv6":["b"]}`,
		"port-map":     "cni.conflist.portMap=true",
		"no-host-link": "cni.mode=false,cni.hostLink.enabled=false",
		"older":        older,
		"older-linked": older + ",cni.conflist.chained=true",
	} {
		t.Run(name, func(t *testing.T) {
			out, err := template(t, "templates/agent-conflist.yaml", values)
			check.Must(t, err == nil, "%v: %s", err, out)
			configMap := &corev1.ConfigMap{}
			if err := yaml.Unmarshal([]byte(out), configMap); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			got := configMap.Data["90-fenceline.conflist"]
			file := filepath.Join("testdata", name+".conflist")
			want := check.Value(os.ReadFile(file))(t)
			check.Same(t, got, string(want), "the chart writes another configuration than %s", file)
		})
	}
}

func TestConflistsThatTheChartRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		values string
		says   []string
	}{
		"sriov for all pods with one function of nobody": {`cni.conflist.type="sriov"`, []string{"cni.conflist.deviceID is empty", "Multus"}},
		"sriov with a parent":                            {`cni.conflist.type="sriov",cni.conflist.deviceID="0000:03:02.0",cni.conflist.master="eth1"`, []string{"takes no cni.conflist.master"}},
		"macvlan with a VLAN of sriov":                   {`cni.conflist.vlan=5`, []string{"cni.conflist.vlan", "macvlan", "eth1.5"}},
		"hostPort without a host link":                   {`cni.conflist.portMap=true,cni.conflist.chained=false`, []string{"cni.conflist.portMap", "cni.conflist.chained"}},
		"ipvlan without L2":                              {`cni.conflist.type="ipvlan",cni.conflist.mode="l3"`, []string{"cni.conflist.mode is l3", "set l2"}},
		"a VLAN that is none":                            {`cni.conflist.vlan=4095`, []string{"/cni/conflist/vlan"}},
		"a PCI address that is none":                     {`cni.conflist.deviceID="eth1"`, []string{"deviceID"}},
		"an unknown mode":                                {`cni.mode="bridge"`, []string{"cni", "mode"}},
		"an address for a CIDR of Services":              {`cni.hostLink.serviceCIDRs=["10.96.0.1"]`, []string{"serviceCIDRs", "10.96.0.1"}},
		"a default route through the host link":          {`cni.hostLink.extraCIDRs=["0.0.0.0/0"]`, []string{"extraCIDRs", "0.0.0.0/0"}},
		"a negative queue":                               {`cni.hostLink.txQueueLen=-1`, []string{"txQueueLen"}},
		"a misspelt value":                               {`cni.hostLink.enable=false`, []string{"hostLink", "enable"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := template(t, "templates/agent-conflist.yaml", c.values)
			check.Must(t, err != nil, "it is accepted: %s", out)
			for _, words := range c.says {
				check.That(t, strings.Contains(out, words), "%q does not say %q", out, words)
			}
		})
	}
}

func TestTheAgentsKnowTheGivenServiceCIDRs(t *testing.T) {
	const flag = "- --service-cidrs="
	for values, want := range map[string]string{
		"": "", older: "",
		`cni.hostLink.serviceCIDRs=["10.96.0.0/12","fd00:96::/108"]`: flag + "10.96.0.0/12,fd00:96::/108\n",
	} {
		out, err := template(t, "templates/agent-daemonset.yaml", values)
		check.Must(t, err == nil, "%s: %v: %s", values, err, out)
		if want == "" && strings.Contains(out, flag) || !strings.Contains(out, want) {
			t.Errorf("%s: the agents are not started with %q", values, want)
		}
	}
}

func TestTheAgentsKnowTheExclusiveParents(t *testing.T) {
	const flag = "- --exclusive-parents="
	for values, want := range map[string]string{"": "", older: "", `agent.exclusiveParents=["eth1","eth2.100"]`: flag + "eth1,eth2.100\n"} {
		out, err := template(t, "templates/agent-daemonset.yaml", values)
		check.Must(t, err == nil, "%s: %v: %s", values, err, out)
		if want == "" && strings.Contains(out, flag) || !strings.Contains(out, want) {
			t.Errorf("%s: the agents are not started with %q", values, want)
		}
	}
	out, err := template(t, "templates/agent-daemonset.yaml", `agent.exclusiveParents=["eth1,eth2"]`)
	check.That(t, err != nil, "two names in one are accepted: %s", out)
}

func TestTheAgentsKnowTheParentsOfVLANsAndTheGivenPodCIDRs(t *testing.T) {
	for values, want := range map[string]string{
		"": "", older: "", `agent.vlanParents=["eth1","bond0"]`: "- --vlan-parents=eth1,bond0\n",
		`cni.hostLink.podCIDRs=["10.0.0.0/8","fd00::/48"]`: "- --pod-cidrs=10.0.0.0/8,fd00::/48\n",
	} {
		out, err := template(t, "templates/agent-daemonset.yaml", values)
		check.Must(t, err == nil, "%s: %v: %s", values, err, out)
		if want == "" && (strings.Contains(out, "--vlan-parents") || strings.Contains(out, "--pod-cidrs")) || !strings.Contains(out, want) {
			t.Errorf("%s: the agents are not started with %q", values, want)
		}
	}
}

// A definition that the notes print is the network that the chart would install.
func TestTheNotesPrintADefinitionForMultus(t *testing.T) {
	const definition, without = "kind: NetworkAttachmentDefinition", "cni.conflist.chained is false"
	for values, want := range map[string][]string{
		"": nil,
		`cni.conflist.enabled=false,cni.conflist.master="eth1"`: {definition, `"master": "eth1"`, `"type": "fenceline"
          }
        ]`},
		`cni.conflist.enabled=false,cni.conflist.type="sriov"`: {definition, "k8s.v1.cni.cncf.io/resourceName"},
		`cni.conflist.content="{\"name\":\"n\"}"`:              {definition},
		older: {without, "--reset-then-reuse-values"},
	} {
		args := []string{"install", "fenceline", chart(t), "--dry-run=client"}
		if values != "" {
			args = append(args, "--set-json", values)
		}
		out, err := runHelm(t, "", args...)
		check.Must(t, err == nil, "%s: %v: %s", values, err, out)
		_, notes, _ := strings.Cut(out, "\nNOTES:\n")
		for _, words := range append(want, "Pods get addresses") {
			check.That(t, strings.Contains(notes, words), "%s: the notes do not say %q: %s", values, words, notes)
		}
		check.That(t, len(want) != 0 || !strings.Contains(notes, definition) && !strings.Contains(notes, without), "%s: %s", values, notes)
	}
}

// template renders one file of the chart. The values are those of --set-json.
func template(t *testing.T, file, values string) (string, error) {
	t.Helper()
	args := []string{"template", "fenceline", chart(t), "--show-only", file}
	if values != "" {
		args = append(args, "--set-json", values)
	}
	return runHelm(t, "", args...)
}
