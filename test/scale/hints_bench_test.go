// SPDX-License-Identifier: Apache-2.0

//go:build bench

package scale

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/test/check"
)

// Until the hints of the product exist, a resource of the same form stands in for them: one small object for each
// node, with a start that its agent writes and the controller answers.
const hintsPath = "/apis/scale.fenceline.io/v1/scalehints"

func (c *cluster) installHints() {
	c.Helper()
	text := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"start": {Type: "string"}}}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "scalehints.scale.fenceline.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "scale.fenceline.io", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "scalehints", Kind: "ScaleHint"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: ptr.To(apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": text, "status": text},
				})},
			}},
		},
	}
	own := check.Value(apiextensions.NewForConfig(c.server.Admin()))(c)
	check.Value(own.ApiextensionsV1().CustomResourceDefinitions().Create(c.Context(), crd, metav1.CreateOptions{}))(c)
	check.Eventually(c, time.Minute, hintsPath, func() error {
		_, err := c.players.revision(c.Context(), hintsPath)
		return err
	})
}

func (p *players) addHint(ctx context.Context, node string) error {
	body := fmt.Sprintf(`{"apiVersion":"scale.fenceline.io/v1","kind":"ScaleHint","metadata":{"name":%q}}`, node)
	return p.call(ctx, http.MethodPost, hintsPath, nil, []byte(body), nil)
}

// answerHints answers each start, as the controller does, until the streams are closed.
func (c *cluster) answerHints() *streams {
	c.Helper()
	ctx, cancel := context.WithCancel(c.Context())
	s := &streams{end: cancel}
	asked := make(chan event, 100000)
	for range workers {
		s.running.Go(func() {
			for {
				select {
				case e := <-asked:
					body := fmt.Sprintf(`{"status":{"start":%q}}`, e.Object.Spec.Start)
					err := c.players.call(ctx, http.MethodPatch, hintsPath+"/"+e.Object.Metadata.Name+"/status", nil, []byte(body), nil)
					check.That(c, err == nil || ctx.Err() != nil, "answer: %v", err)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	from := url.Values{"resourceVersion": {check.Value(c.players.revision(ctx, hintsPath))(c)}}
	check.OK(c, c.players.watch(ctx, &s.running, hintsPath, from, decoded(c.T, func(e event) {
		if e.Object.Spec.Start != e.Object.Status.Start {
			asked <- e
		}
	})))
	return s
}
