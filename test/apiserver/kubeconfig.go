// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig writes a kubeconfig with a token, for a process of a test.
func WriteKubeconfig(access *rest.Config, file string) error {
	const only = "only"
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{only: {
			Server: access.Host, CertificateAuthorityData: access.CAData, CertificateAuthority: access.CAFile,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{only: {Token: access.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{only: {Cluster: only, AuthInfo: only}},
		CurrentContext: only,
	}, file)
	if err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", file, err)
	}
	return nil
}
