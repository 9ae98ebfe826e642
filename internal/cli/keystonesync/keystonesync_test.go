// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package keystonesync_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/authn/keystone"
	"github.com/kubetenant/kubetenant/cluster/projects"
	"github.com/kubetenant/kubetenant/internal/cli/keystonesync"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const projectID = "0123456789abcdef"

var now = time.Date(2026, time.November, 22, 12, 0, 0, 0, time.UTC)

// fixture is a fake cluster, with the clients that record each request.
type fixture struct {
	cluster keystonesync.Cluster
	kube    *kubefake.Clientset
	dynamic *dynamicfake.FakeDynamicClient
}

// newFixture returns a cluster with the given Tenants and namespaces. Each Tenant is decoded
// JSON.
func newFixture(t *testing.T, tenants []map[string]any, namespaces ...*corev1.Namespace) *fixture {
	t.Helper()
	var stored []runtime.Object
	for _, content := range tenants {
		u := &unstructured.Unstructured{Object: content}
		u.SetAPIVersion(v1alpha1.GroupVersion)
		u.SetKind(v1alpha1.KindTenant)
		stored = append(stored, u)
	}
	f := &fixture{
		kube: kubefake.NewClientset(),
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{
				v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants): "TenantList",
			}, stored...),
	}
	for _, ns := range namespaces {
		if err := f.kube.Tracker().Add(ns); err != nil {
			t.Fatal(err)
		}
	}
	f.cluster = keystonesync.Cluster{
		Kube:             f.kube,
		Dynamic:          f.dynamic,
		SystemNamespaces: []string{"acme--reserved"},
	}
	t.Cleanup(func() {
		for _, action := range slices.Concat(f.kube.Actions(), f.dynamic.Actions()) {
			if action.GetVerb() != "list" {
				t.Errorf("the preview sent %s %s", action.GetVerb(), action.GetResource().Resource)
			}
		}
	})
	return f
}

func tenantObject(name, id, annotation string) map[string]any {
	metadata := map[string]any{"name": name}
	if annotation != "" {
		metadata["annotations"] = map[string]any{tenant.KeystoneAnnotation: annotation}
	}
	return map[string]any{"metadata": metadata, "spec": map[string]any{"id": id}}
}

func namespace(name, owner, annotation string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{tenant.Label: owner}}}
	if annotation != "" {
		ns.Annotations = map[string]string{tenant.KeystoneAnnotation: annotation}
	}
	return ns
}

// contents returns the contents of a Keystone with the domains acme and globex. The domain acme
// has a project with a member.
func contents() *keystone.Contents {
	return &keystone.Contents{
		Domains: []keystone.Domain{{ID: "d1", Name: "acme", Enabled: true}, {ID: "d2", Name: "globex", Enabled: true}},
		Projects: []keystone.Project{{
			ID:       projectID,
			Name:     "web",
			DomainID: "d1",
			Enabled:  true,
		}},
		Roles:       []keystone.Role{{ID: "r1", Name: "member"}},
		Assignments: []keystone.Assignment{{RoleID: "r1", ProjectID: projectID}},
	}
}

func settings() *projects.Settings {
	return &projects.Settings{
		TenantOf: func(_, name string) (tenant.ID, error) { return tenant.Parse(name) },
		Roles:    map[string]string{"member": "edit"},
		Interval: time.Minute,
	}
}

// changes returns the changes in a report, one string for each.
func changes(r *keystonesync.Report) (all []string) {
	for i := range r.Plans {
		for _, c := range r.Plans[i].Changes {
			all = append(all, fmt.Sprintf("%s: %s %s", r.Plans[i].Tenant, c.Action, c.Name))
		}
	}
	return all
}

const (
	domainRecord  = `{"domain":"d1"}`
	projectRecord = `{"domain":"d1","project":"` + projectID +
		`","roles":[{"id":"r1","group":"role-id:` + projectID + `:r1","clusterRole":"edit"}]`
)

