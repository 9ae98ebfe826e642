// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
)

// ExecInfo is the environment variable in which kubectl passes its request to a credential plugin.
const ExecInfo = "KUBERNETES_EXEC_INFO"

// Interactive reports whether kubectl allows the plugin to interact with a user. It returns true if
// kubectl did not start the plugin. It returns an error if kubectl requests an unsupported API
// version.
func Interactive(info string) (bool, error) {
	if info == "" {
		return true, nil // started by a user
	}
	var in clientauthenticationv1.ExecCredential
	if err := json.Unmarshal([]byte(info), &in); err != nil {
		return false, fmt.Errorf("%s: %w", ExecInfo, err)
	}
	if v := clientauthenticationv1.SchemeGroupVersion.String(); in.APIVersion != v {
		return false, fmt.Errorf("the kubeconfig requests %s: set the apiVersion of its exec section to %s", in.APIVersion, v)
	}
	return in.Spec.Interactive, nil
}

// Print writes the token as an ExecCredential.
func Print(w io.Writer, t *Token) error {
	until := metav1.NewTime(t.Expires)
	return json.NewEncoder(w).Encode(&clientauthenticationv1.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), Kind: "ExecCredential"},
		Status:   &clientauthenticationv1.ExecCredentialStatus{Token: t.Token, ExpirationTimestamp: &until},
	})
}
