// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/config/v1alpha1"
)

// TestUsageEndpointSecrets checks that a URL of an endpoint with a secret is rejected, and that the
// error does not contain the secret.
func TestUsageEndpointSecrets(t *testing.T) {
	for _, url := range []string{
		"https://billing.example/in?sig=SECRET",
		"http://billing.example/in?SECRET",
		"?SECRET",
		"https://user:SECRET@billing.example",
		"http://SECRET@billing.example?SECRET#SECRET",
		"https://billing.example/%zz?SECRET",
		"https://billing.example/in?",
	} {
		text := "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n" +
			fmt.Sprintf("usage: { directory: spool, endpoint: { url: %q } }\n", url)
		_, err := v1alpha1.Decode([]byte(text))
		if err == nil || !strings.Contains(err.Error(), "usage.endpoint.url") || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v; want an error without the secret", url, err)
		}
	}
}
