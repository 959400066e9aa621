// SPDX-License-Identifier: Apache-2.0

//go:build api

package cidr

import (
	"errors"
	"os"
	"testing"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

// The API server makes the first ServiceCIDR from its flag. The oldest supported one serves none,
// and names its range.
func TestServiceCIDRsOfAnAPIServer(t *testing.T) {
	server := controlplane.New(t)
	c := WatchedServices(connect(t, server.Admin()), "default", &memory{}, testr.New(t))
	run(t, c)
	expect(t, c, "10.96.0.0/16")
	if os.Getenv(controlplane.VersionVariable) == "oldest" {
		return
	}

	api := connect(t, server.Admin())
	more := finalized(object("more", "10.97.0.0/24", "fd00:10:97::/112"))
	check.OK(t, api.Create(t.Context(), more))
	expect(t, c, "10.96.0.0/16 10.97.0.0/24 fd00:10:97::/112")
	// The object is deleted once no Service has an address of it.
	check.OK(t, api.Delete(t.Context(), more))
	check.OK(t, api.Create(t.Context(), object("next", "10.98.0.0/24")))
	expect(t, c, "10.96.0.0/16 10.97.0.0/24 10.98.0.0/24 fd00:10:97::/112")
	check.OK(t, api.Get(t.Context(), client.ObjectKeyFromObject(more), more))
	more.Finalizers = nil
	check.OK(t, api.Update(t.Context(), more))
	expect(t, c, "10.96.0.0/16 10.98.0.0/24")

	nobody := server.Admin()
	nobody.Impersonate = rest.ImpersonationConfig{UserName: "nobody"}
	forbidden := WatchedServices(connect(t, nobody), "default", &memory{}, testr.New(t))
	run(t, forbidden)
	expect(t, forbidden, ErrForbidden.Error())
}

func connect(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	check.OK(t, errors.Join(networkingv1.AddToScheme(scheme), corev1.AddToScheme(scheme)))
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"), meta.RESTScopeRoot)
	kinds.Add(corev1.SchemeGroupVersion.WithKind("Service"), meta.RESTScopeNamespace)
	return check.Value(client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: kinds}))(t)
}
