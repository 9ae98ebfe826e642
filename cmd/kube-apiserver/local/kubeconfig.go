// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
)

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}

// writeKubeconfig writes the self-contained kubeconfig dir/<name>.kubeconfig for a server, with a
// new certificate for subject. It returns the path.
func (a *authority) writeKubeconfig(dir, name, cluster, server string, subject pkix.Name) (string, error) {
	certificate, key, err := a.issue(subject, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return "", err
	}
	c := clientcmdapi.NewConfig()
	c.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: certPEM(a.cert.Raw)}
	c.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	c.Contexts[name] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: name}
	c.CurrentContext = name
	path := filepath.Join(dir, name+".kubeconfig")
	return path, clientcmd.WriteToFile(*c, path)
}
