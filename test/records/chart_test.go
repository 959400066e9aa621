// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

// testChart comes last, since it uninstalls.
func (e *env) testChart(t *testing.T) {
	t.Run("labels the namespace for pod security", func(t *testing.T) {
		ns := &corev1.Namespace{}
		check.OK(t, e.admin.Get(t.Context(), objectKey(namespace), ns))
		check.Equal(t, ns.Labels["pod-security.kubernetes.io/enforce"], "privileged", "pod-security.kubernetes.io/enforce is")
	})
	t.Run("has no privileged container but the one that mounts and ends", func(t *testing.T) {
		agents := &appsv1.DaemonSet{}
		check.OK(t, e.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "fenceline-agent"}, agents))
		for _, c := range agents.Spec.Template.Spec.Containers {
			if s := c.SecurityContext; s.Privileged != nil && *s.Privileged || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
				t.Errorf("container %s: %+v", c.Name, s)
			}
		}
	})
	t.Run("renders without a cluster what it installs, each time", func(t *testing.T) {
		want := strings.TrimSpace(e.helm(t, "get", "manifest", "fenceline", "--namespace", namespace))
		// GitOps tools name the version of their cluster in the same way.
		asked := check.Value(discovery.NewDiscoveryClientForConfig(e.server.Admin()))(t)
		version := check.Value(asked.ServerVersion())(t).GitVersion
		for range 2 {
			got := strings.TrimSpace(e.helm(t, "template", "fenceline", chart, "--namespace", namespace, "--no-hooks", "--kube-version", version))
			check.Same(t, strings.Split(got, "\n---\n"), strings.Split(want, "\n---\n"), "objects")
		}
	})
	t.Run("refuses a network configuration that is no JSON", func(t *testing.T) {
		out, err := e.tryHelm(t, "template", "fenceline", chart, "--set", "cni.conflist.content=macvlan on eth1")
		check.That(t, err != nil && strings.Contains(out, "fenceline.conflist"), "%v, helm said: %s", err, out)
	})
	t.Run("asks no plugin but macvlan for macvlan's mode", func(t *testing.T) {
		for kind, want := range map[string]bool{"macvlan": true, "ipvlan": false} {
			out := e.helm(t, "template", "fenceline", chart, "--set", "cni.conflist.type="+kind)
			check.Equal(t, strings.Contains(out, `"mode": "bridge"`), want, "%s: mode bridge", kind)
		}
	})
	t.Run("names a CNI version only if the values do", func(t *testing.T) {
		for value, want := range map[string]bool{"cni.conflist.cniVersion=": false, "cni.conflist.cniVersion=1.0.0": true} {
			out := e.helm(t, "template", "fenceline", chart, "--set", value)
			got := strings.Contains(out, `"cniVersion": "1.0.0"`)
			check.That(t, got == want && (want || !strings.Contains(out, `"cniVersion"`)), "%s: cniVersion %v in %s", value, got, out)
		}
	})
	t.Run("tells the agents of Multus' cluster network if the values do", func(t *testing.T) {
		const argument = "--multus-cluster-network=kube-system/macvlan"
		for value, want := range map[string]bool{"": false, "kube-system/macvlan": true} {
			out := e.helm(t, "template", "fenceline", chart, "--set", "cni.multusClusterNetwork="+value)
			check.Equal(t, strings.Contains(out, argument), want, "%q: %s is there:", value, argument)
		}
		out, err := e.tryHelm(t, "template", "fenceline", chart, "--set", "cni.multusClusterNetwork=macvlan")
		check.That(t, err != nil, "a definition without namespace is accepted: %s", out)
	})
	t.Run("serves metrics as the values say", func(t *testing.T) {
		const secure, certificate, reader, scheme = "- --metrics-secure\n", "- --metrics-cert-dir=/etc/fenceline-metrics\n", "name: fenceline-metrics\n", "scheme: https\n"
		for values, want := range map[string][]int{
			"serviceMonitor.enabled=true":                                             {0, 0, 0, 0},
			"serviceMonitor.enabled=true,metrics=null":                                {0, 0, 0, 0},
			"serviceMonitor.enabled=true,metrics.secure=true":                         {2, 0, 1, 2},
			"serviceMonitor.enabled=true,metrics.secure=true,metrics.tlsSecret=certs": {2, 2, 1, 2},
		} {
			out := e.helm(t, "template", "fenceline", chart, "--set", values)
			got := []int{strings.Count(out, secure), strings.Count(out, certificate), strings.Count(out, reader), strings.Count(out, scheme)}
			check.That(t, slices.Equal(got, want) && strings.Count(out, "secret: {secretName: certs}}\n") == want[1], "%s: %v, want %v", values, got, want)
		}
	})
	t.Run("serves the page as the values say", func(t *testing.T) {
		for values, want := range map[string][]int{
			"ui=null":          {0, 0, 0, 0},
			"ui.enabled=false": {0, 0, 0, 0},
			"ui.enabled=true":  {1, 0, 0, 2},
			"ui.enabled=true,controller.ports.ui=null":           {1, 0, 0, 2},
			"ui.enabled=true,ui.service=true":                    {0, 1, 0, 2},
			"ui.enabled=true,ui.service=true,ui.tlsSecret=certs": {0, 1, 3, 2},
		} {
			out := e.helm(t, "template", "fenceline", chart, "--set", values)
			got := []int{
				strings.Count(out, "- --ui-address=127.0.0.1:9478\n"), strings.Count(out, "- --ui-address=:9478\n"),
				strings.Count(out, "- --ui-cert-dir=/etc/fenceline-ui\n") + strings.Count(out, "{name: ui-tls, "), strings.Count(out, "\n  name: fenceline-ui-reviewer\n"),
			}
			check.That(t, slices.Equal(got, want) && strings.Count(out, "\n  name: fenceline-ui\n") == want[1], "%s: %v, want %v", values, got, want)
		}
	})
	t.Run("upgrades over itself", func(t *testing.T) {
		e.helm(t, "upgrade", "fenceline", chart, "--namespace", namespace, "--set", "bpffs.mount=false", "--set", "cni.conflist.master=eth1")
		agents := &appsv1.DaemonSet{}
		check.OK(t, e.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "fenceline-agent"}, agents))
		n := len(agents.Spec.Template.Spec.InitContainers)
		check.That(t, n == 0, "%d init containers after bpffs.mount=false", n)
	})
	t.Run("keeps pods off nodes that their pools do not serve", e.testScheduling)
	t.Run("gives the controller what the values say of reclaim", func(t *testing.T) {
		e.helm(t, "upgrade", "fenceline", chart, "--namespace", namespace, "--reuse-values",
			"--set", "reclaim.enabled=false,reclaim.terminating=false,reclaim.extraGrace=1m,reclaim.nodeDown=After 2m")
		controller := &appsv1.Deployment{}
		check.OK(t, e.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "fenceline-controller"}, controller))
		args := controller.Spec.Template.Spec.Containers[0].Args
		// The controller's own test of its command line reads the same.
		for _, want := range []string{"--reclaim=false", "--terminating=false", "--extra-grace=1m", "--node-down=After 2m"} {
			check.That(t, slices.Contains(args, want), "the controller is started with %q, without %s", args, want)
		}
	})
	t.Run("gives the agents the value of statefulSet", func(t *testing.T) {
		for arg, want := range map[string]string{
			"statefulSet=\"Prefer\"": "Prefer", "statefulSet=\"Require\"": "Require", "statefulSet=\"Off\"": "Off",
			"statefulSet=false": "Off", "logLevel=\"info\"": "Prefer", "statefulSet=null": "Prefer",
		} {
			out := e.helm(t, "template", "fenceline", chart, "--set-json", arg)
			check.That(t, strings.Contains(out, "- --stateful-set="+want+"\n"), "%s: the agents are not started with --stateful-set=%s", arg, want)
		}
	})
	t.Run("leaves the records when it is uninstalled, and finds them again", func(t *testing.T) {
		l := bound("", "10.1.0.1", forced)
		e.create(t, l)
		for _, args := range [][]string{
			{"uninstall", "fenceline", "--no-hooks", "--namespace", namespace},
			{"install", "fenceline", chart, "--namespace", namespace, "--create-namespace"},
		} {
			e.helm(t, args...)
			if err := e.admin.Get(t.Context(), client.ObjectKeyFromObject(l), &v1alpha1.IPLease{}); err != nil {
				t.Errorf("after %s: %v", args[0], err)
			}
		}
	})
	t.Run("leaves nothing in the way of a CRD's deletion when it is uninstalled", func(t *testing.T) {
		e.helm(t, "uninstall", "fenceline", "--no-hooks", "--namespace", namespace)
		e.eventually(t, "delete the CRD", func() error {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			crd.Name = "ipleases.fenceline.io"
			return client.IgnoreNotFound(e.admin.Delete(t.Context(), crd))
		})
	})
}

