// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// ControllerRights installs the controller's account with its rights, as the chart does, and returns the
// access of this account. The namespace must exist.
func (s *Server) ControllerRights(ctx context.Context, namespace string) (_ *rest.Config, err error) {
	defer must.Catch(&err)
	dir := must.Value(must.Value(thirdparty.NewBuilder(os.Stderr)).Dir(ctx, thirdparty.Helm))
	rendered, err := exec.CommandContext(ctx, filepath.Join(dir, "helm"), "template", "fenceline", filepath.Join(must.Value(thirdparty.Root()), "charts", "fenceline"),
		"--namespace", namespace, "--show-only", "templates/controller-rbac.yaml").Output()
	must.Done(err, "render the rights of the chart")
	c, err := client.New(s.Admin(), client.Options{})
	must.Done(err, "connect to the API server")
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(rendered), 4096)
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
