// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package uninstall_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
)

// apiServer is an API server in memory. It supports paged lists, patches, preconditions,
// finalizers and CustomResourceDefinitions. While compiledIn is true, it protects managed objects
// and denies requests from tenants' callers.
type apiServer struct {
	*httptest.Server
	t *testing.T

	mu         sync.Mutex
	objects    map[string]*unstructured.Unstructured // keyed by resource, namespace and name
	version    int
	writes     []string
	compiledIn bool
	notAdmin   bool
	// undeletable is the name of a CustomResourceDefinition that is never deleted.
	undeletable string
	// before is called before each write is stored. refuse reports whether to deny a request. Both
	// may be nil.
	before func(what string)
	refuse func(method, path string) bool
}

// served returns the resources that the server serves, keyed by group and version.
func served() map[string][]metav1.APIResource {
	all := metav1.Verbs{"list", "patch", "get", "delete"}
	resources := func(namespaced bool, names ...string) (list []metav1.APIResource) {
		for _, name := range names {
			list = append(list, metav1.APIResource{Name: name, Namespaced: namespaced, Verbs: all})
		}
		return list
	}
	return map[string][]metav1.APIResource{
		"v1": append(resources(true, "configmaps", "secrets", "services", "serviceaccounts", "pods",
			"events"), resources(false, "namespaces")...),
		"apps/v1":                resources(true, "deployments", "statefulsets"),
		"policy/v1":              resources(true, "poddisruptionbudgets"),
		"networking.k8s.io/v1":   resources(true, "networkpolicies"),
		"coordination.k8s.io/v1": resources(true, "leases"),
		"discovery.k8s.io/v1":    resources(true, "endpointslices"),
		"rbac.authorization.k8s.io/v1": append(
			resources(true, "rolebindings", "roles"),
			resources(false, "clusterrolebindings",
				"clusterroles")...),
		"apiextensions.k8s.io/v1": resources(false, "customresourcedefinitions"),
		"admissionregistration.k8s.io/v1": resources(
			false,
			"mutatingwebhookconfigurations",
			"validatingwebhookconfigurations",
			"validatingadmissionpolicies",
			"validatingadmissionpolicybindings",
		),
		"flowcontrol.apiserver.k8s.io/v1": resources(false, "flowschemas", "prioritylevelconfigurations"),
		"kubetenant.dev/v1alpha1": append(resources(false, "tenants", "retiredtenants", "tenantmembers", "tenantquotas",
			"namespacetemplates", "publications", "tenantusages"), resources(true, "accessgrants")...),
	}
}

func newServer(t *testing.T, text string) *apiServer {
	t.Helper()
	s := &apiServer{t: t, objects: map[string]*unstructured.Unstructured{}, compiledIn: true}
	for _, document := range strings.Split(text, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatalf("%v: %s", err, document)
		}
		s.put(u)
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// publish sets the configuration that the server publishes in a namespace.
func (s *apiServer) publish(namespace, text string) {
	u := s.objects["v1/configmaps "+namespace+"/kubetenant-configuration"]
	u.Object["data"] = map[string]any{"tenancy.yaml": "{apiVersion: kubetenant.dev/v1alpha1, kind: " +
		"TenancyConfiguration, " + text + "}"}
}

// plural returns the resource for the kind of an object, with its group and version.
func plural(u *unstructured.Unstructured) string {
	name := strings.ToLower(u.GetKind())
	if strings.HasSuffix(name, "y") {
		name = strings.TrimSuffix(name, "y") + "ie"
	}
	return u.GroupVersionKind().GroupVersion().String() + "/" + name + "s"
}

func (s *apiServer) put(u *unstructured.Unstructured) {
	s.version++
	u.SetResourceVersion(strconv.Itoa(s.version))
	if u.GetUID() == "" {
		u.SetUID(types.UID(fmt.Sprintf("uid-%d", s.version)))
	}
	s.objects[plural(u)+" "+u.GetNamespace()+"/"+u.GetName()] = u
}

// state returns all objects as text, without resource versions.
func (s *apiServer) state() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for key, u := range s.objects {
		u = u.DeepCopy()
		u.SetResourceVersion("")
		u.SetUID("")
		text, err := yaml.Marshal(u.Object)
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, key+"\n"+string(text))
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// names returns the names of the objects whose key contains the given text.
func (s *apiServer) names(containing string) (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.objects {
		if strings.Contains(key, containing) {
			_, name, _ := strings.Cut(key, " ")
			all = append(all, strings.TrimPrefix(name, "/"))
		}
	}
	slices.Sort(all)
	return all
}

func (s *apiServer) config() *rest.Config {
	return &rest.Config{
		Host:          s.URL,
		QPS:           -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"},
		Proxy:         func(*http.Request) (*url.URL, error) { return nil, nil },
	}
}

func answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	answer(w, code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Code:     int32(code),
		Reason:   reason,
		Message:  string(reason),
	})
}

