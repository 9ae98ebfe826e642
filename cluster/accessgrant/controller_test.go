// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessgrant_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/accessgrant"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var resource = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceAccessGrants)

// granted returns an accepted grant. With it, peter of tenant b lets alice of tenant a get pods in
// b--web.
func granted() *v1alpha1.AccessGrant {
	return &v1alpha1.AccessGrant{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: v1alpha1.KindAccessGrant},
		ObjectMeta: metav1.ObjectMeta{Namespace: "b--web", Name: "g"},
		Spec: v1alpha1.AccessGrantSpec{
			From:    v1alpha1.AccessGrantFrom{Tenant: "a", Users: []string{"alice"}},
			To:      []v1alpha1.AccessGrantRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}},
			Grantor: &v1alpha1.AccessGrantor{Tenant: "b", Owner: "b", User: "peter"},
		},
		Status: v1alpha1.AccessGrantStatus{
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "Accepted"}},
		},
	}
}

func unstructuredOf(t testing.TB, g *v1alpha1.AccessGrant) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(g)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

func clientOf(t testing.TB, grants ...*v1alpha1.AccessGrant) *fake.FakeDynamicClient {
	t.Helper()
	var all []runtime.Object
	for _, g := range grants {
		all = append(all, unstructuredOf(t, g))
	}
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{resource: "AccessGrantList"}, all...)
}

func controller(t testing.TB, client dynamic.Interface, now func() time.Time) *accessgrant.Controller {
	t.Helper()
	c, err := accessgrant.New(client, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// crossTenantRequests returns the request of alice of tenant a to get a pod in b--web.
func crossTenantRequests(t testing.TB) *authz.CrossTenantRequest {
	u := &user.DefaultInfo{Name: "alice"}
	return &authz.CrossTenantRequest{
		Caller: tenanttest.ID(t, "a"),
		User:   u,
		Owner:  authz.ObjectOwner{ID: tenanttest.ID(t, "b")},
		Attributes: &authorizer.AttributesRecord{
			User:            u,
			Verb:            "get",
			Resource:        "pods",
			Namespace:       "b--web",
			Name:            "p",
			ResourceRequest: true,
		},
	}
}

// TestValidGrants checks which grants allow a request. The grantor must belong to the system tenant
// or to the tenant that owns the namespace. The condition Accepted must not be False. It may be
// missing or Unknown, because admission checked the grant before it was stored.
func TestValidGrants(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		change func(*v1alpha1.AccessGrant)
		want   bool
	}{
		"unchanged":                       {func(*v1alpha1.AccessGrant) {}, true},
		"grantor of the system tenant":    {func(g *v1alpha1.AccessGrant) { g.Spec.Grantor.Tenant = "system" }, true},
		"no users":                        {func(g *v1alpha1.AccessGrant) { g.Spec.From.Users = nil }, false},
		"no grantor":                      {func(g *v1alpha1.AccessGrant) { g.Spec.Grantor = nil }, false},
		"grantor of the grantee's tenant": {func(g *v1alpha1.AccessGrant) { g.Spec.Grantor.Tenant = "a" }, false},
		"grantor of a third tenant":       {func(g *v1alpha1.AccessGrant) { g.Spec.Grantor.Tenant = "c" }, false},
		"grantor of a former owner": {
			func(g *v1alpha1.AccessGrant) { g.Spec.Grantor.Owner, g.Spec.Grantor.Tenant = "c", "c" }, false,
		},
		"invalid owner":            {func(g *v1alpha1.AccessGrant) { g.Spec.Grantor.Owner = "all" }, false},
		"grantor without a tenant": {func(g *v1alpha1.AccessGrant) { g.Spec.Grantor.Tenant = "" }, false},
		"invalid grantee":          {func(g *v1alpha1.AccessGrant) { g.Spec.From.Tenant = "A B" }, false},
		"no condition":             {func(g *v1alpha1.AccessGrant) { g.Status.Conditions = nil }, true},
		"refused": {
			func(g *v1alpha1.AccessGrant) { g.Status.Conditions[0].Status = metav1.ConditionFalse }, false,
		},
		"condition Unknown": {func(g *v1alpha1.AccessGrant) {
			g.Status.Conditions[0].Status = metav1.ConditionUnknown
		}, true},
		"being deleted": {func(g *v1alpha1.AccessGrant) {
			g.DeletionTimestamp, g.Finalizers = &metav1.Time{Time: now}, []string{"x/y"}
		}, false},
		"expired": {func(g *v1alpha1.AccessGrant) { g.Spec.Expires = &metav1.Time{Time: now} }, false},
		"expires in a second": {
			func(g *v1alpha1.AccessGrant) { g.Spec.Expires = &metav1.Time{Time: now.Add(time.Second)} }, true,
		},
		"for another user": {func(g *v1alpha1.AccessGrant) { g.Spec.From.Users = []string{"bob"} }, false},
		"for a group of the caller": {
			func(g *v1alpha1.AccessGrant) { g.Spec.From.Users, g.Spec.From.Groups = nil, []string{"dev"} }, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := granted()
			c.change(g)
			grants := controller(t, clientOf(t, g), func() time.Time { return now })
			if err := grants.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			asked := crossTenantRequests(t)
			asked.User = &user.DefaultInfo{Name: "alice", Groups: []string{"dev"}}
			if got, _ := grants.Grants().Allows(t.Context(), asked); got != c.want {
				t.Errorf("allowed %t", got)
			}
		})
	}
	// A service account is identified by its namespace and name.
	g := granted()
	g.Spec.From.Users, g.Spec.From.ServiceAccounts = nil,
		[]v1alpha1.ServiceAccountName{{Namespace: "a--ci", Name: "robot"}}
	grants := controller(t, clientOf(t, g), nil)
	if err := grants.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"system:serviceaccount:a--ci:robot":  true,
		"system:serviceaccount:a--web:robot": false,
		"robot":                              false,
	} {
		t.Run(name, func(t *testing.T) {
			asked := crossTenantRequests(t)
			asked.User = &user.DefaultInfo{Name: name}
			if got, _ := grants.Grants().Allows(t.Context(), asked); got != want {
				t.Errorf("allowed %t", got)
			}
		})
	}
}