// helm runs helm as administrator and returns what it prints.
func (e *env) helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := e.tryHelm(t, args...)
	check.Must(t, err == nil, "helm %s: %v\n%s", strings.Join(args, " "), err, out)
	return out
}

func (e *env) tryHelm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return controlplane.Helm(t.Context(), e.server.Kubeconfig(), args...)
}

// older removes the values that values of an earlier build do not have. helm upgrade
// --reuse-values keeps them so.
const older = "cni.mode=null,cni.hostLink=null,cni.conflist.deviceID=null,cni.conflist.vlan=null,cni.conflist.portMap=null,cni.conflist.chained=false,agent.socketGuard=null," +
	"networks=null,openshift=null,commonLabels=null,agent.priorityClassName=null,controller.priorityClassName=null"

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

func TestTheAgentsKnowWhatTheValuesName(t *testing.T) {
	flags := map[string]string{
		`cni.hostLink.serviceCIDRs=["10.96.0.0/12","fd00:96::/108"]`: "- --service-cidrs=10.96.0.0/12,fd00:96::/108\n",
		`cni.hostLink.podCIDRs=["10.0.0.0/8","fd00::/48"]`:           "- --pod-cidrs=10.0.0.0/8,fd00::/48\n",
		`agent.exclusiveParents=["eth1","eth2.100"]`:                 "- --exclusive-parents=eth1,eth2.100\n",
		`agent.vlanParents=["eth1","bond0"]`:                         "- --vlan-parents=eth1,bond0\n",
	}
	agents := func(values string) string {
		out, err := template(t, "templates/agent-daemonset.yaml", values)
		check.Must(t, err == nil, "%s: %v: %s", values, err, out)
		return out
	}
	silent := agents("") + agents(older)
	for values, flag := range flags {
		check.That(t, strings.Contains(agents(values), flag), "%s: the agents are not started with %q", values, flag)
		name, _, _ := strings.Cut(flag, "=")
		check.That(t, !strings.Contains(silent, name), "the agents are started with %s, although no value names any", name)
	}
	const socketGuard = "- --cgroup-dir="
	for values, given := range map[string]bool{"": true, older: true, `agent.socketGuard=false`: false} {
		check.Equal(t, strings.Contains(agents(values), socketGuard), given, "%s: the agents are started with %s:", values, socketGuard)
	}
	for values, given := range map[string]bool{"": false, older: false, `moveIn.hostLocalDir="/var/lib/cni/networks"`: true} {
		out := agents(values)
		for _, part := range []string{`{name: HOST_LOCAL_DIR, value: "/var/lib/cni/networks"}`, `{name: host-local, mountPath: "/var/lib/cni/networks"}`, `{name: host-local, hostPath: {path: "/var/lib/cni/networks", type: DirectoryOrCreate}}`} {
			check.Equal(t, strings.Contains(out, part), given, "%s: the agents have %s:", values, part)
		}
	}
	for values, given := range map[string]bool{"": false, older: false, `agent.openvswitch="/var/run/openvswitch"`: true} {
		out := agents(values)
		for _, part := range []string{`{name: openvswitch, mountPath: /run/openvswitch, readOnly: true}`, `{name: openvswitch, hostPath: {path: "/var/run/openvswitch", type: DirectoryOrCreate}}`} {
			check.Equal(t, strings.Contains(out, part), given, "%s: the agents have %s:", values, part)
		}
	}
	out, err := template(t, "templates/agent-daemonset.yaml", `agent.openvswitch="run/openvswitch"`)
	check.That(t, err != nil, "a path that is none is accepted: %s", out)
	out, err = template(t, "templates/agent-daemonset.yaml", `agent.exclusiveParents=["eth1,eth2"]`)
	check.That(t, err != nil, "two names in one are accepted: %s", out)
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
		args := []string{"install", "fenceline", chart, "--dry-run=client"}
		if values != "" {
			args = append(args, "--set-json", values)
		}
		out, err := controlplane.Helm(t.Context(), "", args...)
		check.Must(t, err == nil, "%s: %v: %s", values, err, out)
		_, notes, _ := strings.Cut(out, "\nNOTES:\n")
		for _, words := range append(want, "Pods get addresses") {
			check.That(t, strings.Contains(notes, words), "%s: the notes do not say %q: %s", values, words, notes)
		}
		check.That(t, len(want) != 0 || !strings.Contains(notes, definition) && !strings.Contains(notes, without), "%s: %s", values, notes)
	}
}