// TestPreview checks the changes that the leader would make, for several states of the cluster.
func TestPreview(t *testing.T) {
	const followed = "acme--web-01234567"
	acme := tenantObject("acme", "acme", domainRecord)
	for name, c := range map[string]struct {
		tenants    []map[string]any
		namespaces []*corev1.Namespace
		change     func(*projects.Settings, *keystone.Contents)
		want       []string
		without    []string
		skipped    []string
	}{
		"a new Tenant": {
			tenants: []map[string]any{tenantObject("acme", "acme", "")},
			want:    []string{"acme: update Tenant acme", "acme: create namespace " + followed},
			without: []string{"globex"},
		},
		"nothing to change": {
			tenants:    []map[string]any{acme},
			namespaces: []*corev1.Namespace{namespace(followed, "acme", projectRecord+"}")},
			without:    []string{"globex"},
		},
		"createTenants": {
			tenants:    []map[string]any{acme},
			namespaces: []*corev1.Namespace{namespace(followed, "acme", projectRecord+"}")},
			change:     func(s *projects.Settings, _ *keystone.Contents) { s.CreateTenants = true },
			want:       []string{"globex: create Tenant globex"},
		},
		"a project that is missing for long enough": {
			tenants: []map[string]any{acme},
			namespaces: []*corev1.Namespace{
				namespace(followed, "acme", projectRecord+`,"missingSince":"2026-11-20T00:00:00Z"}`),
			},
			change: func(s *projects.Settings, c *keystone.Contents) {
				s.DeleteNamespaces = true
				c.Projects, c.Assignments = nil, nil
			},
			want:    []string{"acme: delete namespace " + followed},
			without: []string{"globex"},
		},
		"a system namespace with the label of a tenant": {
			tenants:    []map[string]any{acme},
			namespaces: []*corev1.Namespace{namespace("acme--reserved", "acme", projectRecord+"}")},
			want:       []string{"acme: create namespace " + followed},
			without:    []string{"globex"},
		},
		"a namespace of another tenant": {
			tenants:    []map[string]any{acme},
			namespaces: []*corev1.Namespace{namespace("other", "initech", projectRecord+"}")},
			want:       []string{"acme: create namespace " + followed},
			without:    []string{"globex"},
		},
		"a Tenant that does not decode": {
			tenants: []map[string]any{{"metadata": map[string]any{"name": "acme"}, "spec": "broken"}},
			without: []string{"globex"},
			skipped: []string{"acme"},
		},
		"a Tenant whose name does not match its ID": {
			tenants: []map[string]any{tenantObject("other", "acme", domainRecord)},
			without: []string{"acme", "globex"},
		},
		"a domain of the system tenant, and a disabled one": {
			change: func(_ *projects.Settings, c *keystone.Contents) {
				c.Domains[0].Name = "system"
				c.Domains[1].Enabled = false
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, c.tenants, c.namespaces...)
			s, in := settings(), contents()
			if c.change != nil {
				c.change(s, in)
			}
			report, err := keystonesync.Preview(t.Context(), &f.cluster, s, in, now)
			if err != nil {
				t.Fatal(err)
			}
			if got := changes(report); !slices.Equal(got, c.want) {
				t.Errorf("changes %q; want %q", got, c.want)
			}
			if !slices.Equal(report.WithoutTenant, c.without) || !slices.Equal(report.Skipped, c.skipped) {
				t.Errorf("without Tenant %q, skipped %q; want %q, %q",
					report.WithoutTenant, report.Skipped, c.without, c.skipped)
			}
		})
	}
}

// TestPreviewWithoutRights checks that the error names the right that the caller needs.
func TestPreviewWithoutRights(t *testing.T) {
	for resource, want := range map[string]string{
		"tenants":    "you need the verb list on tenants.kubetenant.dev in the whole cluster",
		"namespaces": "you need the verb list on namespaces in the whole cluster",
	} {
		t.Run(resource, func(t *testing.T) {
			f := newFixture(t, nil)
			refuse := func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no"))
			}
			f.kube.PrependReactor("list", resource, refuse)
			f.dynamic.PrependReactor("list", resource, refuse)
			report, err := keystonesync.Preview(t.Context(), &f.cluster, settings(), contents(), now)
			if report != nil || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, %v; want %q", report, err, want)
			}
		})
	}
}

// TestPreviewOfAFailedPage checks that Preview returns an error if a later page of a list fails.
// With a partial list, Preview would return changes that the leader does not make.
func TestPreviewOfAFailedPage(t *testing.T) {
	f := newFixture(t, nil)
	calls := 0
	f.kube.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		if calls++; calls > 1 {
			return true, nil, apierrors.NewInternalError(errors.New("broken"))
		}
		first := &corev1.NamespaceList{ListMeta: metav1.ListMeta{Continue: "2"}}
		first.Items = append(first.Items, *namespace("acme--web", "acme", ""))
		return true, first, nil
	})
	report, err := keystonesync.Preview(t.Context(), &f.cluster, settings(), contents(), now)
	if report != nil || !apierrors.IsInternalError(err) || calls != 2 {
		t.Errorf("%v, %v after %d requests", report, err, calls)
	}
}

type reader func(context.Context) (*keystone.Contents, error)

func (r reader) Read(ctx context.Context) (*keystone.Contents, error) { return r(ctx) }

// TestRead checks that an error from Keystone contains the remedy, and that the error for an
// interrupt does not.
func TestRead(t *testing.T) {
	for cause, want := range map[error]string{
		keystone.ErrIncomplete:  "check that the service user has the role reader with system scope",
		keystone.ErrUnavailable: "check authURL, cloudsFile and the network",
	} {
		failed := fmt.Errorf("%w: domains", cause)
		got, err := keystonesync.Read(t.Context(), reader(func(context.Context) (*keystone.Contents, error) {
			return contents(), failed
		}))
		if got != nil || !errors.Is(err, cause) || !strings.Contains(err.Error(), "the leader would change nothing: "+want) {
			t.Errorf("%v, %v; want %q", got, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	got, err := keystonesync.Read(ctx, reader(func(context.Context) (*keystone.Contents, error) {
		cancel()
		return nil, keystone.ErrUnavailable
	}))
	if got != nil || !errors.Is(err, context.Canceled) || errors.Is(err, keystone.ErrUnavailable) {
		t.Errorf("interrupted: %v, %v", got, err)
	}
	if got, err := keystonesync.Read(t.Context(), reader(func(context.Context) (*keystone.Contents, error) {
		return contents(), nil
	})); err != nil || len(got.Domains) != 2 {
		t.Errorf("complete: %v, %v", got, err)
	}
}

// TestNames checks that a long list is shortened.
func TestNames(t *testing.T) {
	for want, all := range map[string][]string{
		"":                         nil,
		"a, b":                     {"a", "b"},
		"a, b, c, d, e and 2 more": {"a", "b", "c", "d", "e", "f", "g"},
	} {
		t.Run(want, func(t *testing.T) {
			if got := keystonesync.Names(all); got != want {
				t.Errorf("%q; want %q", got, want)
			}
		})
	}
}
