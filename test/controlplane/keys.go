// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/fenceline/fenceline/test/must"
)

// validity covers any test run; nothing is kept longer than its cluster.
const validity = 30 * 24 * time.Hour

// Keys are the authority of a control plane. It signs all certificates but those of the aggregation layer.
type Keys struct {
	authority
	config Config
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// Pair is a certificate and its key, both PEM.
type Pair struct{ Cert, Key []byte }

// WriteKeys makes all authorities, certificates and kubeconfigs of the control plane.
func WriteKeys(c Config) (_ *Keys, err error) {
	defer must.CatchIn(&err, "write keys")
	must.OK(os.MkdirAll(c.keys(), 0o700))
	own := newAuthority("fenceline-test", c.key("ca.crt"))
	// Without an authority of the aggregation layer, the controllers log errors while they start.
	front := newAuthority("fenceline-test-front-proxy", c.key("front-proxy-ca.crt"))
	k, service := &Keys{authority: own, config: c}, c.Services[0].Masked().Addr().Next()
	// kube-apiserver verifies tokens with the private key as well as with its public half.
	_, _, err = keyutil.LoadOrGenerateKeyFile(c.key("service-account.key"))
	return k, errors.Join(
		err,
		own.write(c, "apiserver", cert.Config{CommonName: "kube-apiserver", AltNames: cert.AltNames{
			DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
			IPs:      []net.IP{c.Address.AsSlice(), service.AsSlice(), net.IPv4(127, 0, 0, 1)},
		}}),
		own.write(c, "kubelet-client", cert.Config{CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}}),
		front.write(c, "front-proxy", cert.Config{CommonName: frontProxyClient}),
		k.writeAdmin(),
		k.writeClient("controller-manager", cert.Config{CommonName: "system:kube-controller-manager"}),
		k.writeClient("scheduler", cert.Config{CommonName: "system:kube-scheduler"}),
		k.writeClient("proxy", cert.Config{CommonName: "system:kube-proxy"}),
	)
}

// ClientKubeconfig returns a kubeconfig for a new client certificate.
func (k *Keys) ClientKubeconfig(client cert.Config) (_ []byte, err error) {
	defer must.Catch(&err)
	pair := must.Value(k.Issue(client))
	return k.kubeconfig(rest.TLSClientConfig{CertData: pair.Cert, KeyData: pair.Key}, "")
}

func (k *Keys) kubeconfig(client rest.TLSClientConfig, token string) ([]byte, error) {
	client.CAData = k.Authority()
	return Kubeconfig(&rest.Config{Host: k.config.URL(), TLSClientConfig: client, BearerToken: token})
}

// writeAdmin gives the administrator a token: most requests of a test are the administrator's, and
// kube-apiserver verifies a certificate once more for each request.
func (k *Keys) writeAdmin() error {
	token := rand.Text()
	data, err := k.kubeconfig(rest.TLSClientConfig{}, token)
	return errors.Join(
		err,
		os.WriteFile(k.config.tokens(), []byte(token+",admin,admin,system:masters\n"), 0o600),
		os.WriteFile(k.config.Kubeconfig("admin"), data, 0o600),
	)
}

func (k *Keys) writeClient(name string, client cert.Config) error {
	return os.WriteFile(k.config.Kubeconfig(name), must.Value(k.ClientKubeconfig(client)), 0o600)
}

// Kubeconfig returns the kubeconfig of a client with a token or a certificate.
func Kubeconfig(access *rest.Config) ([]byte, error) {
	const only = "only"
	cluster := &clientcmdapi.Cluster{
		Server: access.Host, TLSServerName: access.ServerName, CertificateAuthorityData: access.CAData, CertificateAuthority: access.CAFile,
	}
	user := &clientcmdapi.AuthInfo{Token: access.BearerToken, ClientCertificateData: access.CertData, ClientKeyData: access.KeyData}
	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{only: cluster}, AuthInfos: map[string]*clientcmdapi.AuthInfo{only: user},
		Contexts: map[string]*clientcmdapi.Context{only: {Cluster: only, AuthInfo: only}}, CurrentContext: only,
	})
}

// newAuthority makes a self-signed authority and writes its certificate.
func newAuthority(name, file string) authority {
	key := must.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	own, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name, NotBefore: notBefore()}, key)
	must.Done(err, "sign authority %s", name)
	a := authority{own, key}
	must.OK(cert.WriteCert(file, a.Authority()))
	return a
}

// notBefore lies in the past: clocks of a test may be set back.
func notBefore() time.Time { return time.Now().Add(-time.Hour) }

// Authority returns the certificate that all servers are signed with.
func (a authority) Authority() []byte { return encode(a.cert.Raw) }

// Issue signs a certificate for a new key. Names and addresses make it a server certificate; without
// them it is a client certificate.
func (a authority) Issue(c cert.Config) (_ Pair, err error) {
	defer must.Catch(&err)
	key := must.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	usage := x509.ExtKeyUsageClientAuth
	if len(c.AltNames.DNSNames)+len(c.AltNames.IPs) > 0 {
		usage = x509.ExtKeyUsageServerAuth
	}
	serial := must.Value(rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)))
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, NotBefore: notBefore(), NotAfter: time.Now().Add(validity),
		Subject:  pkix.Name{CommonName: c.CommonName, Organization: c.Organization},
		DNSNames: c.AltNames.DNSNames, IPAddresses: c.AltNames.IPs,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}, a.cert, key.Public(), a.key)
	must.Done(err, "sign certificate of %s", c.CommonName)
	private, err := keyutil.MarshalPrivateKeyToPEM(key)
	return Pair{Cert: encode(der), Key: private}, err
}

// write writes NAME.crt and NAME.key.
func (a authority) write(c Config, name string, subject cert.Config) error {
	pair := must.Value(a.Issue(subject))
	return errors.Join(cert.WriteCert(c.key(name+".crt"), pair.Cert), keyutil.WriteKey(c.key(name+".key"), pair.Key))
}

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}
