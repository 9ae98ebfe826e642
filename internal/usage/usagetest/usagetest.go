// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package usagetest provides a fake server for tests of TenantUsages.
package usagetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Server is a fake server with Tenants and TenantUsages. It supports the parts of server-side apply
// that the project uses for TenantUsages. It checks that objects are valid according to their
// CustomResourceDefinition.
type Server struct {
	*dynamicfake.FakeDynamicClient
	tb testing.TB

	mu      sync.Mutex
	created int
	owned   map[string][]string // names of server entries, keyed by the names of the object and the field manager
	writes  int
	fail    error
}

// Usages returns the resource of TenantUsages.
func Usages() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantUsages)
}

// New returns a server without objects.
func New(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{
		tb:    tb,
		owned: map[string][]string{},
		FakeDynamicClient: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{
				Usages(): "TenantUsageList",
				v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants): "TenantList",
			}),
	}
	s.PrependReactor("patch", v1alpha1.ResourceTenantUsages, s.apply)
	s.PrependReactor("delete", v1alpha1.ResourceTenantUsages, s.remove)
	return s
}

// Fail makes writes fail with the given error. If err is nil, writes succeed again.
func (s *Server) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// Writes returns the number of writes that succeeded.
func (s *Server) Writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// AddTenant creates a Tenant with the given name and UID.
func (s *Server) AddTenant(name, uid string) {
	s.tb.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"id": name}}}
	u.SetAPIVersion(v1alpha1.GroupVersion)
	u.SetKind(v1alpha1.KindTenant)
	u.SetName(name)
	u.SetUID(types.UID(uid))
	gvr := v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)
	_ = s.Tracker().Delete(gvr, "", name)
	if err := s.Tracker().Create(gvr, u, ""); err != nil {
		s.tb.Fatal(err)
	}
}

// Usage returns the TenantUsage with the given name, or nil if there is none.
func (s *Server) Usage(name string) *v1alpha1.TenantUsage {
	s.tb.Helper()
	object, err := s.Tracker().Get(Usages(), "", name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		s.tb.Fatal(err)
	}
	u, err := typed.Decode[v1alpha1.TenantUsage](object.(*unstructured.Unstructured))
	if err != nil {
		s.tb.Fatal(err)
	}
	return u
}

func (s *Server) remove(action clienttesting.Action) (bool, runtime.Object, error) {
	d := action.(clienttesting.DeleteActionImpl)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return true, nil, s.fail
	}
	object, err := s.Tracker().Get(Usages(), "", d.GetName())
	if err != nil {
		return true, nil, err
	}
	preconditions := d.DeleteOptions.Preconditions
	if preconditions == nil || preconditions.UID == nil || *preconditions.UID != object.(metav1.Object).GetUID() {
		return true, nil, apierrors.NewConflict(Usages().GroupResource(), d.GetName(), fmt.Errorf("another UID"))
	}
	for key := range s.owned {
		if strings.HasPrefix(key, d.GetName()+" ") {
			delete(s.owned, key)
		}
	}
	s.writes++
	return true, nil, s.Tracker().Delete(Usages(), "", d.GetName())
}

func (s *Server) apply(action clienttesting.Action) (bool, runtime.Object, error) {
	p := action.(clienttesting.PatchActionImpl)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return true, nil, s.fail
	}
	manager := p.PatchOptions.FieldManager
	if p.GetPatchType() != types.ApplyPatchType || !strings.HasPrefix(manager, v1alpha1.UsageManager) ||
		len(manager) > 128 {
		s.tb.Errorf("%s by %q", p.GetPatchType(), manager)
	}
	var patch v1alpha1.TenantUsage
	if err := json.Unmarshal(p.GetPatch(), &patch); err != nil {
		return true, nil, err
	}
	stored := &v1alpha1.TenantUsage{}
	exists := true
	object, err := s.Tracker().Get(Usages(), "", p.GetName())
	switch {
	case apierrors.IsNotFound(err):
		exists = false
		s.created++
		stored.Name = p.GetName()
		stored.APIVersion, stored.Kind = v1alpha1.GroupVersion, v1alpha1.KindTenantUsage
		stored.ObjectMeta.UID = types.UID(fmt.Sprintf("made-%d", s.created))
	case err != nil:
		return true, nil, err
	default:
		if stored, err = typed.Decode[v1alpha1.TenantUsage](object.(*unstructured.Unstructured)); err != nil {
			return true, nil, err
		}
	}
	if uid := patch.ObjectMeta.UID; uid != "" && (!exists || uid != stored.ObjectMeta.UID) {
		return true, nil, apierrors.NewConflict(Usages().GroupResource(), p.GetName(), fmt.Errorf("another UID"))
	}
	s.merge(stored, &patch, p.GetName()+" "+manager)
	if stored.Tenant == "" || len(stored.Servers) > 100 {
		return true, nil, apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindTenantUsage).GroupKind(),
			p.GetName(), nil)
	}
	for i := range stored.Servers {
		if len(stored.Servers[i].Hours) > 49 {
			s.tb.Errorf("%d hours of %s", len(stored.Servers[i].Hours), stored.Servers[i].Name)
		}
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(stored)
	if err != nil {
		return true, nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	s.writes++
	if exists {
		return true, u, s.Tracker().Update(Usages(), u, "")
	}
	return true, u, s.Tracker().Create(Usages(), u, "")
}

// merge applies the fields of a manager and removes the fields that the manager no longer
// applies.
func (s *Server) merge(stored, patch *v1alpha1.TenantUsage, owner string) {
	var owns []string
	if patch.Tenant != "" {
		stored.Tenant, stored.UID = patch.Tenant, patch.UID
	}
	for i := range patch.Servers {
		name := patch.Servers[i].Name
		owns = append(owns, name)
		index := slices.IndexFunc(stored.Servers, func(o v1alpha1.ServerUsage) bool { return o.Name == name })
		if index < 0 {
			stored.Servers = append(stored.Servers, patch.Servers[i])
		} else {
			stored.Servers[index] = patch.Servers[i]
		}
	}
	if patch.Stored != nil {
		stored.Stored = patch.Stored
	}
	for _, name := range s.owned[owner] {
		if !slices.Contains(owns, name) {
			stored.Servers = slices.DeleteFunc(stored.Servers, func(o v1alpha1.ServerUsage) bool { return o.Name == name })
		}
	}
	s.owned[owner] = owns
}
