// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant"
)

// The names of the Secrets. They are the default values of the chart.
const (
	configSecret = "kubetenant-gateway-config" // #nosec G101 -- a name
	tlsSecret    = "kubetenant-gateway-tls"    // #nosec G101 -- a name
)

// addSecrets adds the Secrets with the configuration and the serving certificate of the gateway. It
// adds nothing if Certificate is empty.
func (o *Options) addSecrets(out map[string][]byte) error {
	if o.Certificate == "" {
		return nil
	}
	files, err := o.configFiles(out)
	if err != nil {
		return err
	}
	certificate, err := os.ReadFile(o.Certificate)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(o.Key)
	if err != nil {
		return err
	}
	if _, err := tls.X509KeyPair(certificate, key); err != nil {
		return fmt.Errorf("%s and %s are not a certificate and its key: %w", o.Certificate, o.Key, err)
	}
	var text bytes.Buffer
	for _, secret := range []*corev1.Secret{
		o.secret(configSecret, corev1.SecretTypeOpaque, files),
		o.secret(tlsSecret, corev1.SecretTypeTLS, map[string][]byte{
			corev1.TLSCertKey:       certificate,
			corev1.TLSPrivateKeyKey: key,
		}),
	} {
		one, err := yaml.Marshal(secret)
		if err != nil {
			return err
		}
		text.WriteString("---\n")
		text.Write(one)
	}
	out["secrets.yaml"] = text.Bytes()
	return nil
}

func (o *Options) secret(name string, secretType corev1.SecretType, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: o.Namespace},
		Type:       secretType,
		Data:       data,
	}
}

// configFiles returns the configuration as tenancy.yaml, and the files that it names. If out
// contains a generated kubeconfig, configFiles uses it instead of a file.
func (o *Options) configFiles(out map[string][]byte) (map[string][]byte, error) {
	text, err := os.ReadFile(o.Config)
	if err != nil {
		return nil, err
	}
	config, err := configv1alpha1.Decode(text)
	if err != nil {
		return nil, err
	}
	if a := config.Gateway.Audit; a != nil {
		a.LogPath = "" // the gateway writes this file, and does not read it
	}
	files := map[string][]byte{"tenancy.yaml": text}
	for _, path := range config.Paths() {
		if len(validation.IsConfigMapKey(*path)) > 0 || *path == "tenancy.yaml" {
			return nil, fmt.Errorf("%s names %s: only files in the folder of the configuration can be in its Secret",
				o.Config, *path)
		}
		data, ok := out["kubeconfigs/"+*path]
		if !ok {
			// #nosec G703 -- the configuration of the operator who runs the command
			if data, err = os.ReadFile(filepath.Join(filepath.Dir(o.Config), *path)); err != nil {
				return nil, errors.Join(err, errNoFile)
			}
		}
		files[*path] = data
	}
	return files, nil
}

// namespace returns the manifest of the namespace, which belongs to the system tenant.
func (o *Options) namespace() ([]byte, error) {
	return yaml.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "Namespace",
		"metadata": map[string]any{
			"name": o.Namespace,
			"labels": map[string]string{
				tenant.Label:                         tenant.System().String(),
				"pod-security.kubernetes.io/enforce": "restricted",
			},
		},
	})
}
