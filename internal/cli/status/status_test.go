// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/deploy"
	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/cli/status"
)

// answers maps the paths of requests to the objects in the responses. If a request has a field
// selector, the key is the path, a question mark and the selector. The response is a 403 for a nil
// object, and a 404 for a missing key.
type answers map[string]any

func (a answers) cluster(t *testing.T, compiledIn bool) *client.Cluster {
	t.Helper()
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.URL.Path
		if selector := r.URL.Query().Get("fieldSelector"); selector != "" {
			key += "?" + selector
		}
		object, ok := a[key]
		code := http.StatusOK
		switch {
		case !ok:
			code, object = http.StatusNotFound, map[string]any{
				"kind":       "Status",
				"apiVersion": "v1",
				"status":     "Failure",
				"reason":     "NotFound",
				"code":       404,
			}
		case object == nil:
			code, object = http.StatusForbidden, map[string]any{
				"kind":       "Status",
				"apiVersion": "v1",
				"status":     "Failure",
				"reason":     "Forbidden",
				"code":       403,
				"message":    "no: " + authz.ReasonReview.String(),
			}
		case r.Method == http.MethodPost:
			code = http.StatusCreated
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(object)
	})
	if compiledIn {
		handler = authz.WithRequestState(handler, nil)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return &client.Cluster{
		Config: &rest.Config{Host: server.URL, Proxy: func(*http.Request) (*url.URL, error) { return nil, nil }},
	}
}

type object = map[string]any

func list(kind, apiVersion string, items ...any) object {
	return object{"kind": kind + "List", "apiVersion": apiVersion, "items": append([]any{}, items...)}
}

func configuration(replicas ...string) object {
	data := object{
		"hash":         "aaa",
		"tenancy.yaml": `{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration, authorization: {mode: Enforce}}`,
	}
	for _, replica := range replicas {
		name, hash, _ := strings.Cut(replica, "=")
		data["replica."+name] = fmt.Sprintf(`{"hash":%q,"version":"v1","since":"2026-11-26T12:00:00Z"}`, hash)
	}
	return object{"kind": "ConfigMap", "apiVersion": "v1", "data": data}
}

func lease(host string, age time.Duration) object {
	return object{
		"metadata": object{"name": host, "labels": object{"kubernetes.io/hostname": host}},
		"spec":     object{"renewTime": time.Now().Add(-age).UTC().Format("2006-01-02T15:04:05.000000Z")},
	}
}

func pod(name, ready string) object {
	return object{
		"metadata": object{"name": name},
		"status":   object{"conditions": []any{object{"type": "Ready", "status": ready}}},
	}
}

func aTenant(name, ready string) object {
	return object{
		"kind":       "Tenant",
		"apiVersion": "kubetenant.dev/v1alpha1",
		"metadata":   object{"name": name},
		"spec":       object{"id": name},
		"status": object{"conditions": []any{object{
			"type":    "Ready",
			"status":  ready,
			"reason":  "Failed",
			"message": "no quota",
		}}},
	}
}

const (
	tenantsPath = "/apis/kubetenant.dev/v1alpha1/tenants"
	definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
)

// healthy returns the answers of a compiled-in server with two replicas and no problems.
func healthy() answers {
	a := answers{
		"/version": object{"gitVersion": "v1.37.1"},
		"/api/v1/namespaces/kube-system/configmaps/kubetenant-configuration": configuration("eu-1=aaa",
			"eu-2=aaa", "gone=bbb"),
		"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases": list("Lease", "coordination.k8s.io/v1",
			lease("eu-1", 0), lease("eu-2", 10*time.Second), lease("gone", time.Hour)),
		tenantsPath: list("Tenant", "kubetenant.dev/v1alpha1", aTenant("acme", "True")),
	}
	for _, text := range deploy.Definitions() {
		definition := object{}
		if err := yaml.Unmarshal([]byte(text), &definition); err != nil {
			panic(err)
		}
		definition["status"] = object{"conditions": []any{object{"type": "Established", "status": "True"}}}
		a[definitions+definition["metadata"].(object)["name"].(string)] = definition
	}
	return a
}

// tenantsDefinition returns the CustomResourceDefinition of the resource tenants.
func tenantsDefinition(a answers) object { return a[definitions+"tenants.kubetenant.dev"].(object) }

