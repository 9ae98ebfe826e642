// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/accessgrant"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
)

// memoryServer is an in-memory API server for Namespaces and ConfigMaps with the filters and
// plugins of a stack. Every request that the boundary delegates is allowed. The cache of
// namespaces is updated by sync, and when a namespace is deleted. A namespace that is being
// deleted exists until finishDeletions. Only one goroutine may use the server at a time.
type memoryServer struct {
	t          testing.TB
	stack      *stack.Stack
	server     http.Handler
	settings   *configv1alpha1.Settings
	cancel     context.CancelFunc
	namespaces map[string]*corev1.Namespace // in the server
	cached     map[string]*corev1.Namespace // in the informer's cache
	objects    map[types.NamespacedName]*corev1.ConfigMap
	watches    []*memoryWatch
	grants     map[string]*accessgrant.Grant
	index      *accessgrant.Index
	now        time.Time
	created    int // number of created namespaces, used as UID
}

// memoryWatch is an active watch with its events so far.
type memoryWatch struct {
	namespaces bool
	namespace  string
	selector   labels.Selector
	ctx        context.Context
	stop       context.CancelFunc
	events     []string
}

func newMemoryServer(t testing.TB, settings *configv1alpha1.Settings) *memoryServer {
	t.Helper()
	m := &memoryServer{
		t:          t,
		settings:   settings,
		namespaces: map[string]*corev1.Namespace{},
		cached:     map[string]*corev1.Namespace{},
		objects:    map[types.NamespacedName]*corev1.ConfigMap{},
		grants:     map[string]*accessgrant.Grant{},
		index:      accessgrant.NewIndex(),
		now:        time.Unix(1_000_000, 0),
	}
	for _, name := range []string{"default", "kube-system"} {
		m.namespaces[name] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	m.sync()
	m.restart()
	return m
}

func (m *memoryServer) close() {
	for _, w := range m.watches {
		w.stop()
	}
	m.cancel()
}

// restart replaces the stack. Active sessions of the old stack continue.
func (m *memoryServer) restart() {
	if m.cancel != nil {
		m.cancel()
	}
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	get := func(from map[string]*corev1.Namespace) func(string) (*corev1.Namespace, error) {
		return func(name string) (*corev1.Namespace, error) {
			if ns, found := from[name]; found {
				return ns, nil
			}
			return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
		}
	}
	stack, err := stack.New(ctx, m.settings, stack.Server{
		Authentication: stack.Authentication{Credentials: stack.NoCredentials},
		Authorization:  stack.Authorization{Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer()},
		Cluster: (&lookup.Parts{
			Owners: authz.NewOwners(get(m.cached), func(_ context.Context, name string) (*corev1.Namespace, error) {
				return get(m.namespaces)(name)
			}),
			Resources: lookuptest.AllLabeled{},
			Grants: &accessgrant.Grants{
				Index: m.index,
				Now:   func() time.Time { return m.now },
				Live: func(_ context.Context, _ tenant.ID, namespace, name string) (*accessgrant.Grant, error) {
					return m.grants[namespace+"/"+name], nil
				},
			},
		}).Cluster(),
		Now: func() time.Time { return m.now },
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.stack = stack
	handler := stack.WithTenant(http.HandlerFunc(m.serve))
	handler = filters.WithAuthorization(handler, stack.Authorizer, scheme.Codecs)
	handler = impersonation.WithImpersonation(handler, stack.Authorizer, scheme.Codecs)
	authenticated := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, name, _ := strings.Cut(r.Header.Get("User"), "/")
		u := &user.DefaultInfo{
			Name:   name,
			Groups: []string{"tenant:" + id, user.AllAuthenticated},
			Extra:  map[string][]string{tenant.ExtraKey: {id}},
		}
		if tenant.IsServiceAccountName(name) {
			namespace, _ := tenant.ServiceAccountNamespace(name)
			u = &user.DefaultInfo{
				Name:   name,
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, user.AllAuthenticated},
			}
		}
		handler.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), authz.RecordCaller(r.Context(), u))))
	})
	m.server = stack.WithRequestState(filters.WithRequestInfo(authenticated,
		&request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}))
}

