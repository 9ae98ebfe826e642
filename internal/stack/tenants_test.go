// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	"github.com/kubetenant/kubetenant/cluster/publication"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// fakeTenants is a fake [lookup.Tenants]. It maps tenant IDs to the access of their callers.
type fakeTenants map[string]authz.Access

func (o fakeTenants) Access(id tenant.ID) authz.Access {
	if access, known := o[id.String()]; known {
		return access
	}
	return authz.AccessNone
}

// removedTenant is a tenant whose deletion was canceled while its access was Closed.
const removedTenant = "taken-back"

func (o fakeTenants) AccessWithoutTenant(id tenant.ID) authz.Access {
	if id.String() == removedTenant {
		return authz.AccessClosed
	}
	return authz.AccessOpen
}

func (o fakeTenants) Lineage(tenant.ID) tenant.Lineage { return tenant.Lineage{} }

func (o fakeTenants) Accepts(tenant.ID, time.Time) bool { return true }

func (o fakeTenants) NamespaceSettings(tenant.ID) v1alpha1.TenantNamespacesSpec {
	return v1alpha1.TenantNamespacesSpec{}
}

func (o fakeTenants) HoldsNamespaces(context.Context, tenant.ID) bool { return false }

func (o fakeTenants) Provisions(*publication.Rules, tenant.ID, string, schema.GroupResource, string) (bool, error) {
	return false, nil
}

func (o fakeTenants) PublicationsFrom(string, string) ([]*publication.Publication, bool) {
	return nil, true
}

func (o fakeTenants) MemberRoles(tenant.ID) []string { return nil }

func (o fakeTenants) FairUse(tenant.ID) v1alpha1.FairUse { return v1alpha1.FairUse{} }

// Admins implements [lookup.Tenants].
func (o fakeTenants) Admins(tenant.ID) []rbacv1.Subject { return nil }

func (o fakeTenants) BelongsTo(name string, id tenant.ID) bool { return name == id.ObjectName() }

// newRequireTenantStack returns a stack with the given setting of requireTenant.
func newRequireTenantStack(
	ctx context.Context, t *testing.T, required configv1alpha1.RequireTenant, c lookup.Parts,
) (*stack.Stack, error) {
	t.Helper()
	c.Owners = authz.NewOwners(func(string) (*corev1.Namespace, error) {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), "")
	}, nil)
	settings := &configv1alpha1.Settings{}
	settings.Authorization.RequireTenant = required
	return stack.New(ctx, settings, stack.Server{
		Cluster: c.Cluster(),
		Authorization: stack.Authorization{
			Authorizer: authorizer.AuthorizerFunc(func(
				context.Context, authorizer.Attributes,
			) (authorizer.Decision, string, error) {
				return authorizer.DecisionAllow, "", nil
			}),
		},
	})
}

// TestRequireTenant checks the decisions for callers of tenants with and without a Tenant object,
// for each setting of requireTenant. In a cluster without [lookup.Tenants], no tenant has a
// Tenant object.
func TestRequireTenant(t *testing.T) {
	known := fakeTenants{
		"open":    authz.AccessOpen,
		"reads":   authz.AccessReadOnly,
		"closed":  authz.AccessClosed,
		"unknown": authz.AccessUnknown,
	}
	for name, c := range map[string]struct {
		required configv1alpha1.RequireTenant
		tenants  lookup.Tenants
		want     map[string]authz.Reason
	}{
		"the default": {
			"",
			known,
			map[string]authz.Reason{
				"reads":       authz.ReasonReadOnly,
				"closed":      authz.ReasonClosed,
				removedTenant: authz.ReasonClosed,
				"unknown":     authz.ReasonStale,
			},
		},
		"Never": {
			configv1alpha1.RequireTenantNever,
			known,
			map[string]authz.Reason{
				"reads":       authz.ReasonReadOnly,
				"closed":      authz.ReasonClosed,
				removedTenant: authz.ReasonClosed,
				"unknown":     authz.ReasonStale,
			},
		},
		"Warn": {
			configv1alpha1.RequireTenantWarn,
			known,
			map[string]authz.Reason{
				"reads":       authz.ReasonReadOnly,
				"closed":      authz.ReasonClosed,
				removedTenant: authz.ReasonClosed,
				"unknown":     authz.ReasonStale,
			},
		},
		"Always": {
			configv1alpha1.RequireTenantAlways,
			known,
			map[string]authz.Reason{
				"none":        authz.ReasonNoTenantObject,
				removedTenant: authz.ReasonNoTenantObject,
				"reads":       authz.ReasonReadOnly,
				"closed":      authz.ReasonClosed,
				"unknown":     authz.ReasonStale,
			},
		},
		"Never without Tenants": {configv1alpha1.RequireTenantNever, nil, nil},
		"Warn without Tenants":  {configv1alpha1.RequireTenantWarn, nil, nil},
		"Always without Tenants": {
			configv1alpha1.RequireTenantAlways,
			nil,
			map[string]authz.Reason{
				"none":        authz.ReasonNoTenantObject,
				removedTenant: authz.ReasonNoTenantObject,
				"open":        authz.ReasonNoTenantObject,
				"reads":       authz.ReasonNoTenantObject,
				"closed":      authz.ReasonNoTenantObject,
				"unknown":     authz.ReasonNoTenantObject,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			stack, err := newRequireTenantStack(t.Context(), t, c.required, lookup.Parts{Tenants: c.tenants})
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{"open", "reads", "closed", "unknown", "none", removedTenant} {
				caller := &user.DefaultInfo{Name: "alice", Extra: map[string][]string{tenant.ExtraKey: {id}}}
				_, got, err := stack.Authorizer.Authorize(t.Context(), authorizer.AttributesRecord{
					User:            caller,
					Verb:            "create",
					Resource:        "namespaces",
					ResourceRequest: true,
				})
				if got != c.want[id].String() || err != nil {
					t.Errorf("tenant %s: %q, want %q, %v", id, got, c.want[id], err)
				}
			}
		})
	}
}

