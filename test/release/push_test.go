// SPDX-License-Identifier: Apache-2.0

package release

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/fenceline/fenceline/test/check"
)

// server is a registry on this machine.
type server struct {
	*Registry
	host string
	// writes counts what changes the registry. Manifests are refused while closed is set.
	writes atomic.Int32
	closed atomic.Bool
	// flipped is the digest of a blob that is served with another first byte.
	flipped atomic.Value
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{Registry: NewRegistry()}
	listener := httptest.NewServer(s)
	t.Cleanup(listener.Close)
	s.host = strings.TrimPrefix(listener.URL, "http://")
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		s.writes.Add(1)
		if s.closed.Load() && strings.Contains(r.URL.Path, "/manifests/") {
			http.Error(w, "closed", http.StatusForbidden)
			return
		}
	}
	if digest, _ := s.flipped.Load().(string); digest != "" && strings.HasSuffix(r.URL.Path, digest) && r.Method == http.MethodGet {
		answer := httptest.NewRecorder()
		s.Registry.ServeHTTP(answer, r)
		data := answer.Body.Bytes()
		data[0] ^= 1
		_, _ = w.Write(data) // The client may have gone.
		return
	}
	s.Registry.ServeHTTP(w, r)
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	return check.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
}

func TestAReleaseIsPushedOnceAndGoesOnWhereItBrokeOff(t *testing.T) {
	s := newServer(t)
	r, made := example(t, s.host+"/team", "x")
	r.key = newKey(t)
	s.closed.Store(true)
	check.That(t, r.push(t.Context(), made) != nil, "a registry that refuses manifests is no failure")
	s.closed.Store(false)
	blobs := s.writes.Load()
	check.OK(t, r.push(t.Context(), made))
	check.That(t, blobs > 0, "nothing was sent before the failure")

	before := s.writes.Load()
	check.OK(t, r.push(t.Context(), made))
	check.Equal(t, s.writes.Load(), before, "writes after the second push")

	_, other := example(t, s.host+"/team", "y")
	err := r.push(t.Context(), []artifact{made[0], other[1]})
	check.Says(t, err, "fenceline/controller:1.2.3 is there with the digest", "published once")
	check.Equal(t, s.writes.Load(), before, "writes after a push that was refused")

	for _, a := range made {
		repository := check.Value(name.NewRepository(s.host + "/team/" + a.name))(t)
		found := check.Value(remote.Get(repository.Tag(version)))(t)
		check.That(t, string(found.Manifest) == string(check.Value(a.content.RawManifest())(t)), "the manifest of %s differs", a.name)
		if a.sbom == nil {
			continue
		}
		check.OK(t, validate.Index(check.Value(found.ImageIndex())(t)))
		// Skopeo writes an index so. Otherwise it refuses to keep the digest.
		var index imagespec.Index
		check.OK(t, json.Unmarshal(found.Manifest, &index))
		check.Equal(t, string(check.Value(json.Marshal(index))(t)), string(found.Manifest), "index of %s", a.name)
		referrers := check.Value(check.Value(remote.Referrers(repository.Digest(found.Digest.String())))(t).IndexManifest())(t)
		check.Must(t, len(referrers.Manifests) == 1 && referrers.Manifests[0].ArtifactType == "application/spdx+json", "referrers: %+v", referrers.Manifests)
		document := check.Value(remote.Image(repository.Digest(referrers.Manifests[0].Digest.String())))(t)
		check.Equal(t, read(t, check.Value(document.Layers())(t)[0]), string(a.sbom), "document about the image")
	}
}

func TestOnlyARegistryOfThisMachineGetsAnUnsignedRelease(t *testing.T) {
	s := newServer(t)
	r, made := example(t, s.host, "x")
	r.public = true
	check.Says(t, r.push(t.Context(), made), "fenceline/agent:1.2.3 is not there", "give KEY")
	check.Equal(t, s.writes.Load(), int32(0), "writes of a push that was refused")

	r.key = newKey(t)
	check.OK(t, r.push(t.Context(), made))
	before := s.writes.Load()
	r.key = nil
	check.OK(t, r.push(t.Context(), made))
	check.Equal(t, s.writes.Load(), before, "writes of a user who builds a version again")
}

func TestARegistryThatNeedsALogin(t *testing.T) {
	s := newServer(t)
	s.Lock("secret")
	r, made := example(t, s.host+"/team", "x")
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	check.Says(t, r.push(t.Context(), made), "look for "+s.host+"/team/fenceline/agent:1.2.3", "docker login "+s.host)
	config := `{"auths": {"` + s.host + `": {"auth": "` + base64.StdEncoding.EncodeToString([]byte(RegistryUser+":secret")) + `"}}}`
	check.OK(t, os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), []byte(config), 0o600))
	check.OK(t, r.push(t.Context(), made))
}