// TestCollect checks the report about a compiled-in server without problems, and with each
// problem.
func TestCollect(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(answers)
		replicas string // the names
		problems []string
		unknown  []string
	}{
		"healthy": {replicas: "eu-1,eu-2"},
		"a replica differs": {
			func(a answers) { a[configPath] = configuration("eu-1=aaa", "eu-2=bbb") },
			"eu-1,eu-2",
			[]string{"different configurations: eu-1 aaa; eu-2 bbb"},
			nil,
		},
		"a server that publishes no configuration": {
			func(a answers) { a[configPath] = configuration("eu-1=aaa") },
			"eu-1,eu-2",
			[]string{"The server eu-2 has not published"},
			nil,
		},
		"no published configuration": {
			func(a answers) { delete(a, configPath) }, "", nil, []string{status.PartConfiguration, status.PartReplicas},
		},
		"a configuration of a later release": {func(a answers) {
			a[configPath] = object{"kind": "ConfigMap", "apiVersion": "v1", "data": object{"tenancy.yaml": "x: 1"}}
		}, "", []string{"cannot read"}, []string{status.PartConfiguration, status.PartReplicas}},
		"leases may not be read": {
			func(a answers) { a["/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"] = nil },
			"eu-1,eu-2,gone",
			nil,
			[]string{status.PartReplicas},
		},
		"a definition is missing": {
			func(a answers) { delete(a, definitions+"tenantmembers.kubetenant.dev") },
			"eu-1,eu-2",
			[]string{"tenantmembers.kubetenant.dev is missing"},
			nil,
		},
		"another project's definition": {
			func(a answers) { tenantsDefinition(a)["spec"].(object)["scope"] = "Namespaced" },
			"eu-1,eu-2",
			[]string{"tenants.kubetenant.dev belongs to another project"},
			nil,
		},
		"a definition that is being deleted": {func(a answers) {
			tenantsDefinition(a)["metadata"].(object)["deletionTimestamp"] = "2026-11-26T12:00:00Z"
		}, "eu-1,eu-2", []string{"tenants.kubetenant.dev is being deleted"}, nil},
		"a definition of another release": {func(a answers) {
			version := tenantsDefinition(a)["spec"].(object)["versions"].([]any)[0].(object)
			spec := version["schema"].(object)["openAPIV3Schema"].(object)["properties"].(object)["spec"].(object)
			delete(spec["properties"].(object), "access")
		}, "eu-1,eu-2", []string{"tenants.kubetenant.dev is outdated: it lacks spec.access"}, nil},
		"a definition that is not established": {
			func(a answers) { delete(tenantsDefinition(a), "status") },
			"eu-1,eu-2",
			[]string{"tenants.kubetenant.dev is not established"},
			nil,
		},
		"definitions may not be read": {
			func(a answers) { a[definitions+"tenants.kubetenant.dev"] = nil },
			"eu-1,eu-2",
			nil,
			[]string{status.PartDefinitions},
		},
		"a Tenant is not ready": {func(a answers) {
			a[tenantsPath] = list("Tenant", "kubetenant.dev/v1alpha1", aTenant("acme", "True"), aTenant("globex", "False"))
		}, "eu-1,eu-2", []string{"not ready: 1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			a := healthy()
			if c.change != nil {
				c.change(a)
			}
			r, err := status.Collect(t.Context(), a.cluster(t, true))
			if err != nil || r.Installed == nil || !*r.Installed || r.Mode != installation.CompiledIn ||
				r.Versions.Kubernetes != "v1.37.1" {
				t.Errorf("%+v, %v", r, err)
				return
			}
			var names []string
			for _, replica := range r.Replicas {
				names = append(names, replica.Name)
			}
			if got := strings.Join(names, ","); got != c.replicas || !slices.Equal(r.Unknown, c.unknown) ||
				len(r.Problems) != len(c.problems) {
				t.Errorf("replicas %s, problems %q, unknown %q; want %s, %q, %q",
					got, r.Problems, r.Unknown, c.replicas, c.problems, c.unknown)
				return
			}
			for i, problem := range c.problems {
				if !strings.Contains(r.Problems[i], problem) {
					t.Errorf("%q; want %q", r.Problems[i], problem)
				}
			}
		})
	}
}

const configPath = "/api/v1/namespaces/kube-system/configmaps/kubetenant-configuration"

