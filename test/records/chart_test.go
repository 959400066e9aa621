// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/thirdparty"
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
	t.Run("refuses a network configuration that is no JSON", func(t *testing.T) {
		out, err := e.tryHelm(t, "template", "fenceline", chart(t), "--set", "cni.conflist.content=macvlan on eth1")
		check.That(t, err != nil && strings.Contains(out, "fenceline.conflist"), "%v, helm said: %s", err, out)
	})
	t.Run("asks no plugin but macvlan for macvlan's mode", func(t *testing.T) {
		for kind, want := range map[string]bool{"macvlan": true, "ipvlan": false} {
			out := e.helm(t, "template", "fenceline", chart(t), "--set", "cni.conflist.type="+kind)
			check.Equal(t, strings.Contains(out, `"mode": "bridge"`), want, "%s: mode bridge", kind)
		}
	})
	t.Run("names a CNI version only if the values do", func(t *testing.T) {
		for value, want := range map[string]bool{"cni.conflist.cniVersion=": false, "cni.conflist.cniVersion=1.0.0": true} {
			out := e.helm(t, "template", "fenceline", chart(t), "--set", value)
			got := strings.Contains(out, `"cniVersion": "1.0.0"`)
			check.That(t, got == want && (want || !strings.Contains(out, `"cniVersion"`)), "%s: cniVersion %v in %s", value, got, out)
		}
	})
	t.Run("tells the agents of Multus' cluster network if the values do", func(t *testing.T) {
		const argument = "--multus-cluster-network=kube-system/macvlan"
		for value, want := range map[string]bool{"": false, "kube-system/macvlan": true} {
			out := e.helm(t, "template", "fenceline", chart(t), "--set", "cni.multusClusterNetwork="+value)
			check.Equal(t, strings.Contains(out, argument), want, "%q: %s is there:", value, argument)
		}
		out, err := e.tryHelm(t, "template", "fenceline", chart(t), "--set", "cni.multusClusterNetwork=macvlan")
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
			out := e.helm(t, "template", "fenceline", chart(t), "--set", values)
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
			out := e.helm(t, "template", "fenceline", chart(t), "--set", values)
			got := []int{
				strings.Count(out, "- --ui-address=127.0.0.1:9478\n"), strings.Count(out, "- --ui-address=:9478\n"),
				strings.Count(out, "- --ui-cert-dir=/etc/fenceline-ui\n") + strings.Count(out, "{name: ui-tls, "), strings.Count(out, "\n  name: fenceline-ui-reviewer\n"),
			}
			check.That(t, slices.Equal(got, want) && strings.Count(out, "\n  name: fenceline-ui\n") == want[1], "%s: %v, want %v", values, got, want)
		}
	})
	t.Run("upgrades over itself", func(t *testing.T) {
		e.helm(t, "upgrade", "fenceline", chart(t), "--namespace", namespace, "--set", "bpffs.mount=false", "--set", "cni.conflist.master=eth1")
		agents := &appsv1.DaemonSet{}
		check.OK(t, e.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "fenceline-agent"}, agents))
		n := len(agents.Spec.Template.Spec.InitContainers)
		check.That(t, n == 0, "%d init containers after bpffs.mount=false", n)
	})
	t.Run("gives the controller what the values say of reclaim", func(t *testing.T) {
		e.helm(t, "upgrade", "fenceline", chart(t), "--namespace", namespace, "--reuse-values",
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
			out := e.helm(t, "template", "fenceline", chart(t), "--set-json", arg)
			check.That(t, strings.Contains(out, "- --stateful-set="+want+"\n"), "%s: the agents are not started with --stateful-set=%s", arg, want)
		}
	})
	t.Run("leaves the records when it is uninstalled, and finds them again", func(t *testing.T) {
		l := bound("", "10.1.0.1", forced)
		e.create(t, l)
		for _, args := range [][]string{
			{"uninstall", "fenceline", "--no-hooks", "--namespace", namespace},
			{"install", "fenceline", chart(t), "--namespace", namespace, "--create-namespace"},
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
	return runHelm(t, e.server.Kubeconfig(), args...)
}

// runHelm returns what helm prints. Without a kubeconfig, it only renders.
func runHelm(t *testing.T, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	builder := check.Value(thirdparty.NewBuilder(os.Stderr))(t)
	dir := check.Value(builder.Dir(t.Context(), thirdparty.Helm))(t)
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "helm"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig,
		"HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// chart returns the directory of the chart.
func chart(t *testing.T) string {
	t.Helper()
	root := check.Value(thirdparty.Root())(t)
	return filepath.Join(root, "charts", "fenceline")
}