// sync updates the cache.
func (m *memoryServer) sync() {
	for _, name := range slices.Sorted(maps.Keys(m.namespaces)) {
		m.syncNamespace(name)
	}
}

// syncNamespace updates the cache for one namespace.
func (m *memoryServer) syncNamespace(name string) {
	current, exists := m.namespaces[name]
	cached, isCached := m.cached[name]
	switch {
	case !exists && isCached:
		delete(m.cached, name)
		m.stack.FollowNamespaces().OnDelete(cached)
	case exists && !isCached:
		m.cached[name] = current
		if m.stack != nil {
			m.stack.FollowNamespaces().OnAdd(current, false)
		}
	case exists && cached != current:
		m.cached[name] = current
		m.stack.FollowNamespaces().OnUpdate(cached, current)
	}
}

// finishDeletions removes the namespaces that are being deleted, and the objects in them.
func (m *memoryServer) finishDeletions() {
	for _, name := range slices.Sorted(maps.Keys(m.namespaces)) {
		ns := m.namespaces[name]
		if ns.DeletionTimestamp == nil {
			continue
		}
		for _, key := range m.keys() {
			if key.Namespace == name {
				m.notify("DELETED", m.objects[key])
				delete(m.objects, key)
			}
		}
		delete(m.namespaces, name)
		m.notify("DELETED", ns)
		m.syncNamespace(name)
	}
}

func (m *memoryServer) keys() []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(m.objects), func(a, b types.NamespacedName) int {
		return strings.Compare(a.String(), b.String())
	})
}

// grant creates a grant with which a tenant may read and watch the ConfigMaps in a namespace. The
// parameter to is the ID of the tenant. If it is empty, the grant is deleted.
func (m *memoryServer) grant(namespace, to string) {
	if g, found := m.grants[namespace+"/g"]; found && to == "" {
		delete(m.grants, namespace+"/g")
		m.index.Delete(namespace, g.Name)
	} else if id, err := tenant.Parse(to); err == nil {
		owner, _ := m.stack.NamespaceOwner(context.Background(), namespace)
		g = &accessgrant.Grant{
			Namespace: namespace,
			Name:      "g",
			Owner:     owner,
			Tenant:    id,
			Groups:    []string{id.Group()},
			Expires:   m.now.Add(time.Hour),
			Rules: []accessgrant.Rule{
				{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}},
			},
		}
		m.grants[namespace+"/g"] = g
		m.index.Set(g)
	}
	m.stack.GrantChanged(namespace)
}

// send sends a request and returns the response. If the request is a watch, it also returns the
// watch, which continues.
func (m *memoryServer) send(caller, as, method, target string, o *corev1.ConfigMap) (string, *memoryWatch) {
	var body []byte
	if o != nil {
		body, _ = json.Marshal(o) // a ConfigMap of strings always encodes
	}
	ctx, stop := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(string(body)))
	r.Header.Set("User", caller)
	if as != "" {
		r.Header.Set("Impersonate-User", as)
	}
	answer := httptest.NewRecorder()
	if !r.URL.Query().Has("watch") {
		defer stop()
		m.server.ServeHTTP(answer, r)
		return fmt.Sprint(answer.Code, " ", strings.TrimSpace(answer.Body.String())), nil
	}
	before, opened, done := len(m.watches), make(chan struct{}), make(chan struct{})
	r = r.WithContext(context.WithValue(ctx, openedKey{}, opened))
	go func() {
		defer close(done)
		m.server.ServeHTTP(answer, r)
	}()
	select {
	case <-opened:
		w := m.watches[before]
		w.stop = func() {
			stop()
			<-done
		}
		return "200 watching", w
	case <-done:
		stop()
		return fmt.Sprint(answer.Code, " ", strings.TrimSpace(answer.Body.String())), nil
	}
}

// openedKey is the context key of the channel that a watch closes after it has started.
type openedKey struct{}

