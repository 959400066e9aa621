// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/thirdparty"
)

// ControllerRights installs the controller's account with its rights, as the chart does, and returns the
// access of this account. The namespace must exist.
func (s *Server) ControllerRights(ctx context.Context, namespace string) (*rest.Config, error) {
	root, err := thirdparty.Root()
	if err != nil {
		return nil, err
	}
	builder, err := thirdparty.NewBuilder(os.Stderr)
	if err != nil {
		return nil, err
	}
	dir, err := builder.Dir(ctx, thirdparty.Helm)
	if err != nil {
		return nil, err
	}
	rendered, err := exec.CommandContext(ctx, filepath.Join(dir, "helm"), "template", "fenceline", filepath.Join(root, "charts", "fenceline"),
		"--namespace", namespace, "--show-only", "templates/controller-rbac.yaml").Output()
	if err != nil {
		return nil, fmt.Errorf("render the rights of the chart: %w", err)
	}
	c, err := client.New(s.Admin(), client.Options{})
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(rendered), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := documents.Decode(o)
		if errors.Is(err, io.EOF) {
			return s.ServiceAccount(ctx, namespace, "fenceline-controller", nil)
		}
		if err != nil {
			return nil, fmt.Errorf("read the rights of the chart: %w", err)
		}
		if len(o.Object) == 0 {
			continue
		}
		if err := c.Create(ctx, o); err != nil {
			return nil, fmt.Errorf("create %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
}