// rights is a fake authorizer of grantors. It allows every request unless none is set. If err is
// set, every check fails with it. as records the checks.
type rights struct {
	mu   sync.Mutex
	none bool
	err  error
	as   []string
}

func (r *rights) set(none bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.none, r.err = none, err
}

func (r *rights) authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, _ := tenant.Of(a.GetUser())
	r.as = append(r.as, id.String()+"/"+a.GetUser().GetName()+" "+a.GetVerb()+" "+a.GetResource()+" in "+a.GetNamespace())
	switch {
	case r.err != nil:
		return authorizer.DecisionNoOpinion, "", r.err
	case r.none:
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionAllow, "", nil
}

// running is a controller that runs in virtual time with a fake client.
type running struct {
	*accessgrant.Controller
	client  dynamic.Interface
	rights  *rights
	mu      sync.Mutex
	changes []string
}

func run(t *testing.T, client dynamic.Interface) *running {
	t.Helper()
	return runController(t, client, controller(t, client, nil))
}

func runController(t *testing.T, client dynamic.Interface, c *accessgrant.Controller) *running {
	t.Helper()
	r := &running{Controller: c, client: client, rights: &rights{}}
	ctx, stop := context.WithCancel(t.Context())
	var over sync.WaitGroup
	over.Go(func() {
		r.Run(ctx, authorizer.AuthorizerFunc(r.rights.authorize), func(namespace string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.changes = append(r.changes, namespace)
		})
	})
	t.Cleanup(func() {
		stop()
		over.Wait()
	})
	return r
}

// later waits for d in virtual time, until the controller is idle.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *running) read(t *testing.T) *v1alpha1.AccessGrant {
	t.Helper()
	u, err := r.client.Resource(resource).Namespace("b--web").Get(t.Context(), "g", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := accessgrant.Parse(u)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func (r *running) allows(t *testing.T) bool {
	t.Helper()
	ok, _ := r.Grants().Allows(t.Context(), crossTenantRequests(t))
	return ok
}

func (r *running) reported() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.changes)
}

