// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// quotas returns a client for TenantQuotas.
func quotas(objects ...runtime.Object) *dynamicfake.FakeDynamicClient {
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{
			v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas): "TenantQuotaList",
		},
		objects...)
}

func quota(name, owner string, labels map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion,
		"kind":       v1alpha1.KindTenantQuota,
		"metadata":   map[string]any{"name": name, "labels": labels},
		"spec":       map[string]any{"tenant": owner},
	}}
}

func labeledMeta(name, run string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name}
	if run != "" {
		m.Labels = map[string]string{runLabel: run}
	}
	return m
}

// TestRemove checks that a run deletes the objects that it created, and no other object with one of
// their names.
func TestRemove(t *testing.T) {
	w, err := newFixture(&Options{Admin: &rest.Config{}, Tenants: [2]string{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	isDefault := map[string]any{v1alpha1.DefaultQuotaLabel: "true"}
	k := fake.NewClientset(
		&corev1.Namespace{ObjectMeta: labeledMeta("a--isolation", "a")},
		&corev1.Namespace{ObjectMeta: labeledMeta("b--isolation", "")},
		&corev1.Namespace{ObjectMeta: labeledMeta("a-reborn", "a")},
		&corev1.Namespace{ObjectMeta: labeledMeta("a--shop", "a")},
		&rbacv1.ClusterRole{ObjectMeta: labeledMeta("kubetenant-isolation-a", "a")},
		&rbacv1.ClusterRoleBinding{ObjectMeta: labeledMeta("kubetenant-isolation-a", "a")},
		&rbacv1.ClusterRoleBinding{ObjectMeta: labeledMeta("kubetenant-isolation-a-admin", "other")})
	d := quotas(quota("a", "a", isDefault), quota("b", "b", nil), quota("acme", "acme", isDefault))
	w.admin, w.objects = k, d
	if err := w.deleteAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	var remaining []string
	namespaces, _ := k.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	for _, n := range namespaces.Items {
		remaining = append(remaining, n.Name)
	}
	roles, _ := k.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
	bindings, _ := k.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	for _, b := range bindings.Items {
		remaining = append(remaining, b.Name)
	}
	list, _ := d.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas)).
		List(t.Context(), metav1.ListOptions{})
	for _, q := range list.Items {
		remaining = append(remaining, q.GetName())
	}
	slices.Sort(remaining)
	if want := []string{"a--shop", "acme", "b", "b--isolation", "kubetenant-isolation-a-admin"}; !slices.Equal(remaining,
		want) || len(roles.Items) > 0 {
		t.Errorf("remaining objects %v and %d ClusterRoles; want %v", remaining, len(roles.Items), want)
	}
	if err := w.deleteAll(t.Context()); err != nil {
		t.Errorf("second call: %v", err)
	}
}

// TestLeftovers checks that any remaining object of a run is enough to find the run. Labels
// whose value is not the name of a temporary tenant are ignored.
func TestLeftovers(t *testing.T) {
	k := fake.NewClientset(
		&corev1.Namespace{ObjectMeta: labeledMeta("verify-a-aaaaaa--isolation", "verify-a-aaaaaa")},
		&corev1.Namespace{ObjectMeta: labeledMeta("verify-b-aaaaaa--isolation", "verify-a-aaaaaa")},
		&rbacv1.ClusterRole{ObjectMeta: labeledMeta("kubetenant-isolation-verify-a-bbbbbb", "verify-a-bbbbbb")},
		&rbacv1.ClusterRoleBinding{ObjectMeta: labeledMeta("kubetenant-isolation-verify-a-cccccc-admin", "verify-a-cccccc")},
		&corev1.Namespace{ObjectMeta: labeledMeta("acme--shop", "acme")},
		&corev1.Namespace{ObjectMeta: labeledMeta("globex--shop", "verify-a-toolong")},
		&corev1.Namespace{ObjectMeta: labeledMeta("verify-a-dddddd--isolation", "")})
	found, err := leftovers(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range found {
		names = append(names, l.tenants[0]+" "+l.tenants[1])
	}
	slices.Sort(names)
	if want := []string{
		"verify-a-aaaaaa verify-b-aaaaaa", "verify-a-bbbbbb verify-b-bbbbbb", "verify-a-cccccc verify-b-cccccc",
	}; !slices.Equal(names, want) {
		t.Errorf("found %v; want %v", names, want)
	}
	if run := TemporaryTenants(); temporaryTenant.FindStringSubmatch(run[0]) == nil ||
		secondTenant+run[0][len(firstTenant):] != run[1] {
		t.Errorf("leftovers cannot find the tenants %v", run)
	}
}

// store is a server that stores created objects. If create is set, it is called first, and may
// respond to the request.
type store struct {
	mu      sync.Mutex
	objects map[string]map[string]any // by path
	writes  []string
	create  func(w http.ResponseWriter, r *http.Request) (handled bool)
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	s.mu.Lock()
	defer s.mu.Unlock()
	missing := func() {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound"}`))
	}
	switch {
	case r.Method == http.MethodPost:
		var object map[string]any
		if err := json.NewDecoder(r.Body).Decode(&object); err != nil {
			missing()
			return
		}
		meta, _ := object["metadata"].(map[string]any)
		name, _ := meta["name"].(string)
		s.writes = append(s.writes, "POST "+r.URL.Path)
		if s.create != nil && s.create(w, r) {
			if r.Header.Get("X-Stored") != "" {
				s.objects[r.URL.Path+"/"+name] = object
			}
			return
		}
		s.objects[r.URL.Path+"/"+name] = object
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(object)
	case r.Method == http.MethodDelete:
		s.writes = append(s.writes, "DELETE "+r.URL.Path[:strings.LastIndex(r.URL.Path, "/")])
		delete(s.objects, r.URL.Path)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
	case strings.HasSuffix(r.URL.Path, "/namespaces"), strings.HasSuffix(r.URL.Path, "/clusterroles"),
		strings.HasSuffix(r.URL.Path, "/clusterrolebindings"):
		items := []any{}
		for path, object := range s.objects {
			if strings.HasPrefix(path, r.URL.Path+"/") && strings.Count(path, "/") == strings.Count(r.URL.Path, "/")+1 {
				items = append(items, object)
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"items": items})
	case r.URL.Path == "/api":
		_, _ = w.Write([]byte(`{"kind":"APIVersions","versions":["v1"]}`))
	case r.URL.Path == "/apis":
		_, _ = w.Write([]byte(`{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`))
	case r.URL.Path == "/api/v1":
		var all []string
		for _, name := range required {
			all = append(all, fmt.Sprintf(`{"name":%q,"namespaced":true,"verbs":["get"]}`, name))
		}
		_, _ = fmt.Fprintf(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[%s]}`, strings.Join(all, ","))
	case s.objects[r.URL.Path] != nil:
		_ = json.NewEncoder(w).Encode(s.objects[r.URL.Path])
	default:
		missing()
	}
}

// admin returns the client configuration of the server's admin.
func (s *store) admin(t *testing.T) *rest.Config {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

const (
	roles      = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	bindings   = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	namespaces = "/api/v1/namespaces"
)

// TestRunCleansUp checks that Run returns an error and leaves no object if it cannot create the
// tenants' objects. The server denies the request or does not respond, or the run is
// interrupted. With an invalid tenant, Run creates nothing.
func TestRunCleansUp(t *testing.T) {
	refuse := func(path string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != path {
				return false
			}
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden",` +
				`"message":"is forbidden"}`))
			return true
		}
	}
	for name, c := range map[string]struct {
		second string
		create func(context.CancelFunc) func(http.ResponseWriter, *http.Request) bool
		wrote  bool
		err    string
	}{
		"ClusterRole denied": {
			"b",
			func(context.CancelFunc) func(http.ResponseWriter, *http.Request) bool { return refuse(roles) },
			false,
			"is forbidden",
		},
		"Namespace denied": {"b", func(context.CancelFunc) func(http.ResponseWriter, *http.Request) bool {
			return refuse(namespaces)
		}, true, "is forbidden"},
		"interrupted": {"b", func(stop context.CancelFunc) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == namespaces {
					stop()
				}
				return false
			}
		}, true, "context canceled"},
		"Namespace created, response lost": {"b", func(context.CancelFunc) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != namespaces {
					return false
				}
				r.Header.Set("X-Stored", "true")
				connection, _, err := http.NewResponseController(w).Hijack()
				return err == nil && connection.Close() == nil
			}
		}, true, ""},
		"invalid tenant": {
			"NO/", func(context.CancelFunc) func(http.ResponseWriter, *http.Request) bool { return nil }, false, `tenant "NO/"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			s := &store{objects: map[string]map[string]any{}, create: c.create(stop)}
			report, err := Run(ctx, Options{Admin: s.admin(t), Tenants: [2]string{"a", c.second}, Mode: installation.CompiledIn})
			stop()
			if report != nil || err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, %v; want %q", report, err, c.err)
			}
			if len(s.objects) > 0 || slices.Contains(s.writes, "POST "+bindings) != c.wrote {
				t.Errorf("remaining objects %v after %q", s.objects, s.writes)
			}
		})
	}
}

// TestCleanUp checks that a later run deletes the objects of a killed run, but not those of a run
// that may still be in progress.
func TestCleanUp(t *testing.T) {
	killed, stop := context.WithCancel(t.Context())
	defer stop()
	s := &store{objects: map[string]map[string]any{}}
	admin := s.admin(t)
	w, err := newFixture(&Options{Admin: admin, Tenants: TemporaryTenants()})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.makeRights(killed); err != nil {
		t.Fatal(err)
	}
	for i := range w.tenants {
		if err := w.makeNamespace(killed, w.namespace(i), w.tenants[i]); err != nil {
			t.Fatal(err)
		}
	}
	for path, object := range s.objects {
		object["metadata"].(map[string]any)["creationTimestamp"] = time.Now().Add(-2 * time.Minute).UTC().Format(time.RFC3339)
		if labels, _ := object["metadata"].(map[string]any)["labels"].(map[string]any); labels[runLabel] == nil {
			t.Errorf("%s does not have the label of the run", path)
		}
	}
	if n, err := CleanUp(t.Context(), admin, time.Hour); n != 0 || err != nil || len(s.objects) != 5 {
		t.Errorf("run that may be in progress: removed %d, %v, %d objects remain", n, err, len(s.objects))
	}
	if n, err := CleanUp(t.Context(), admin, time.Minute); n != 1 || err != nil || len(s.objects) != 0 {
		t.Errorf("removed %d, %v, remaining objects %v", n, err, s.objects)
	}
	if n, err := CleanUp(t.Context(), admin, 0); n != 0 || err != nil {
		t.Errorf("no remaining objects: removed %d, %v", n, err)
	}
}

// TestEmptyServer checks that Run returns an error, and writes nothing, if a server responds to
// each request with an empty object.
func TestEmptyServer(t *testing.T) {
	var writes []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			writes = append(writes, r.Method+" "+r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	report, err := Run(t.Context(),
		Options{Admin: &rest.Config{Host: server.URL}, Tenants: TemporaryTenants(), Mode: installation.CompiledIn})
	if report != nil || err == nil || !strings.Contains(err.Error(), "does not list configmaps") || len(writes) > 0 {
		t.Errorf("%v, %v, wrote %q", report, err, writes)
	}
}
