// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// TestConfigure checks the responses to reviews of the configuration Secret. Reviews of other
// objects are rejected.
func TestConfigure(t *testing.T) {
	review := func(operation, kind, name, object string) string {
		return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"` + operation +
			`","kind":{"group":"","version":"v1","kind":"` + kind + `"},"name":"` + name + `","object":` + object + `}}`
	}
	const (
		good = `{"kind":"Secret","data":{"tenancy.yaml":"Z29vZA=="}}`
		bad  = `{"kind":"Secret","data":{"tenancy.yaml":"YmFk"}}`
	)
	for name, c := range map[string]struct {
		body    string
		message string // the message of a denial
		fails   bool
	}{
		"valid, created": {review("CREATE", "Secret", ConfigurationSecret, good), "", false},
		"valid, updated": {review("UPDATE", "Secret", ConfigurationSecret, good), "", false},
		"broken": {
			review("UPDATE", "Secret", ConfigurationSecret, bad),
			"the configuration is invalid: tenancy.yaml:1:1: bad",
			false,
		},
		"another Secret": {review("UPDATE", "Secret", "other", good), "", true},
		"a ConfigMap":    {review("UPDATE", "ConfigMap", ConfigurationSecret, good), "", true},
		"deleted":        {review("DELETE", "Secret", ConfigurationSecret, "null"), "", true},
		"not base64": {
			review("CREATE", "Secret", ConfigurationSecret, `{"data":{"tenancy.yaml":"s3cret!"}}`),
			"",
			true,
		},
		"cannot be checked": {review("CREATE", "Secret", ConfigurationSecret, `{"data":{}}`), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			answered, err := configure(func(_ context.Context, data map[string][]byte) ([]string, error) {
				switch string(data["tenancy.yaml"]) {
				case "good":
					return nil, nil
				case "bad":
					return []string{"tenancy.yaml:1:1: bad"}, nil
				}
				return nil, errors.New("no directory")
			})(t.Context(), []byte(c.body))
			if (err != nil) != c.fails || err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%v", err)
			}
			if err != nil {
				return
			}
			text, err := answered.encode()
			var out struct {
				Response struct {
					UID     string
					Allowed bool
					Status  struct{ Message, Reason string }
				}
			}
			if err = errors.Join(err, json.Unmarshal(text, &out)); err != nil || out.Response.UID != "1" ||
				out.Response.Allowed != (c.message == "") || out.Response.Status.Message != c.message {
				t.Errorf("%s, %v", text, err)
			}
		})
	}
}