// change calls f while no request is in progress.
func (s *apiServer) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := strings.Trim(r.URL.Path, "/")
	switch {
	case s.refuse != nil && s.refuse(r.Method, path):
		status(w, http.StatusForbidden, metav1.StatusReasonForbidden)
	case strings.HasSuffix(path, "accessreviews"):
		self := strings.Contains(path, "self")
		answer(w, http.StatusCreated, map[string]any{"status": map[string]any{
			"allowed": self && !s.notAdmin,
			"denied":  !self && s.compiledIn,
		}})
	case strings.HasPrefix(path, "tenants/") && s.compiledIn:
		answer(w, http.StatusBadRequest, &metav1.Status{
			Status:  metav1.StatusFailure,
			Code:    http.StatusBadRequest,
			Message: authz.MalformedTenantPath,
		})
	case path == "api":
		answer(w, http.StatusOK, &metav1.APIVersions{Versions: []string{"v1"}})
	case path == "apis":
		groups := &metav1.APIGroupList{}
		for gv := range served() {
			if group, version, grouped := strings.Cut(gv, "/"); grouped {
				v := metav1.GroupVersionForDiscovery{GroupVersion: gv, Version: version}
				groups.Groups = append(groups.Groups, metav1.APIGroup{
					Name:             group,
					Versions:         []metav1.GroupVersionForDiscovery{v},
					PreferredVersion: v,
				})
			}
		}
		answer(w, http.StatusOK, groups)
	default:
		s.serveObjects(w, r, strings.TrimPrefix(strings.TrimPrefix(path, "apis/"), "api/"))
	}
}

func (s *apiServer) serveObjects(w http.ResponseWriter, r *http.Request, path string) {
	for gv, resources := range served() {
		rest, ok := strings.CutPrefix(path, gv)
		if ok && rest == "" {
			answer(w, http.StatusOK, &metav1.APIResourceList{GroupVersion: gv, APIResources: resources})
			return
		}
		if !ok || !strings.HasPrefix(rest, "/") {
			continue
		}
		namespace, rest := "", strings.TrimPrefix(rest, "/")
		if parts := strings.SplitN(rest, "/", 3); len(parts) == 3 && parts[0] == "namespaces" {
			namespace, rest = parts[1], parts[2]
		}
		name, object, _ := strings.Cut(rest, "/")
		if slices.ContainsFunc(resources, func(r metav1.APIResource) bool { return r.Name == name }) &&
			s.isDefined(gv, name) {
			s.serveResource(w, r, gv+"/"+name+" ", namespace, object)
			return
		}
	}
	status(w, http.StatusNotFound, metav1.StatusReasonNotFound)
}

func (s *apiServer) isDefined(gv, resource string) bool {
	return !strings.HasPrefix(gv, tenant.Domain) ||
		s.objects["apiextensions.k8s.io/v1/customresourcedefinitions /"+resource+"."+tenant.Domain] != nil
}

func (s *apiServer) serveResource(w http.ResponseWriter, r *http.Request, resource, namespace, name string) {
	if name == "" {
		s.list(w, r, resource, namespace)
		return
	}
	key := resource + namespace + "/" + name
	u := s.objects[key]
	if u == nil {
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	if r.Method == http.MethodGet {
		answer(w, http.StatusOK, u.Object)
		return
	}
	if s.before != nil {
		s.before(r.Method + " " + key)
	}
	if _, protected := u.GetLabels()[tenant.ManagedLabel]; protected && s.compiledIn &&
		r.Header.Get("Impersonate-User") != tenant.ManagerUser {
		status(w, http.StatusForbidden, metav1.StatusReasonForbidden)
		return
	}
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		s.t.Errorf("%s %s: %v", r.Method, key, err)
	}
	of := "metadata"
	if r.Method == http.MethodDelete {
		of = "preconditions"
	}
	for field, current := range map[string]string{"uid": string(u.GetUID()), "resourceVersion": u.GetResourceVersion()} {
		if want, found, _ := unstructured.NestedString(body, of, field); found && want != current {
			status(w, http.StatusConflict, metav1.StatusReasonConflict)
			return
		}
	}
	s.writes = append(s.writes, r.Method+" "+key)
	s.write(r.Method, key, u, body)
	answer(w, http.StatusOK, u.Object)
}

