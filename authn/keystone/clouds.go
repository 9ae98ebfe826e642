// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"sigs.k8s.io/yaml"
)

var errCloudsYAML = errors.New("the file is not valid YAML, or a field has the wrong type")

// checkCloud returns an error if the named cloud in a clouds.yaml is missing, names an invalid
// certificate or key file, or has an unsupported login method. The error contains names of clouds
// and paths, but no credential.
func checkCloud(data []byte, name string) error {
	var file clouds.Clouds
	if yaml.Unmarshal(data, &file) != nil {
		return errCloudsYAML // the library's error may quote the file
	}
	cloud, found := file.Clouds[name]
	if !found {
		return fmt.Errorf("cloud %q is missing: the clouds of the file are %s", name, namesOf(file.Clouds))
	}
	if cloud.CACertFile != "" {
		text, err := os.ReadFile(cloud.CACertFile)
		if err != nil {
			return fmt.Errorf("cloud %q: cacert: %w", name, err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(text) {
			return fmt.Errorf("cloud %q: cacert: %s contains no PEM-encoded certificate", name, cloud.CACertFile)
		}
	}
	switch cert, key := cloud.ClientCertFile, cloud.ClientKeyFile; {
	case (cert == "") != (key == ""):
		return fmt.Errorf("cloud %q: cert and key must be set together", name)
	case cert != "":
		for field, path := range map[string]string{"cert": cert, "key": key} {
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("cloud %q: %s: %w", name, field, err)
			}
		}
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
			return fmt.Errorf("cloud %q: cert and key are not a PEM-encoded certificate and its key", name)
		}
	}
	methods := []clouds.AuthType{
		"", clouds.AuthPassword, clouds.AuthV3Password, clouds.AuthV3ApplicationCredential,
	}
	if !slices.Contains(methods, cloud.AuthType) {
		return fmt.Errorf("cloud %q: auth_type must be %s or %s", name, clouds.AuthV3Password,
			clouds.AuthV3ApplicationCredential)
	}
	return nil
}

// namesOf returns the names of up to ten clouds for an error message.
func namesOf(all map[string]clouds.Cloud) string {
	names := slices.Sorted(maps.Keys(all))
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names[:min(len(names), 10)], ", ")
}
