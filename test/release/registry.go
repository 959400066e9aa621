// SPDX-License-Identifier: Apache-2.0

package release

import (
	"crypto/subtle"
	"io"
	"log"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/registry"
)

// RegistryUser may read a registry after Lock.
const RegistryUser = "reader"

// Registry is a registry in memory, for tests.
type Registry struct {
	handler http.Handler
	// password is empty before Lock.
	password atomic.Value
	blobs    atomic.Int64
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true))}
}

// Lock makes the registry ask for the name RegistryUser and the password.
func (r *Registry) Lock(password string) { r.password.Store(password) }

// Blobs returns how many blobs, which are layers, configurations and charts, the registry has sent.
func (r *Registry) Blobs() int64 { return r.blobs.Load() }

func (r *Registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if want, _ := r.password.Load().(string); want != "" {
		user, password, _ := request.BasicAuth()
		if user != RegistryUser || subtle.ConstantTimeCompare([]byte(password), []byte(want)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
			return
		}
	}
	if request.Method == http.MethodGet && strings.Contains(request.URL.Path, "/blobs/") {
		r.blobs.Add(1)
	}
	r.handler.ServeHTTP(w, request)
}
