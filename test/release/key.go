// SPDX-License-Identifier: Apache-2.0

package release

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/fenceline/fenceline/test/must"
)

// readKey reads a private ECDSA key on P-256 in PEM, without a password. The file may be a pipe.
func readKey(file string) (_ *ecdsa.PrivateKey, err error) {
	defer must.CatchIn(&err, "read the key %s", file)
	data := must.Value(os.ReadFile(file))
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		var key any
		switch block.Type {
		case "EC PARAMETERS":
			continue
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		default:
			return nil, fmt.Errorf("it is an %s: give a private key in PEM without a password, through a pipe if it is stored encrypted", block.Type)
		}
		must.OK(err)
		if key, ok := key.(*ecdsa.PrivateKey); ok && key.Curve == elliptic.P256() {
			return key, nil
		}
		return nil, fmt.Errorf("it is a %T: only ECDSA on P-256 will do", key)
	}
	return nil, fmt.Errorf("it has no key in PEM")
}

// publicKey returns the public half in PEM.
func publicKey(key *ecdsa.PrivateKey) []byte {
	der := must.Value(x509.MarshalPKIXPublicKey(key.Public()))
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// signature signs data as cosign does: ECDSA over SHA-256, in ASN.1 and base64. It is that of RFC 6979: the same
// key and data give the same signature, so that a second push has nothing to do.
func signature(key *ecdsa.PrivateKey, data []byte) string {
	sum := sha256.Sum256(data)
	return base64.StdEncoding.EncodeToString(must.Value(key.Sign(nil, sum[:], crypto.SHA256)))
}

// payload returns what is signed for a digest in a repository: the "simple signing" format of cosign.
func payload(repository string, digest v1.Hash) []byte {
	type object = map[string]any
	return must.Value(json.Marshal(object{
		"critical": object{
			"identity": object{"docker-reference": repository},
			"image":    object{"docker-manifest-digest": digest.String()},
			"type":     "cosign container image signature",
		},
		"optional": nil,
	}))
}
