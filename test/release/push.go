// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/fenceline/fenceline/test/must"
)

// reference returns the name of an artifact with its tag.
func (r *release) reference(artifact string) string {
	if r.Registry != "" {
		artifact = r.Registry + "/" + artifact
	}
	return artifact + ":" + r.Version
}

// push pushes the artifacts, unless the registry has a tag with another digest, or without a key lacks one. A tag comes last: a user who pulls it finds
// the signature and the document too.
func (r *release) push(ctx context.Context, artifacts []artifact) (err error) {
	defer must.CatchIn(&err, "push to %s", r.Registry)
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	for _, a := range artifacts {
		found, err := remote.Head(must.Value(name.NewTag(r.reference(a.name))), options...)
		if absent(err) {
			must.That(r.key != nil || !r.public, "%s is not there, and only a registry of this machine may have it unsigned: give KEY", r.reference(a.name))
			continue
		}
		must.That(!refused(err), "look for %s: %w: log in by docker login %s, or set DOCKER_CONFIG", r.reference(a.name), err, strings.Split(r.Registry, "/")[0])
		must.Done(err, "look for %s", r.reference(a.name))
		digest := must.Value(a.content.Digest())
		must.That(found.Digest == digest, "%s is there with the digest %s, and this build has %s: a version is published once", r.reference(a.name), found.Digest, digest)
	}
	pusher := must.Value(remote.NewPusher(options...))
	for _, a := range artifacts {
		tag, digest := must.Value(name.NewTag(r.reference(a.name))), must.Value(a.content.Digest())
		put := func(c content) {
			must.OK(pusher.Push(ctx, tag.Digest(must.Value(c.Digest()).String()), c))
		}
		put(a.content)
		if a.sbom != nil {
			put(sbomDocument(a))
		}
		if r.key != nil {
			must.OK(pusher.Push(ctx, tag.Tag(signatureTag(digest)), r.signed(tag.Repository, digest, options)))
		}
		must.OK(pusher.Push(ctx, tag, a.content))
		fmt.Fprintf(r.Progress, "%s@%s\n", tag, digest)
	}
	return nil
}

// absent reports whether a registry has answered that it has no such thing.
func absent(err error) bool { return answered(err, http.StatusNotFound) }

// refused reports whether a registry asks for a name and a password, or for others.
func refused(err error) bool {
	return answered(err, http.StatusUnauthorized) || answered(err, http.StatusForbidden)
}

func answered(err error, status int) bool {
	var answer *transport.Error
	return errors.As(err, &answer) && answer.StatusCode == status
}

// signatureTag returns the tag at which cosign looks for the signatures of a digest.
func signatureTag(digest v1.Hash) string { return digest.Algorithm + "-" + digest.Hex + ".sig" }

const signatureAnnotation = "dev.cosignproject.cosign/signature"

// signed returns the signatures of a digest: those that the registry has, of other keys, and that of this key.
func (r *release) signed(repository name.Repository, digest v1.Hash, options []remote.Option) content {
	signatures, err := remote.Image(repository.Tag(signatureTag(digest)), options...)
	if absent(err) {
		signatures, err = mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), nil
	}
	must.Done(err, "read the signatures of %s@%s", repository, digest)
	payload := payload(repository.Name(), digest)
	signature := signature(r.key, payload)
	for _, layer := range must.Value(partial.Manifest(signatures)).Layers {
		if layer.Annotations[signatureAnnotation] == signature {
			return signatures
		}
	}
	return must.Value(mutate.Append(signatures, mutate.Addendum{
		Layer:       static.NewLayer(payload, "application/vnd.dev.cosign.simplesigning.v1+json"),
		Annotations: map[string]string{signatureAnnotation: signature},
	}))
}