// TestCollectWebhook checks that the replicas of the webhook service are its ready Pods.
func TestCollectWebhook(t *testing.T) {
	a := healthy()
	a["/apis/authorization.k8s.io/v1/subjectaccessreviews"] = object{
		"kind":       "SubjectAccessReview",
		"apiVersion": "authorization.k8s.io/v1",
		"status":     object{"denied": true, "reason": authz.ReasonBadTenant.String()},
	}
	a["/api/v1/namespaces/kubetenant-system/configmaps/kubetenant-configuration"] = configuration("a=aaa",
		"b=bbb", "old=ccc")
	a["/api/v1/namespaces/kubetenant-system/pods"] = list("Pod", "v1", pod("a", "True"), pod("b", "True"),
		pod("starting", "False"))
	r, err := status.Collect(t.Context(), a.cluster(t, false))
	if err != nil || r.Mode != installation.Webhook || len(r.Replicas) != 2 || len(r.Problems) != 1 ||
		!strings.Contains(r.Problems[0], "a aaa; b bbb") {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestCollectAsATenant checks that Collect returns no error to a tenant's caller, and reports data
// that the caller may not read as unknown.
func TestCollectAsATenant(t *testing.T) {
	a := answers{
		"/version": object{"gitVersion": "v1.37.1"},
		"/apis/authorization.k8s.io/v1/subjectaccessreviews": nil,
		tenantsPath: nil,
		"/api/v1/namespaces/kubetenant-system/configmaps/kubetenant-configuration": nil,
		definitions + "accessgrants.kubetenant.dev":                                nil,
		"/apis/authentication.k8s.io/v1/selfsubjectreviews": object{
			"kind":       "SelfSubjectReview",
			"apiVersion": "authentication.k8s.io/v1",
			"status": object{
				"userInfo": object{"username": "alice", "extra": object{"kubetenant.dev/tenant": []any{"acme"}}},
			},
		},
		tenantsPath + "?metadata.name=acme": list("Tenant", "kubetenant.dev/v1alpha1", aTenant("acme", "False")),
	}
	r, err := status.Collect(t.Context(), a.cluster(t, false))
	if err != nil || r.Mode != installation.Webhook || r.NotReadyTotal != 1 ||
		r.NotReady[0] != (status.Tenant{Name: "acme", Reason: "Failed", Message: "no quota"}) {
		t.Errorf("%+v, %v", r, err)
	}
	if want := []string{status.PartConfiguration, status.PartReplicas, status.PartDefinitions}; !slices.Equal(r.Unknown,
		want) {
		t.Errorf("unknown %q; want %q", r.Unknown, want)
	}
}

// TestCollectManyTenants checks that a report contains at most 20 Tenants that are not ready, and
// the total number.
func TestCollectManyTenants(t *testing.T) {
	a := healthy()
	var items []any
	for i := range 25 {
		items = append(items, aTenant(fmt.Sprintf("t%d", i), "Unknown"))
	}
	a[tenantsPath] = list("Tenant", "kubetenant.dev/v1alpha1", items...)
	r, err := status.Collect(t.Context(), a.cluster(t, true))
	if err != nil || len(r.NotReady) != 20 || r.NotReadyTotal != 25 {
		t.Errorf("%d of %d, %v", len(r.NotReady), r.NotReadyTotal, err)
	}
}

// TestCollectInvalidTenant checks that an invalid Tenant is reported, and that the other Tenants
// are still checked.
func TestCollectInvalidTenant(t *testing.T) {
	a := healthy()
	invalid := object{"metadata": object{"name": "acme"}, "spec": "x"}
	a[tenantsPath] = list("Tenant", "kubetenant.dev/v1alpha1", invalid, aTenant("globex", "False"))
	r, err := status.Collect(t.Context(), a.cluster(t, true))
	if err != nil || len(r.NotReady) != 2 || r.NotReady[0].Name != "acme" || r.NotReady[1].Name != "globex" ||
		!strings.Contains(r.NotReady[0].Message, "does not decode") {
		t.Errorf("%+v, %v", r.NotReady, err)
	}
}

// TestCollectNotInstalled checks that Collect returns a report and an error if a server does not
// run kubetenant, or if its responses do not show whether it does.
func TestCollectNotInstalled(t *testing.T) {
	upstream := answers{
		"/version": object{"gitVersion": "v1.37.1"},
		configPath: configuration("eu-1=aaa"),
		"/apis/authorization.k8s.io/v1/subjectaccessreviews": object{
			"kind":       "SubjectAccessReview",
			"apiVersion": "authorization.k8s.io/v1",
			"status":     object{},
		},
		"/api/v1/namespaces": object{"kind": "Namespace", "apiVersion": "v1"},
	}
	r, err := status.Collect(t.Context(), upstream.cluster(t, false))
	if !errors.Is(err, installation.ErrNotInstalled) || r.Installed == nil || *r.Installed || r.Mode != "" ||
		r.Configuration.Hash != "" || r.Versions.Kubernetes != "v1.37.1" {
		t.Errorf("upstream: %+v, %v", r, err)
	}
	r, err = status.Collect(t.Context(), answers{}.cluster(t, false))
	if err == nil || errors.Is(err, installation.ErrNotInstalled) || r.Installed != nil || r.Undetermined == "" {
		t.Errorf("not a Kubernetes API server: %+v, %v", r, err)
	}
}
