// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// Helm runs helm in the cluster of a kubeconfig and returns its output. Without a kubeconfig, helm can only render.
func Helm(ctx context.Context, kubeconfig string, args ...string) (_ string, err error) {
	defer must.Catch(&err)
	dir := must.Value(must.Value(thirdparty.NewBuilder(os.Stderr)).Dir(ctx, thirdparty.Helm))
	home := must.Value(os.MkdirTemp("", "helm-"))
	defer os.RemoveAll(home)
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "helm"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// ControllerRights installs the controller's account with its rights, as the chart does, and returns the
// access of this account. The namespace must exist.
func (s *Server) ControllerRights(ctx context.Context, namespace string) (_ *rest.Config, err error) {
	defer must.Catch(&err)
	rendered, err := Helm(ctx, "", "template", "fenceline", filepath.Join(must.Value(thirdparty.Root()), "charts", "fenceline"),
		"--namespace", namespace, "--show-only", "templates/controller-rbac.yaml")
	must.Done(err, "render the rights of the chart: %s", rendered)
	c, err := client.New(s.Admin(), client.Options{})
	must.Done(err, "connect to the API server")
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(rendered), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := documents.Decode(o)
		if errors.Is(err, io.EOF) {
			return s.ServiceAccount(ctx, namespace, "fenceline-controller", nil)
		}
		must.Done(err, "read the rights of the chart")
		if len(o.Object) == 0 {
			continue
		}
		must.Done(c.Create(ctx, o), "create %s %s", o.GetKind(), o.GetName())
	}
}