// TestRequireTenantNeedsTenantForEachOwner checks that requireTenant cannot be Always while a
// tenant that owns a namespace is known to have no Tenant.
func TestRequireTenantNeedsTenantForEachOwner(t *testing.T) {
	for name, c := range map[string]struct {
		without func() ([]string, bool)
		want    string
	}{
		"one": {
			func() ([]string, bool) { return []string{"acme"}, true },
			"authorization.requireTenant: may not be Always while 1 tenant owns namespaces but has no Tenant ([acme])",
		},
		"many": {
			func() ([]string, bool) { return strings.Fields("g f e d c b a"), true },
			"7 tenants own namespaces but have no Tenant ([a b c d e])",
		},
		"none":      {func() ([]string, bool) { return nil, true }, ""},
		"not known": {func() ([]string, bool) { return []string{"acme"}, false }, ""},
		"no IDs":    {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newRequireTenantStack(t.Context(), t, configv1alpha1.RequireTenantAlways,
				lookup.Parts{Tenants: fakeTenants{}, Namespaces: &lookuptest.Namespaces{IDs: c.without}})
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
			for _, other := range []configv1alpha1.RequireTenant{
				configv1alpha1.RequireTenantNever, configv1alpha1.RequireTenantWarn,
			} {
				if _, err := newRequireTenantStack(t.Context(), t, other,
					lookup.Parts{Tenants: fakeTenants{}, Namespaces: &lookuptest.Namespaces{IDs: c.without}}); err != nil {
					t.Errorf("%s, %s: %v", name, other, err)
				}
			}
		})
	}
}

// TestRequireTenantOnRunningServer checks that a running server accepts a change to Always once
// every owner of a namespace has a Tenant object. Sessions of tenants without a Tenant object then
// end. Later, the server accepts other changes even if a tenant has no Tenant object.
func TestRequireTenantOnRunningServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tenancy.yaml")
	write := func(text string) {
		t.Helper()
		text = "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\nauthorization: { " + text + " }\n"
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write("requireTenant: Never")
	var without atomic.Pointer[[]string]
	without.Store(&[]string{"ghost"})
	cluster := lookup.Parts{
		Tenants:    fakeTenants{"acme": authz.AccessOpen},
		Namespaces: &lookuptest.Namespaces{IDs: func() ([]string, bool) { return *without.Load(), true }},
	}
	stack, err := openStack(t, path, cluster)
	if err != nil {
		t.Fatal(err)
	}
	ghosts, acmes := startWatch(t, stack, "ghost"), startWatch(t, stack, "acme")
	mayGhost := func(want bool) func() error {
		return func() error {
			caller := &user.DefaultInfo{Name: "alice", Extra: map[string][]string{tenant.ExtraKey: {"ghost"}}}
			d, reason, _ := stack.Authorizer.Authorize(t.Context(), authorizer.AttributesRecord{
				User:            caller,
				Verb:            "create",
				Resource:        "namespaces",
				ResourceRequest: true,
			})
			if (d == authorizer.DecisionAllow) != want {
				return fmt.Errorf("%v, %q", d, reason)
			}
			return nil
		}
	}
	write("requireTenant: Always")
	time.Sleep(time.Second) // the rejection has no observable event
	if err := mayGhost(true)(); err != nil {
		t.Errorf("while ghost owns a namespace: %v", err)
	}
	without.Store(&[]string{})
	write("requireTenant: Always, olderTenantPaths: true")
	waittest.Until(t, mayGhost(false))
	waittest.Until(t, func() error {
		if ghosts.Err() == nil {
			return errors.New("the watch of a tenant without a Tenant continues")
		}
		return nil
	})
	if acmes.Err() != nil {
		t.Error("the watch of a tenant with a Tenant ended")
	}
	without.Store(&[]string{"ghost"})
	write("requireTenant: Always, mode: Shadow")
	waittest.Until(t, mayGhost(true))
}

