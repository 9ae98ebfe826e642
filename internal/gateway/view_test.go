// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/gateway/views"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// newViewFixture returns a gateway in front of three clusters, each with a different list of
// tenants.
func newViewFixture(t *testing.T) *fixture {
	t.Helper()
	withTenants := func(name, tenants, more string) string {
		return strings.Replace(clusterEntry(name, ", labels: { region: "+name[:2]+" }"+more), `tenants: ["*", system]`,
			"tenants: "+tenants, 1)
	}
	clusters := map[string]*fakeCluster{
		"eu1": newFakeCluster(t, defaultNamespaces()),
		"us1": newFakeCluster(t, defaultNamespaces()),
		"us2": newFakeCluster(t, defaultNamespaces()),
	}
	w := newFixture(t,
		withTenants("eu1", `["*", system]`, "")+withTenants("us1", "[acme]", "")+withTenants("us2", "[acme, globex]", "")+
			"  views: { clusters: { enabled: true } }\n", clusters)
	return w
}

// view returns a client for the clusters view.
func (w *fixture) view(token string) dynamic.ResourceInterface {
	w.t.Helper()
	config := &rest.Config{Host: w.server.URL + views.Path, BearerToken: token}
	d, err := dynamic.NewForConfigAndClient(config, w.clientWithToken(token))
	if err != nil {
		w.t.Fatal(err)
	}
	return d.Resource(views.GroupVersion.WithResource(views.Resource))
}

// clientWithToken returns a client that sends a token.
func (w *fixture) clientWithToken(token string) *http.Client {
	client := *w.server.Client()
	next := client.Transport
	client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
		return next.RoundTrip(r)
	})
	return &client
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func namesOf(l *unstructured.UnstructuredList) string {
	var names []string
	for i := range l.Items {
		names = append(names, l.Items[i].GetName())
	}
	return strings.Join(names, " ")
}