// serve handles the requests of the API.
func (m *memoryServer) serve(w http.ResponseWriter, r *http.Request) {
	info, _ := request.RequestInfoFrom(r.Context())
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	switch {
	case err != nil: // the response below reports it
	case !info.IsResourceRequest || info.Subresource != "":
		err = apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path)
	case info.Verb == "watch":
		m.watch(r.Context(), info, selector)
		return
	case info.Verb == "list":
		for _, line := range m.list(info, selector) {
			_, _ = fmt.Fprintln(w, line)
		}
		return
	case info.Resource == "namespaces":
		err = m.serveNamespace(w, r, info)
	case info.Resource == "configmaps":
		err = m.serveConfigMap(w, r, info, selector)
	default:
		err = apierrors.NewNotFound(schema.GroupResource{Resource: info.Resource}, info.Name)
	}
	if err != nil {
		http.Error(w, err.Error(), int(apierrors.NewInternalError(err).ErrStatus.Code))
	}
}

func line(o metav1.Object) string {
	text := fmt.Sprintf("%s/%s %v", o.GetNamespace(), o.GetName(), o.GetLabels())
	if c, ok := o.(*corev1.ConfigMap); ok {
		text += fmt.Sprint(" ", c.Data)
	}
	if o.GetDeletionTimestamp() != nil {
		text += " ends"
	}
	return text
}

func (m *memoryServer) list(info *request.RequestInfo, selector labels.Selector) []string {
	var lines []string
	if info.Resource == "namespaces" {
		for _, name := range slices.Sorted(maps.Keys(m.namespaces)) {
			if ns := m.namespaces[name]; selector.Matches(labels.Set(ns.Labels)) && (info.Name == "" || info.Name == name) {
				lines = append(lines, line(ns))
			}
		}
		return lines
	}
	for _, key := range m.keys() {
		if o := m.objects[key]; selector.Matches(labels.Set(o.Labels)) &&
			(info.Namespace == "" || info.Namespace == key.Namespace) {
			lines = append(lines, line(o))
		}
	}
	return lines
}

// watch starts a watch and waits until the watch ends. The watch begins with the current objects.
func (m *memoryServer) watch(ctx context.Context, info *request.RequestInfo, selector labels.Selector) {
	w := &memoryWatch{
		namespaces: info.Resource == "namespaces",
		namespace:  info.Namespace,
		selector:   selector,
		ctx:        ctx,
		events:     m.list(info, selector),
	}
	m.watches = append(m.watches, w)
	if opened, ok := ctx.Value(openedKey{}).(chan struct{}); ok {
		close(opened)
	}
	<-ctx.Done()
}

// notify sends an event to all matching watches.
func (m *memoryServer) notify(event string, o metav1.Object) {
	_, isNamespace := o.(*corev1.Namespace)
	for _, w := range m.watches {
		if w.ctx.Err() == nil && w.namespaces == isNamespace && (w.namespace == "" || w.namespace == o.GetNamespace()) &&
			w.selector.Matches(labels.Set(o.GetLabels())) {
			w.events = append(w.events, event+" "+line(o))
		}
	}
}

