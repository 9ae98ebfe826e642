// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package impersonate_test

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/impersonate"
)

// recordedObject returns an object with the identity that admission recorded.
func recordedObject() metav1.Object {
	return &metav1.ObjectMeta{
		Name:        "web",
		Namespace:   "acme--web",
		Labels:      map[string]string{tenant.Label: "acme"},
		Annotations: map[string]string{tenant.IdentityAnnotation: `{"user":"alice","tenant":"acme","groups":["dev"]}`},
	}
}

func ExampleImpersonator_Config() {
	i, err := impersonate.New(impersonate.Options{DefaultUser: "runner", GroupPattern: "dev"})
	if err != nil {
		fmt.Println(err)
		return
	}
	config, err := i.Config(recordedObject())
	fmt.Println(config.UserName, config.Groups, err)
	// Output:
	// runner [tenant:acme dev] <nil>
}

// roundTripper is a fake API server.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The transport uses the identity that is recorded on the object, and removes the impersonation
// headers of the request.
func ExampleImpersonator_Transport() {
	i, err := impersonate.New(impersonate.Options{DefaultUser: "runner"})
	if err != nil {
		fmt.Println(err)
		return
	}
	transport, err := i.Transport(roundTripper(func(r *http.Request) (*http.Response, error) {
		fmt.Println(r.Header.Get("Impersonate-User"), r.Header.Values("Impersonate-Group"))
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}), recordedObject())
	if err != nil {
		fmt.Println(err)
		return
	}
	request, _ := http.NewRequest(http.MethodGet, "https://kubernetes.default.svc/api/v1/pods", http.NoBody)
	request.Header.Set("Impersonate-User", "root")
	if resp, err := transport.RoundTrip(request); err == nil {
		_ = resp.Body.Close()
	}
	// Output:
	// runner [tenant:acme]
}