// TestViewOfClusters checks that each caller gets the clusters that its tenant may use. For other
// clusters, the caller gets the same response as for missing clusters.
func TestViewOfClusters(t *testing.T) {
	t.Parallel()
	w := newViewFixture(t)
	for token, want := range map[string]string{"alice-token": "eu1 us1 us2", "bob-token": "eu1 us2", "root-token": "eu1"} {
		t.Run(token, func(t *testing.T) {
			list, err := w.view(token).List(t.Context(), metav1.ListOptions{})
			if err != nil || namesOf(list) != want {
				t.Errorf("%v, %v, want %s", namesOf(list), err, want)
			}
		})
	}
	bob := w.view("bob-token")
	hidden, err := bob.Get(t.Context(), "us1", metav1.GetOptions{})
	_, none := bob.Get(t.Context(), "us9", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) || !apierrors.IsNotFound(none) ||
		strings.ReplaceAll(err.Error(), "us1", "us9") != none.Error() {
		t.Errorf("a cluster of other tenants: %v, %v; a missing cluster: %v", hidden, err, none)
	}
	waittest.Until(t, func() error { // the gateway reads the versions asynchronously
		eu, err := bob.Get(t.Context(), "eu1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		version, _, _ := unstructured.NestedString(eu.Object, "status", "version")
		reachable, _, _ := unstructured.NestedBool(eu.Object, "status", "reachable")
		if version != "v1.37.1" || !reachable || eu.GetLabels()["region"] != "eu" {
			return errUnexpectedObject(eu.Object)
		}
		return nil
	})
	for name, c := range map[string]struct {
		selector metav1.ListOptions
		want     string
	}{
		"a label":                            {metav1.ListOptions{LabelSelector: "region=us"}, "us2"},
		"a set of labels":                    {metav1.ListOptions{LabelSelector: "region in (eu)"}, "eu1"},
		"a name":                             {metav1.ListOptions{FieldSelector: "metadata.name=us2"}, "us2"},
		"all names but one":                  {metav1.ListOptions{FieldSelector: "metadata.name!=us2"}, "eu1"},
		"the name of other tenants' cluster": {metav1.ListOptions{FieldSelector: "metadata.name=us1"}, ""},
		"a limit":                            {metav1.ListOptions{LabelSelector: "region=us", Limit: 1000}, "us2"},
	} {
		t.Run(name, func(t *testing.T) {
			if list, err := bob.List(t.Context(), c.selector); err != nil || namesOf(list) != c.want {
				t.Errorf("%v, %v", list, err)
			}
		})
	}
}

// TestViewOmitsDeletedTenantsClusters checks that the view omits clusters that reject a credential
// because it may belong to a deleted tenant of the same name.
func TestViewOmitsDeletedTenantsClusters(t *testing.T) {
	t.Parallel()
	eu, us := newFakeCluster(t, defaultNamespaces()), newFakeCluster(t, defaultNamespaces())
	us.update(func() {
		us.retired = []string{"bobs"}
	})
	w := newFixture(t, clusterEntry("eu1", "")+clusterEntry("us1", "")+"  views: { clusters: { enabled: true } }\n",
		map[string]*fakeCluster{"eu1": eu, "us1": us})
	w.write("tokens.csv", "alice-token,alice,u1,\"dev,ops\",,acme\nbob-token,bob,u2,dev,,bobs\n")
	waittest.Until(t, func() error {
		list, err := w.view("bob-token").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if names := namesOf(list); names != "eu1" {
			return fmt.Errorf("the view contains %q", names)
		}
		return nil
	})
	if list, err := w.view("alice-token").List(t.Context(), metav1.ListOptions{}); err != nil ||
		namesOf(list) != "eu1 us1" {
		t.Errorf("another tenant: %v, %v", list, err)
	}
}

type errUnexpectedObject map[string]any

func (e errUnexpectedObject) Error() string { return fmt.Sprintf("it is %v", map[string]any(e)) }

// TestViewRejectsRequests checks the requests that the view rejects.
func TestViewRejectsRequests(t *testing.T) {
	t.Parallel()
	w := newViewFixture(t)
	const all = "/gateway/apis/gateway.kubetenant.dev/v1alpha1/clusters"
	for what, r := range map[string]struct {
		token, method, path string
		want                int
	}{
		"no credential":                   {"", "GET", all, 401},
		"discovery, no credential":        {"", "GET", "/gateway/apis", 401},
		"an unknown token":                {"x", "GET", all, 401},
		"a watch":                         {"alice-token", "GET", all + "?watch=true", 405},
		"an empty watch":                  {"alice-token", "GET", all + "?watch", 405},
		"a creation":                      {"alice-token", "POST", all, 405},
		"an update":                       {"root-token", "PUT", all + "/eu1", 405},
		"a patch":                         {"root-token", "PATCH", all + "/eu1", 405},
		"a deletion":                      {"root-token", "DELETE", all + "/eu1", 405},
		"all deleted":                     {"root-token", "DELETE", all, 405},
		"a HEAD":                          {"alice-token", "HEAD", all, 405},
		"only metadata.name is supported": {"alice-token", "GET", all + "?fieldSelector=status.version%3Dv1", 400},
		"a malformed selector":            {"alice-token", "GET", all + "?labelSelector=%3D%3D", 400},
		"a subresource":                   {"alice-token", "GET", all + "/eu1/status", 404},
		"another version":                 {"alice-token", "GET", "/gateway/apis/gateway.kubetenant.dev/v1/clusters", 404},
		"a secret":                        {"alice-token", "GET", "/gateway/api/v1/namespaces/acme--web/secrets", 404},
		"a cluster below it":              {"alice-token", "GET", "/gateway/clusters/eu1/api", 404},
		"dots":                            {"alice-token", "GET", "/gateway/../api", 400},
		"a longer path segment":           {"alice-token", "GET", "/gatewayx/apis", 403},
	} {
		t.Run(what, func(t *testing.T) {
			code, text := w.do(r.token, r.method, r.path, "")
			if code != r.want || strings.Contains(text, "us1") {
				t.Errorf("%d, want %d: %s", code, r.want, text)
			}
		})
	}
	for name, c := range w.clusters {
		if received := c.takeRequests(); len(received) > 0 {
			t.Errorf("%s received %v", name, received[0].URL)
		}
	}
}

// TestViewIsAnAPI checks that Kubernetes clients can discover the view, and print it as a table.
func TestViewIsAnAPI(t *testing.T) {
	t.Parallel()
	w := newViewFixture(t)
	d, err := discovery.NewDiscoveryClientForConfigAndClient(&rest.Config{Host: w.server.URL + views.Path},
		w.clientWithToken("bob-token"))
	if err != nil {
		t.Fatal(err)
	}
	groups, resources, err := d.ServerGroupsAndResourcesWithContext(t.Context())
	if err != nil || len(groups) != 1 || len(resources) != 1 || resources[0].APIResources[0].Name != views.Resource ||
		resources[0].APIResources[0].Verbs.String() != "[get list]" {
		t.Errorf("%v, %v, %v", groups, resources, err)
	}
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	for include, want := range map[string]string{
		"":                      `"kind":"PartialObjectMetadata"`,
		"?includeObject=Object": `"kind":"Cluster"`,
		"?includeObject=None":   `"object":null`,
	} {
		t.Run(include, func(t *testing.T) {
			code, text := w.getAs(t.Context(), "bob-token",
				views.Path+"/apis/"+views.GroupVersion.String()+"/clusters"+include, table)
			if code != http.StatusOK || !strings.Contains(text, `"kind":"Table"`) || !strings.Contains(text, want) ||
				!strings.Contains(text, `"name":"Reachable"`) {
				t.Errorf("%d: %s", code, text)
			}
		})
	}
	for accept, want := range map[string]int{
		"application/yaml": 200,
		"application/vnd.kubernetes.protobuf,application/json": 200,
		"application/vnd.kubernetes.protobuf":                  406,
		"image/png":                                            406,
	} {
		t.Run(accept, func(t *testing.T) {
			if code, text := w.getAs(t.Context(), "bob-token", views.Path+"/apis/"+views.GroupVersion.String()+"/clusters",
				accept); code != want {
				t.Errorf("%d: %s", code, text)
			}
		})
	}
}

// getAs sends a request with an Accept header.
func (w *fixture) getAs(ctx context.Context, token, path, accept string) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.server.URL+path, http.NoBody)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	return w.read(w.clientWithToken(token).Do(req)) //nolint:bodyclose // read does
}

// TestViewIsDisabledByDefault checks that the view is disabled by default. Its path then belongs to
// the root cluster.
func TestViewIsDisabledByDefault(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	if code, text := w.get("alice-token", "/gateway/apis"); code != http.StatusForbidden || len(c.takeRequests()) > 0 {
		t.Errorf("%d: %s", code, text)
	}
}