// admit runs the stack's plugins.
func (m *memoryServer) admit(
	r *http.Request, info *request.RequestInfo, kind string, newObj, oldObj runtime.Object, operation admission.Operation,
) error {
	u, _ := request.UserFrom(r.Context())
	a := admission.NewAttributesRecord(newObj, oldObj, corev1.SchemeGroupVersion.WithKind(kind), info.Namespace, info.Name,
		corev1.SchemeGroupVersion.WithResource(info.Resource), "", operation, nil, false, u)
	o := admission.NewObjectInterfacesFromScheme(scheme.Scheme)
	for _, p := range m.stack.Admission {
		if mutator, ok := p.Interface.(admission.MutationInterface); ok && p.Handles(operation) {
			if err := mutator.Admit(r.Context(), a, o); err != nil {
				return err
			}
		}
	}
	for _, p := range m.stack.Admission {
		if validator, ok := p.Interface.(admission.ValidationInterface); ok && p.Handles(operation) {
			if err := validator.Validate(r.Context(), a, o); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *memoryServer) serveNamespace(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) error {
	oldNamespace := m.namespaces[info.Name]
	var sent corev1.ConfigMap // a Namespace has the same metadata
	if r.ContentLength > 0 {
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			return err
		}
	}
	switch {
	case info.Verb == "create":
		newNamespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sent.Name, Labels: sent.Labels}}
		if err := m.admit(r, info, "Namespace", newNamespace, nil, admission.Create); err != nil {
			return err
		}
		if m.namespaces[sent.Name] != nil {
			return apierrors.NewAlreadyExists(corev1.Resource("namespaces"), sent.Name)
		}
		m.created++
		newNamespace.UID = types.UID(fmt.Sprint(m.created))
		m.namespaces[sent.Name] = newNamespace
		m.notify("ADDED", newNamespace)
		_, _ = fmt.Fprintln(w, line(newNamespace))
		return nil
	case oldNamespace == nil:
		return apierrors.NewNotFound(corev1.Resource("namespaces"), info.Name)
	case info.Verb == "get":
		_, _ = fmt.Fprintln(w, line(oldNamespace))
		return nil
	}
	newNamespace := oldNamespace.DeepCopy()
	switch info.Verb {
	case "update":
		newNamespace.Labels = sent.Labels
	case "patch":
		newNamespace.Labels = labels.Merge(newNamespace.Labels, sent.Labels)
	case "delete":
		newNamespace.DeletionTimestamp = &metav1.Time{Time: m.now}
	default:
		return apierrors.NewMethodNotSupported(corev1.Resource("namespaces"), info.Verb)
	}
	operation := admission.Update
	if info.Verb == "delete" {
		operation = admission.Delete
	}
	if err := m.admit(r, info, "Namespace", newNamespace, oldNamespace, operation); err != nil {
		return err
	}
	m.namespaces[info.Name] = newNamespace
	m.notify("MODIFIED", newNamespace)
	if info.Verb == "delete" {
		m.syncNamespace(info.Name)
	}
	_, _ = fmt.Fprintln(w, line(newNamespace))
	return nil
}

func (m *memoryServer) serveConfigMap(
	w http.ResponseWriter, r *http.Request, info *request.RequestInfo, selector labels.Selector,
) error {
	sent := &corev1.ConfigMap{}
	if r.ContentLength > 0 {
		if err := json.NewDecoder(r.Body).Decode(sent); err != nil {
			return err
		}
	}
	key := types.NamespacedName{Namespace: info.Namespace, Name: info.Name}
	if info.Verb == "create" {
		key.Name = sent.Name
	}
	oldConfigMap := m.objects[key]
	switch info.Verb {
	case "create":
		sent.Namespace = info.Namespace
		if err := m.admit(r, info, "ConfigMap", sent, nil, admission.Create); err != nil {
			return err
		}
		if ns := m.namespaces[info.Namespace]; ns == nil || ns.DeletionTimestamp != nil {
			return apierrors.NewNotFound(corev1.Resource("namespaces"), info.Namespace)
		} else if oldConfigMap != nil {
			return apierrors.NewAlreadyExists(corev1.Resource("configmaps"), key.Name)
		}
		m.objects[key] = sent
		m.notify("ADDED", sent)
		_, _ = fmt.Fprintln(w, line(sent))
		return nil
	case "deletecollection":
		for _, key := range m.keys() {
			if o := m.objects[key]; (info.Namespace == "" || info.Namespace == key.Namespace) &&
				selector.Matches(labels.Set(o.Labels)) {
				delete(m.objects, key)
				m.notify("DELETED", o)
				_, _ = fmt.Fprintln(w, line(o))
			}
		}
		return nil
	}
	if oldConfigMap == nil {
		return apierrors.NewNotFound(corev1.Resource("configmaps"), info.Name)
	}
	newConfigMap := oldConfigMap.DeepCopy()
	switch info.Verb {
	case "get":
	case "delete":
		delete(m.objects, key)
		m.notify("DELETED", oldConfigMap)
	case "update", "patch":
		if info.Verb == "patch" {
			sent.Labels = labels.Merge(oldConfigMap.Labels, sent.Labels)
		}
		newConfigMap.Labels, newConfigMap.Data = sent.Labels, sent.Data
		if err := m.admit(r, info, "ConfigMap", newConfigMap, oldConfigMap, admission.Update); err != nil {
			return err
		}
		m.objects[key] = newConfigMap
		m.notify("MODIFIED", newConfigMap)
	default:
		return apierrors.NewMethodNotSupported(corev1.Resource("configmaps"), info.Verb)
	}
	_, _ = fmt.Fprintln(w, line(newConfigMap))
	return nil
}