// TestSessionsEndWithShadowMode checks that sessions that began in Shadow mode end when the mode
// changes to Enforce. A change to Shadow ends no session.
func TestSessionsEndWithShadowMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tenancy.yaml")
	write := func(mode string) {
		t.Helper()
		text := "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\nauthorization: { mode: " + mode + " }\n"
		if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	write("Shadow")
	stack, err := openStack(t, path, lookup.Parts{})
	if err != nil {
		t.Fatal(err)
	}
	open := startWatch(t, stack, "acme")
	write("Enforce")
	waittest.Until(t, func() error {
		if open.Err() == nil {
			return errors.New("the watch continues")
		}
		return nil
	})
	later := startWatch(t, stack, "acme")
	write("Shadow")
	waittest.Until(t, func() error {
		caller := &user.DefaultInfo{Name: "alice", Extra: map[string][]string{tenant.ExtraKey: {"acme"}}}
		d, reason, _ := stack.Authorizer.Authorize(t.Context(), authorizer.AttributesRecord{
			User:            caller,
			Verb:            "get",
			Resource:        "nodes",
			Name:            "n",
			ResourceRequest: true,
		})
		if d != authorizer.DecisionAllow {
			return errors.New(reason)
		}
		return nil
	})
	if later.Err() != nil {
		t.Error("a watch ended when Shadow mode began")
	}
}

// openStack returns the stack of the configuration at path.
func openStack(t *testing.T, path string, c lookup.Parts) (*stack.Stack, error) {
	c.Owners = authz.NewOwners(func(string) (*corev1.Namespace, error) {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), "")
	}, nil)
	return stack.Open(t.Context(), path, stack.Server{
		Cluster: c.Cluster(),
		Authorization: stack.Authorization{
			Authorizer: authorizer.AuthorizerFunc(func(
				context.Context, authorizer.Attributes,
			) (authorizer.Decision, string, error) {
				return authorizer.DecisionAllow, "", nil
			}),
		},
	})
}

// startWatch returns the context of a watch that a caller of a tenant runs until the test ends.
func startWatch(t *testing.T, stack *stack.Stack, id string) context.Context {
	t.Helper()
	begun, end := make(chan context.Context), make(chan struct{})
	info := &request.RequestInfo{
		IsResourceRequest: true,
		Verb:              "watch",
		APIVersion:        "v1",
		Resource:          "namespaces",
	}
	open := stack.WithTenant(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun <- r.Context()
		<-end
	}))
	handler := stack.WithRequestState(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := authz.RecordCaller(r.Context(),
			&user.DefaultInfo{Name: "alice", Extra: map[string][]string{tenant.ExtraKey: {id}}})
		if d, reason, _ := stack.Authorizer.Authorize(r.Context(), authorizer.AttributesRecord{
			User:            u,
			Verb:            "watch",
			APIVersion:      "v1",
			Resource:        "namespaces",
			ResourceRequest: true,
		}); d != authorizer.DecisionAllow {
			t.Errorf("the watch of %s: %v %q", id, d, reason)
		}
		open.ServeHTTP(w, r.WithContext(request.WithRequestInfo(request.WithUser(r.Context(), u), info)))
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		handler.ServeHTTP(httptest.NewRecorder(),
			httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/api/v1/namespaces?watch=true", http.NoBody))
	}()
	t.Cleanup(func() {
		close(end)
		<-done
	})
	return <-begun
}

// TestRequireTenantWarns checks that each tenant without a Tenant causes one warning per
// interval, and that other tenants cause none.
func TestRequireTenantWarns(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx := klog.NewContext(t.Context(), logger)
	stack, err := newRequireTenantStack(ctx, t, configv1alpha1.RequireTenantWarn,
		lookup.Parts{Tenants: fakeTenants{"open": authz.AccessOpen}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for _, id := range []string{"open", "one", "two", "system"} {
			caller := &user.DefaultInfo{Name: "alice", Extra: map[string][]string{tenant.ExtraKey: {id}}}
			_, _, _ = stack.Authorizer.Authorize(t.Context(), authorizer.AttributesRecord{
				User:            caller,
				Verb:            "create",
				Resource:        "namespaces",
				ResourceRequest: true,
			})
		}
	}
	sink, ok := logger.GetSink().(ktesting.Underlier)
	if !ok {
		t.Fatal("no buffer")
	}
	text := sink.GetBuffer().String()
	if strings.Count(text, "has no Tenant") != 2 || strings.Count(text, `tenant="one"`) != 1 ||
		strings.Count(text, `tenant="two"`) != 1 {
		t.Errorf("logged %s", text)
	}
}
