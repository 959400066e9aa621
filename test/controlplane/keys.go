// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"net"
	"os"

	"github.com/fenceline/fenceline/test/pki"
)

// Keys are the authorities of a control plane.
type Keys struct {
	config    Config
	authority *pki.Authority
}

// WriteKeys makes all authorities, certificates and kubeconfigs of the control
// plane.
func WriteKeys(c Config) (*Keys, error) {
	if err := os.MkdirAll(c.keys(), 0o700); err != nil {
		return nil, fmt.Errorf("write keys: %w", err)
	}
	authority, err := pki.NewAuthority("fenceline-test")
	if err != nil {
		return nil, err
	}
	k := &Keys{config: c, authority: authority}
	steps := []func() error{
		func() error { return os.WriteFile(c.key("ca.crt"), authority.PEM, 0o644) },
		k.writeServing, k.writeFrontProxy, k.writeServiceAccountKey,
		func() error {
			return k.writePair("kubelet-client", pki.Request{CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}})
		},
		func() error {
			return k.WriteClient("admin", pki.Request{CommonName: "admin", Organization: []string{"system:masters"}})
		},
		func() error {
			return k.WriteClient("controller-manager", pki.Request{CommonName: "system:kube-controller-manager"})
		},
		func() error { return k.WriteClient("scheduler", pki.Request{CommonName: "system:kube-scheduler"}) },
		func() error { return k.WriteClient("proxy", pki.Request{CommonName: "system:kube-proxy"}) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, fmt.Errorf("write keys: %w", err)
		}
	}
	return k, nil
}

// Authority returns the certificate that all servers are signed with.
func (k *Keys) Authority() []byte { return k.authority.PEM }

// Issue signs a certificate.
func (k *Keys) Issue(r pki.Request) (pki.Pair, error) { return k.authority.Issue(r) }

// ClientKubeconfig returns a kubeconfig for a new client certificate.
func (k *Keys) ClientKubeconfig(r pki.Request) ([]byte, error) {
	pair, err := k.authority.Issue(r)
	if err != nil {
		return nil, err
	}
	return pki.Kubeconfig(k.config.URL(), k.authority.PEM, pair)
}

// WriteClient writes NAME.kubeconfig, and the same certificate as NAME.crt and
// NAME.key.
func (k *Keys) WriteClient(name string, r pki.Request) error {
	pair, err := k.authority.Issue(r)
	if err != nil {
		return err
	}
	data, err := pki.Kubeconfig(k.config.URL(), k.authority.PEM, pair)
	if err != nil {
		return err
	}
	return os.WriteFile(k.config.Kubeconfig(name), data, 0o600)
}

func (k *Keys) writePair(name string, r pki.Request) error {
	pair, err := k.authority.Issue(r)
	if err != nil {
		return err
	}
	return pair.Write(k.config.keys(), name)
}

func (k *Keys) writeServing() error {
	service := k.config.Services[0].Masked().Addr().Next()
	return k.writePair("apiserver", pki.Request{
		CommonName: "kube-apiserver",
		Names:      []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		Addresses:  []net.IP{k.config.Address.AsSlice(), service.AsSlice(), net.IPv4(127, 0, 0, 1)},
	})
}

// writeFrontProxy writes the authority of the aggregation layer; without it
// the controllers log errors while they start.
func (k *Keys) writeFrontProxy() error {
	authority, err := pki.NewAuthority("fenceline-test-front-proxy")
	if err != nil {
		return err
	}
	if err := os.WriteFile(k.config.key("front-proxy-ca.crt"), authority.PEM, 0o644); err != nil {
		return err
	}
	pair, err := authority.Issue(pki.Request{CommonName: frontProxyClient})
	if err != nil {
		return err
	}
	return pair.Write(k.config.keys(), "front-proxy")
}

// writeServiceAccountKey writes the key that signs tokens and its public half.
func (k *Keys) writeServiceAccountKey() error {
	key, err := pki.NewKey()
	if err != nil {
		return err
	}
	private, err := pki.MarshalKey(key)
	if err != nil {
		return err
	}
	public, err := pki.MarshalPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	return pki.Pair{Cert: public, Key: private}.Write(k.config.keys(), "service-account")
}
