// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/config/v1alpha1"
)

func published(t *testing.T) *v1alpha1.Published {
	t.Helper()
	config, err := v1alpha1.Decode([]byte(`{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration,
authentication: {qualifyNames: true, revocation: {path: /etc/revoked.yaml},
sources: [{name: tokens, tokenFile: {path: /etc/tokens.csv}}]},
authorization: {abac: {path: /etc/policy.jsonl}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return &v1alpha1.Published{
		Hash:       "abc",
		Settings:   config.Settings,
		Policy:     "{}\n",
		Revocation: "kind: Revocation\n",
	}
}

// TestPublished checks that PublishedIn returns the configuration that ConfigMap published.
func TestPublished(t *testing.T) {
	want := published(t)
	object, err := want.ConfigMap("kube-system")
	if err != nil || object.Namespace != "kube-system" {
		t.Fatal(err)
	}
	got, err := v1alpha1.PublishedIn(object)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// TestPublishedReplicas checks that PublishedIn returns the entries of replicas, that it omits an
// entry that cannot be read, and that SurplusReplicas removes only the oldest entries.
func TestPublishedReplicas(t *testing.T) {
	object, err := published(t).ConfigMap("kube-system")
	if err != nil {
		t.Fatal(err)
	}
	object.Data["replica.broken"] = "{"
	began := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	var want []v1alpha1.Replica
	for i := range 64 {
		r := v1alpha1.Replica{
			Name:    fmt.Sprintf("eu-%02d", i),
			Hash:    "abc",
			Version: "v1",
			Since:   metav1.NewTime(began.Add(time.Duration(i) * time.Hour)),
		}
		data, err := r.Data()
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(object.Data, data)
		want = append(want, r)
	}
	got, err := v1alpha1.PublishedIn(object)
	if err != nil || len(got.Replicas) != len(want) || got.Hash != "abc" {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range want {
		if r := got.Replicas[i]; r.Name != want[i].Name || r.Hash != "abc" || !r.Since.Equal(&want[i].Since) {
			t.Errorf("%+v; want %+v", r, want[i])
		}
	}
	if patch := string(v1alpha1.SurplusReplicas(object)); patch != `{"data":{"replica.broken":null}}` {
		t.Errorf("%s", patch)
	}
	delete(object.Data, "replica.broken")
	if patch := v1alpha1.SurplusReplicas(object); patch != nil {
		t.Errorf("%s", patch)
	}
	object.Data["replica.new"] = `{"hash":"abc","since":"2027-01-01T00:00:00Z"}`
	if patch := string(v1alpha1.SurplusReplicas(object)); patch != `{"data":{"replica.eu-00":null}}` {
		t.Errorf("%s", patch)
	}
}

// TestPublishedDefaultTenant checks that publishing does not change defaultTenant.
func TestPublishedDefaultTenant(t *testing.T) {
	for _, want := range []string{"", "system"} {
		p := published(t)
		p.Settings.Authentication.Sources[0].TokenFile.DefaultTenant = want
		object, err := p.ConfigMap("kube-system")
		if err != nil {
			t.Fatal(err)
		}
		got, err := v1alpha1.PublishedIn(object)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Settings.Authentication.Sources[0].TokenFile.DefaultTenant); diff != "" {
			t.Error(diff)
		}
	}
}

// TestPublishedLarge checks that a policy file that is too large for the ConfigMap is omitted, and
// that the configuration and the revocation file are still published.
func TestPublishedLarge(t *testing.T) {
	p := published(t)
	p.Policy = strings.Repeat("x", 400<<10)
	object, err := p.ConfigMap("kube-system")
	if err != nil {
		t.Fatal(err)
	}
	got, err := v1alpha1.PublishedIn(object)
	if err != nil || got.Policy != "" || got.Revocation == "" || !got.Settings.Authentication.QualifyNames {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestPublishedForged checks that PublishedIn returns [v1alpha1.ErrNotPublished] for a ConfigMap
// without a valid configuration.
func TestPublishedForged(t *testing.T) {
	for _, text := range []string{
		"", "kind: Secret", "{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration, later: true}",
	} {
		got, err := v1alpha1.PublishedIn(&corev1.ConfigMap{Data: map[string]string{"tenancy.yaml": text}})
		if got != nil || !errors.Is(err, v1alpha1.ErrNotPublished) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}