func read(t *testing.T, layer v1.Layer) string {
	t.Helper()
	return string(check.Value(io.ReadAll(check.Value(layer.Compressed())(t)))(t))
}

func TestALayerThatWasChangedByAByteIsRefused(t *testing.T) {
	s := newServer(t)
	r, made := example(t, s.host, "x")
	check.OK(t, r.push(t.Context(), made))
	index := made[0].content.(v1.ImageIndex)
	build := check.Value(index.Image(check.Value(index.IndexManifest())(t).Manifests[0].Digest))(t)
	s.flipped.Store(check.Value(check.Value(build.Layers())(t)[0].Digest())(t).String())
	pulled := check.Value(remote.Index(check.Value(name.NewTag(r.reference(made[0].name)))(t)))(t)
	build = check.Value(pulled.Image(check.Value(build.Digest())(t)))(t)
	_, err := io.ReadAll(check.Value(check.Value(build.Layers())(t)[0].Compressed())(t))
	check.Says(t, err, "error verifying sha256 checksum")
}

func TestSignaturesAreThoseOfCosignAndOfEachKey(t *testing.T) {
	s := newServer(t)
	r, made := example(t, s.host, "x")
	keys := []*ecdsa.PrivateKey{newKey(t), newKey(t)}
	for _, r.key = range keys {
		check.OK(t, r.push(t.Context(), made))
	}
	for _, a := range made {
		digest := check.Value(a.content.Digest())(t)
		repository := check.Value(name.NewRepository(s.host + "/" + a.name))(t)
		image := check.Value(remote.Image(repository.Tag("sha256-" + digest.Hex + ".sig")))(t)
		signatures := check.Value(partial.Manifest(image))(t).Layers
		check.Must(t, len(signatures) == len(keys), "%d signatures", len(signatures))
		for i, layer := range signatures {
			payload := read(t, check.Value(image.LayerByDigest(layer.Digest))(t))
			want := `{"critical":{"identity":{"docker-reference":"` + repository.Name() + `"},"image":{"docker-manifest-digest":"` + digest.String() + `"},"type":"cosign container image signature"},"optional":null}`
			check.Equal(t, payload, want, "payload")
			check.Equal(t, string(layer.MediaType), "application/vnd.dev.cosign.simplesigning.v1+json", "media type")
			sum := sha256.Sum256([]byte(payload))
			signature := check.Value(base64.StdEncoding.DecodeString(layer.Annotations["dev.cosignproject.cosign/signature"]))(t)
			check.That(t, ecdsa.VerifyASN1(&keys[i].PublicKey, sum[:], signature), "signature %d of %s is wrong", i, a.name)
		}
	}
	check.OK(t, r.write())
	public, _ := pem.Decode(check.Value(os.ReadFile(filepath.Join(r.Out, "fenceline.pub")))(t))
	key := check.Value(x509.ParsePKIXPublicKey(public.Bytes))(t).(*ecdsa.PublicKey)
	sum := sha256.Sum256(check.Value(os.ReadFile(filepath.Join(r.Out, "SHA256SUMS")))(t))
	signature := check.Value(base64.StdEncoding.DecodeString(string(check.Value(os.ReadFile(filepath.Join(r.Out, "SHA256SUMS.sig")))(t))))(t)
	check.That(t, ecdsa.VerifyASN1(key, sum[:], signature), "the signature of the sums is wrong")
}

func TestKeysInPEM(t *testing.T) {
	pkcs8 := func(key any) []byte { return check.Value(x509.MarshalPKCS8PrivateKey(key))(t) }
	block := func(kind string, data []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
	}
	key := newKey(t)
	for name, tc := range map[string]struct{ text, want string }{
		"PKCS 8":                       {text: block("PRIVATE KEY", pkcs8(key))},
		"SEC 1 with parameters before": {text: block("EC PARAMETERS", []byte{6}) + block("EC PRIVATE KEY", check.Value(x509.MarshalECPrivateKey(key))(t))},
		"another curve":                {block("PRIVATE KEY", pkcs8(check.Value(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))(t))), "only ECDSA on P-256"},
		"encrypted by cosign":          {block("ENCRYPTED SIGSTORE PRIVATE KEY", []byte("{}")), "without a password"},
		"a public key":                 {block("PUBLIC KEY", []byte("x")), "PUBLIC KEY"},
		"no key":                       {"secret", "no key in PEM"},
		"broken":                       {block("PRIVATE KEY", []byte("x")), "asn1"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "key")
			check.OK(t, os.WriteFile(file, []byte(tc.text), 0o600))
			got, err := readKey(file)
			if tc.want == "" {
				check.OK(t, err)
				check.That(t, got.Equal(key), "another key")
			} else {
				check.That(t, err != nil && strings.Contains(err.Error(), tc.want) && !strings.Contains(err.Error(), tc.text), "%v", err)
			}
		})
	}
}