// TestAcceptance checks that a grant is accepted if its grantor has the granted rights. The
// controller checks the rights with the grantor's name and tenant.
func TestAcceptance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := granted()
		g.Status = v1alpha1.AccessGrantStatus{}
		r := run(t, clientOf(t, g))
		later(time.Second)
		if !accessgrant.Accepted(r.read(t)) || !r.allows(t) {
			t.Errorf("not accepted: %+v", r.read(t).Status)
		}
		if want := "b/peter get pods in b--web"; !slices.Contains(r.rights.as, want) {
			t.Errorf("checked %v, want %s", r.rights.as, want)
		}
	})
}

// TestGrantorWithoutRights checks that a grant is refused after its grantor loses the rights, and
// accepted again after the grantor regains them. It is not refused while the rights cannot be
// checked.
func TestGrantorWithoutRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, clientOf(t, granted()))
		later(time.Second)
		if !r.allows(t) {
			t.Fatal("denied at first")
		}
		r.rights.set(false, errors.New("away"))
		later(5 * time.Minute)
		if !r.allows(t) {
			t.Error("denied although the rights cannot be checked")
		}
		r.rights.set(true, nil)
		later(5 * time.Minute)
		if r.allows(t) || !meta.IsStatusConditionFalse(r.read(t).Status.Conditions, v1alpha1.ConditionAccepted) {
			t.Errorf("still allowed: %+v", r.read(t).Status)
		}
		if !slices.Contains(r.reported(), "b--web") {
			t.Errorf("reported %v", r.reported())
		}
		r.rights.set(false, nil)
		later(5 * time.Minute)
		if !r.allows(t) {
			t.Error("not allowed again")
		}
	})
}

// TestBindingObservedAfterGrant checks that a new grant is not refused if the server observes the
// grantor's RoleBinding shortly after the grant.
func TestBindingObservedAfterGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, clientOf(t))
		later(time.Second)
		r.rights.set(true, nil)
		if _, err := r.client.Resource(resource).Namespace("b--web").Create(t.Context(),
			unstructuredOf(t, granted()), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		later(time.Second)
		r.rights.set(false, nil)
		later(5 * time.Minute)
		if !r.allows(t) || !accessgrant.Accepted(r.read(t)) {
			t.Errorf("refused: %+v", r.read(t).Status)
		}
	})
}

// TestChangesAreReported checks that a change of a grant is reported only if it changes the granted
// rights, and that a deletion is reported. It also checks that the status shows the last use and
// the expiration.
func TestChangesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := granted()
		g.Spec.Expires = &metav1.Time{Time: time.Now().Add(time.Hour)}
		r := run(t, clientOf(t, g))
		later(time.Second)
		write := func(change func(*v1alpha1.AccessGrant)) int {
			t.Helper()
			before := len(r.reported())
			g := r.read(t)
			change(g)
			if _, err := r.client.Resource(resource).Namespace("b--web").Update(t.Context(),
				unstructuredOf(t, g), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			later(time.Second)
			return len(r.reported()) - before
		}
		if n := write(func(g *v1alpha1.AccessGrant) { g.Labels = map[string]string{"x": "y"} }); n != 0 || !r.allows(t) {
			t.Errorf("label: reported %d times", n)
		}
		if n := write(func(g *v1alpha1.AccessGrant) { g.Spec.To[0].Verbs = []string{"list"} }); n == 0 || r.allows(t) {
			t.Errorf("other verbs: reported %d times", n)
		}
		if n := write(func(g *v1alpha1.AccessGrant) { g.Spec.To[0].Verbs = []string{"get"} }); n == 0 || !r.allows(t) {
			t.Errorf("original verbs: reported %d times", n)
		}
		later(3 * time.Minute) // the last use is written
		if r.read(t).Status.LastUsed == nil {
			t.Error("the status does not have the last use")
		}
		later(time.Hour)
		if r.allows(t) || !r.read(t).Status.Expired {
			t.Errorf("not expired: %+v", r.read(t).Status)
		}
		before := len(r.reported())
		if err := r.client.Resource(resource).Namespace("b--web").Delete(t.Context(),
			"g", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		later(time.Second)
		if len(r.reported()) == before {
			t.Error("the deletion is not reported")
		}
	})
}
