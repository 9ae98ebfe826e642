package v1alpha1_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

func published(t *testing.T) *v1alpha1.Published {
	t.Helper()
	config, err := v1alpha1.Decode([]byte(`{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration,
authentication: {qualifyNames: true, revocation: {path: /etc/revoked.yaml}, sources: [{name: tokens, tokenFile: {path: /etc/tokens.csv}}]},
authorization: {abac: {path: /etc/policy.jsonl}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return &v1alpha1.Published{Hash: "abc", Settings: config.Settings, Policy: "{}\n", Revocation: "kind: Revocation\n"}
}

// TestPublished: what is published is read again as it was.
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

// TestPublishedDefaultTenant: an unset defaultTenant is published as unset, since setting it means more.
func TestPublishedDefaultTenant(t *testing.T) {
	none, system := "", "system"
	for _, want := range []*string{nil, &none, &system} {
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

// TestPublishedLarge: files that an object cannot hold are left out, and the configuration stays.
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

// TestPublishedForged: an object that holds anything else is refused, and never taken for the default.
func TestPublishedForged(t *testing.T) {
	for _, text := range []string{"", "kind: Secret", "{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration, later: true}"} {
		got, err := v1alpha1.PublishedIn(&corev1.ConfigMap{Data: map[string]string{"tenancy.yaml": text}})
		if got != nil || !errors.Is(err, v1alpha1.ErrNotPublished) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}