// What a value adds to the chart, and what the values of an earlier build leave out.
func TestWhatValuesAddToTheChart(t *testing.T) {
	network := `networks=[{"name":"vlan100","namespace":"shop","master":"uplink.100","pools":{"ipv4":["vlan100"]}},` +
		`{"name":"storage","type":"sriov","resourceName":"example.com/vf","vlan":7,"pools":{"ipv6":["storage"]}}]`
	for _, row := range []struct {
		file, values string
		has, lacks   []string
	}{
		{"controller-deployment.yaml", "", nil, []string{"PodDisruptionBudget", "podAntiAffinity"}},
		{"controller-deployment.yaml", "controller.replicas=2", []string{"kind: PodDisruptionBudget", "maxUnavailable: 1", "topologyKey: topology.kubernetes.io/zone"}, nil},
		{"controller-deployment.yaml", `controller.replicas=2,controller.affinity={"nodeAffinity":{}}`, []string{"nodeAffinity"}, []string{"podAntiAffinity"}},
		{"controller-deployment.yaml", older, []string{"priorityClassName: system-cluster-critical"}, nil},
		{"controller-deployment.yaml", `controller.priorityClassName="mine",commonLabels={"team":"net"}`, []string{"priorityClassName: mine", "team: net"}, []string{"system-cluster"}},
		{"agent-daemonset.yaml", older, []string{"priorityClassName: system-node-critical"}, nil},
		{"agent-daemonset.yaml", `agent.priorityClassName="mine",commonLabels={"team":"net"}`, []string{"priorityClassName: mine", "team: net"}, nil},
		{"openshift-scc.yaml", "openshift.scc=true", []string{
			"users: [system:serviceaccount:default:fenceline-agent]", "allowPrivilegedContainer: true", "- SYS_ADMIN",
			"users: [system:serviceaccount:default:fenceline-controller]", "runAsUser: {type: MustRunAsNonRoot}",
		}, nil},
		{"openshift-scc.yaml", "openshift.scc=true,bpffs.mount=false", nil, []string{"allowPrivilegedContainer: true"}},
		{"networks.yaml", network, []string{
			"name: vlan100\n  namespace: shop", `"master": "uplink.100"`, `"mode": "bridge"`, `"default_ipv4_ippool": [`, `"type": "fenceline"`,
			"name: storage\n  namespace: default", `k8s.v1.cni.cncf.io/resourceName: "example.com/vf"`, `"vlan": 7`, `"default_ipv6_ippool": [`,
		}, nil},
	} {
		out, err := template(t, "templates/"+row.file, row.values)
		check.Must(t, err == nil, "%s with %s: %v: %s", row.file, row.values, err, out)
		for _, words := range row.has {
			check.That(t, strings.Contains(out, words), "%s with %s has no %q: %s", row.file, row.values, words, out)
		}
		for _, words := range row.lacks {
			check.That(t, !strings.Contains(out, words), "%s with %s has %q", row.file, row.values, words)
		}
	}
	for file, values := range map[string]string{"openshift-scc.yaml": older, "networks.yaml": older} {
		out, _ := template(t, "templates/"+file, values)
		check.That(t, !strings.Contains(out, "kind:"), "%s with the values of an earlier build: %s", file, out)
	}
	out, err := template(t, "templates/networks.yaml", `networks=[{"name":"a","pool":"b"}]`)
	check.That(t, err != nil && strings.Contains(out, "networks"), "a misspelt field of a network is accepted: %s", out)
}

func TestTheValuesOfDistributionsAreValid(t *testing.T) {
	files := check.Value(filepath.Glob(chart + "/ci/*-values.yaml"))(t)
	check.Must(t, len(files) >= 5, "%d files of values", len(files))
	for _, file := range files {
		out, err := controlplane.Helm(t.Context(), "", "template", "fenceline", chart, "--values", file)
		check.That(t, err == nil, "%s: %v: %s", file, err, out)
	}
}

// template renders one file of the chart. The values are those of --set-json.
func template(t *testing.T, file, values string) (string, error) {
	t.Helper()
	args := []string{"template", "fenceline", chart, "--show-only", file}
	if values != "" {
		args = append(args, "--set-json", values)
	}
	return controlplane.Helm(t.Context(), "", args...)
}

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