func (s *apiServer) write(method, key string, u *unstructured.Unstructured, body map[string]any) {
	switch method {
	case http.MethodPut:
		s.put(&unstructured.Unstructured{Object: body})
	case http.MethodPatch:
		merge(u.Object, body)
		s.put(u)
		if u.GetDeletionTimestamp() != nil && len(u.GetFinalizers()) == 0 {
			delete(s.objects, key)
		}
	case http.MethodDelete:
		if u.GetName() == s.undeletable {
			return
		}
		resource, definition := strings.CutSuffix(u.GetName(), "."+tenant.Domain)
		for other, object := range s.objects {
			if definition && strings.HasPrefix(other, tenant.Domain+"/v1alpha1/"+resource+" ") {
				if len(object.GetFinalizers()) > 0 {
					s.t.Errorf("%s has finalizers that block the deletion of its definition", other)
				}
				delete(s.objects, other)
			}
		}
		if len(u.GetFinalizers()) > 0 {
			s.t.Errorf("%s was deleted although it has finalizers", key)
		}
		delete(s.objects, key)
	}
}

// merge applies a JSON merge patch (RFC 7396).
func merge(into, patch map[string]any) {
	for key, value := range patch {
		object, ok := value.(map[string]any)
		existing, had := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case ok && had:
			merge(existing, object)
		case !ok || len(object) > 0:
			into[key] = value
		}
	}
}

// page is the maximum number of objects in a page, even if the client sets a higher limit.
const page = 3

func (s *apiServer) list(w http.ResponseWriter, r *http.Request, resource, namespace string) {
	query := r.URL.Query()
	selector, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		s.t.Error(err)
	}
	var keys []string
	for key, u := range s.objects {
		if strings.HasPrefix(key, resource) && (namespace == "" || u.GetNamespace() == namespace) &&
			selector.Matches(labels.Set(u.GetLabels())) &&
			(query.Get("fieldSelector") == "" || query.Get("fieldSelector") == "metadata.name="+u.GetName()) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	meta := map[string]any{"resourceVersion": strconv.Itoa(s.version)}
	after := query.Get("continue")
	keys = slices.DeleteFunc(keys, func(key string) bool { return key <= after })
	if query.Get("limit") != "" && len(keys) > page {
		keys = keys[:page]
		meta["continue"] = keys[page-1]
	}
	items := make([]any, 0, len(keys))
	for _, key := range keys {
		items = append(items, s.objects[key].Object)
	}
	gv, kind := listKind(strings.TrimSpace(resource))
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		gv, kind = "meta.k8s.io/v1", "PartialObjectMetadataList"
		for i, item := range items {
			object, _ := item.(map[string]any)
			items[i] = map[string]any{"apiVersion": gv, "kind": "PartialObjectMetadata", "metadata": object["metadata"]}
		}
	}
	answer(w, http.StatusOK, map[string]any{
		"apiVersion": gv,
		"kind":       kind,
		"metadata":   meta,
		"items":      items,
	})
}

// listKind returns the group and version of a resource, and the kind of its lists.
func listKind(resource string) (gv, kind string) {
	at := strings.LastIndex(resource, "/")
	gv, singular := resource[:at], strings.TrimSuffix(resource[at+1:], "s")
	if strings.HasSuffix(singular, "ie") {
		singular = strings.TrimSuffix(singular, "ie") + "y"
	}
	version, _ := schema.ParseGroupVersion(gv)
	for kind := range scheme.Scheme.KnownTypes(version) {
		if strings.EqualFold(kind, singular+"List") {
			return gv, kind
		}
	}
	return gv, "CustomList"
}
