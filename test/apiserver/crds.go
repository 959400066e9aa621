// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/test/thirdparty"
)

// servedLimit is how long a custom resource may take to be served.
const servedLimit = 30 * time.Second

// InstallCRDs installs the chart's custom resources and returns when they are
// served.
func (s *Server) InstallCRDs(ctx context.Context) error {
	root, err := thirdparty.Root()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(root, "charts", "fenceline", "files", "crds", "*.yaml"))
	if err == nil && len(files) == 0 {
		err = errors.New("the chart has no custom resources")
	}
	if err != nil {
		return fmt.Errorf("install custom resources: %w", err)
	}
	client, err := apiextensions.NewForConfig(s.admin)
	if err != nil {
		return fmt.Errorf("install custom resources: %w", err)
	}
	for _, file := range files {
		if err := install(ctx, client, file); err != nil {
			return fmt.Errorf("install custom resource %s: %w", filepath.Base(file), err)
		}
	}
	return nil
}

func install(ctx context.Context, client apiextensions.Interface, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, crd); err != nil {
		return err
	}
	if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, servedLimit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := served(ctx, client, crd)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until it is served: %w", err)
		case <-tick.C:
		}
	}
}

// served lists the custom resource. The condition Established would be too early: it comes before the
// API server serves the resource.
func served(ctx context.Context, client apiextensions.Interface, crd *apiextensionsv1.CustomResourceDefinition) error {
	for _, version := range crd.Spec.Versions {
		path := fmt.Sprintf("/apis/%s/%s/%s", crd.Spec.Group, version.Name, crd.Spec.Names.Plural)
		if _, err := client.ApiextensionsV1().RESTClient().Get().AbsPath(path).Param("limit", "1").DoRaw(ctx); err != nil {
			return err
		}
	}
	return nil
}
