// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
)

var errUnavailable = errors.New("the server is away")

// namespaceCache returns the Get function of a cache that contains namespaces with the given
// labels. The label "-" means no label. A lookup of a namespace named "away" fails.
func namespaceCache(labels map[string]string) func(string) (*corev1.Namespace, error) {
	all := map[string]*corev1.Namespace{}
	for name, label := range labels {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if label != "-" {
			ns.Labels = map[string]string{tenant.Label: label}
		}
		all[name] = ns
	}
	return func(name string) (*corev1.Namespace, error) {
		switch ns, ok := all[name]; {
		case ok:
			return ns, nil
		case name == "away":
			return nil, errUnavailable
		}
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
}

var namespaceLabels = map[string]string{
	"a--web":      "a",
	"b--web":      "b",
	"kube-system": "-",
	"bad":         "System",
}

func systemNames() *tenant.SystemNames {
	return &tenant.SystemNames{
		Users:         []string{"system:kube-scheduler"},
		UserPrefixes:  []string{"system:bootstrap:"},
		Groups:        []string{"system:masters", "system:nodes"},
		Organizations: []string{"kubeadm:cluster-admins"},
	}
}

func options(labels map[string]string) authz.Options {
	owners := authz.NewOwners(namespaceCache(labels), nil)
	return authz.Options{
		Subjects:         &authz.Subjects{Names: systemNames(), SystemNamespaces: []string{"kube-system"}, Owners: owners},
		Owners:           owners,
		UnboundPaths:     []string{"/healthz", "/readyz"},
		PrefixesReserved: true,
		Shared:           []schema.GroupResource{{Group: "storage.k8s.io", Resource: "storageclasses"}},
	}
}

// recorder is a delegate that records the attributes of the last request.
type recorder struct {
	reached  authorizer.Attributes
	decision authorizer.Decision
	err      error
}

func (r *recorder) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	r.reached = a
	return r.decision, "delegate", r.err
}

func (r *recorder) ConditionsAwareAuthorize(
	ctx context.Context, a authorizer.Attributes,
) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(r.Authorize(ctx, a))
}

func (r *recorder) EvaluateConditions(
	context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData,
) (authorizer.Decision, string, error) {
	return r.decision, "conditions", nil
}

func callerOf(id string) *user.DefaultInfo {
	return &user.DefaultInfo{
		Name:   "alice",
		Groups: []string{"dev", "tenant:" + id, user.AllAuthenticated},
		Extra:  map[string][]string{tenant.ExtraKey: {id}, tenant.SourceKey: {"tokens"}},
	}
}

func podRequest(u user.Info, verb, namespace string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		User:            u,
		Verb:            verb,
		Namespace:       namespace,
		Resource:        "pods",
		APIVersion:      "v1",
		Name:            "p",
		ResourceRequest: true,
	}
}

func TestDelegateDecisionIsReturned(t *testing.T) {
	failure := errors.New("webhook is away")
	for _, r := range []*recorder{
		{decision: authorizer.DecisionAllow},
		{decision: authorizer.DecisionDeny},
		{decision: authorizer.DecisionNoOpinion},
		{decision: authorizer.DecisionNoOpinion, err: failure},
		{decision: authorizer.DecisionAllow, err: failure},
	} {
		b := authz.New(options(namespaceLabels), r, nil)
		d, reason, err := b.Authorize(t.Context(), podRequest(callerOf("a"), "get", "a--web"))
		if d != r.decision || reason != "delegate" || !errors.Is(err, r.err) {
			t.Errorf("Authorize() = %v, %q, %v; want the delegate's %v, %v", d, reason, err, r.decision, r.err)
		}
	}
	d, reason, err := authz.New(options(namespaceLabels), nil, nil).
		Authorize(t.Context(), podRequest(callerOf("a"), "get", "a--web"))
	if d != authorizer.DecisionNoOpinion || reason != "" || err != nil {
		t.Errorf("without a delegate: %v, %q, %v; want no opinion", d, reason, err)
	}
}

// TestDenialsHaveNoError checks that a denial has a reason but no error, because kube-apiserver
// would print the error in a 500 response.
func TestDenialsHaveNoError(t *testing.T) {
	r := &recorder{decision: authorizer.DecisionAllow}
	b := authz.New(options(namespaceLabels), r, nil)
	for name, a := range map[string]authorizer.AttributesRecord{
		"failed owner lookup":  podRequest(callerOf("a"), "get", "away"),
		"failed caller lookup": podRequest(&user.DefaultInfo{Name: "system:serviceaccount:away:default"}, "get", "a--web"),
		"another tenant":       podRequest(callerOf("a"), "get", "b--web"),
		"no user":              podRequest(nil, "get", "a--web"),
	} {
		t.Run(name, func(t *testing.T) {
			d, reason, err := b.Authorize(t.Context(), a)
			if d != authorizer.DecisionDeny || reason == "" || err != nil || r.reached != nil {
				t.Errorf("Authorize() = %v, %q, %v; want a denial with a reason and no error", d, reason, err)
			}
			if c := b.ConditionsAwareAuthorize(t.Context(), a); !c.IsDeny() || r.reached != nil {
				t.Errorf("ConditionsAwareAuthorize() = %v; want a denial", c)
			}
		})
	}
}

func TestDelegateEvaluatesConditions(t *testing.T) {
	r := &recorder{decision: authorizer.DecisionAllow}
	b := authz.New(options(namespaceLabels), r, nil)
	if c := b.ConditionsAwareAuthorize(t.Context(), podRequest(callerOf("a"), "get", "a--web")); !c.IsAllow() {
		t.Errorf("ConditionsAwareAuthorize() = %v; want the delegate's decision", c)
	}
	if d, reason, err := b.EvaluateConditions(t.Context(), authorizer.ConditionsAwareDecision{}, nil); d != r.decision ||
		reason != "conditions" || err != nil {
		t.Errorf("EvaluateConditions() = %v, %q, %v; want the delegate's result", d, reason, err)
	}
}

// TestForeignAndMissingNamespacesGetSameAnswer checks that the boundary denies requests in foreign,
// missing and unowned namespaces for the same reason.
func TestForeignAndMissingNamespacesGetSameAnswer(t *testing.T) {
	b := authz.New(options(namespaceLabels), nil, nil)
	for _, verb := range []string{"get", "list", "create", "delete"} {
		_, want, _ := b.Authorize(t.Context(), podRequest(callerOf("a"), verb, "b--web"))
		for _, ns := range []string{"missing", "bad", "kube-system"} {
			if _, got, _ := b.Authorize(t.Context(), podRequest(callerOf("a"), verb, ns)); got != want {
				t.Errorf("%s in %s: %q; in another tenant's namespace: %q", verb, ns, got, want)
			}
		}
	}
}

// FuzzBoundary checks that the boundary never allows a request itself. It also checks in
// which namespaces the delegate gets a request of a tenant's caller: in the tenant's namespaces, in
// missing namespaces with the tenant's prefix, or in no namespace.
func FuzzBoundary(f *testing.F) {
	f.Add("alice", "", "a", "get", "", "pods", "", "a--web", "p", "", true)
	f.Add("system:serviceaccount:a--web:default", "", "", "list", "apps", "deployments", "scale", "b--web", "", "", true)
	f.Add("alice", "system:masters", "a", "impersonate", "", "users", "", "", "root", "", true)
	f.Add("alice", "", "a", "get", "", "", "", "", "", "/api/../metrics", false)
	f.Add("alice", "", "system", "impersonate-on:user-info:get", "", "namespaces", "finalize", "x", "y", "", true)
	// An HTTP method may be any token.
	f.Add("alice", "", "a", "impersonate", "", "users", "", "", "0", "/debug/pprof", false)
	f.Add("alice", "", "a", "impersonate", "", "users", "", "b--web", "0", "", true) // a user has no namespace
	// One field determines the decision about each of these requests.
	f.Add("alice", "", "a", "get", "", "namespaces", "status", "a--web", "a--web", "", true)
	f.Add("alice", "", "a", "get", "", "namespaces", "", "", "a--web", "", true)
	f.Add("alice", "", "a", "get", "example.com", "nodes", "", "a--web", "n", "", true)
	f.Add("alice", "", "a", "get", "", "nodes", "", "a--web", "n", "", true)
	f.Add("alice", "", "a", "get", "", "", "", "", "", "/apis", false)
	f.Add("alice", "tenant:a", "", "*", "*", "*", "*", "*", "*", "*", true)
	f.Add("alice", "", "a", "get", "", "pods", "", "a--new", "p", "", true)
	f.Add("alice", "", "a", "get", "", "namespaces", "", "a--web", "a--new", "", true)
	f.Fuzz(func(
		t *testing.T, name, group, id, verb, apiGroup, resource, subresource, namespace, object, path string, isResource bool,
	) {
		u := &user.DefaultInfo{Name: name, Groups: []string{group}}
		if id != "" {
			u.Extra = map[string][]string{tenant.ExtraKey: {id}}
		}
		r := &recorder{decision: authorizer.DecisionNoOpinion}
		o := options(namespaceLabels)
		a := authorizer.AttributesRecord{
			User:            u,
			Verb:            verb,
			APIGroup:        apiGroup,
			Resource:        resource,
			Subresource:     subresource,
			Namespace:       namespace,
			Name:            object,
			ResourceRequest: isResource,
			Path:            path,
		}
		d, reason, err := authz.New(o, r, nil).Authorize(t.Context(), a)
		// A server passes a pointer, for which the boundary has separate code. A review passes a
		// value.
		byPointer, pointersReason, _ := authz.New(o, &recorder{decision: authorizer.DecisionNoOpinion}, nil).
			Authorize(t.Context(), &a)
		if byPointer != d || pointersReason != reason {
			t.Fatalf("by value: %v, %q; by pointer: %v, %q", d, reason, byPointer, pointersReason)
		}
		if d == authorizer.DecisionAllow || err != nil || (d == authorizer.DecisionDeny) != (r.reached == nil) ||
			(d == authorizer.DecisionDeny) != (reason != "delegate") {
			t.Fatalf("Authorize() = %v, %q, %v, delegate called: %v", d, reason, err, r.reached != nil)
		}
		caller, err := o.Subjects.TenantOf(t.Context(), u)
		if r.reached == nil || caller.IsSystem() {
			return
		}
		if isResource { // the boundary may change the namespace of a review
			namespace, object = r.reached.GetNamespace(), r.reached.GetName()
		}
		// The boundary compares the verb in an impersonation check in the same way.
		single := verb == "create" || verb == "list" ||
			object != "" && slices.Contains([]string{"get", "update", "patch", "delete"}, verb)
		if rest, found := strings.CutPrefix(verb, "impersonate-on:"); found {
			_, on, _ := strings.Cut(rest, ":")
			single = on == "create" || on == "list" ||
				object != "" && slices.Contains([]string{"get", "update", "patch", "delete"}, on)
		}
		owned := func(ns string) bool {
			owner, err := o.Owners.Of(t.Context(), ns)
			_, exists := namespaceLabels[ns]
			return err == nil && !caller.IsZero() && (owner == caller || !exists && single && tenant.PrefixOwner(ns) == caller)
		}
		switch {
		case !isResource:
			discovery := path == "/api" || path == "/apis" || path == "/openapi" || strings.HasPrefix(path, "/api/") ||
				strings.HasPrefix(path, "/apis/") || strings.HasPrefix(path, "/openapi/")
			discovery = discovery || path == authz.FairUsePath || path == authz.AuditPath
			if path != "/healthz" && path != "/readyz" &&
				(caller.IsZero() || !discovery || slices.Contains(strings.Split(path, "/"), "..")) {
				t.Fatalf("path %q reached the delegate", path)
			}
		case err != nil || caller.IsZero():
			t.Fatalf("a caller without a tenant (%v) reached the delegate", err)
		case resource == "namespaces" && apiGroup == "":
			creates := verb == "create" && subresource == ""
			if !creates && !owned(object) && !owned(namespace) {
				t.Fatalf("namespace %q/%q reached the delegate", namespace, object)
			}
		case namespace != "":
			if !owned(namespace) {
				t.Fatalf("%s in %q reached the delegate", resource, namespace)
			}
		default:
			open := map[string]bool{
				"selfsubjectreviews":       true,
				"selfsubjectaccessreviews": true,
				"selfsubjectrulesreviews":  true,
				"storageclasses":           true,
				"users":                    true,
				"groups":                   true,
				"userextras":               true,
				"uids":                     true,
			}
			if !open[resource] {
				t.Fatalf("%s without a namespace reached the delegate", resource)
			}
		}
	})
}

// BenchmarkBoundary measures decisions with 100,000 namespaces and a delegate that does nothing.
func BenchmarkBoundary(b *testing.B) {
	labels := make(map[string]string, 100_000)
	list := make([]string, 0, 100_000)
	for i := range 100_000 {
		name := "tenant" + string(rune('a'+i%26)) + "--ns-" + itoa(i)
		labels[name] = "tenant" + string(rune('a'+i%26))
		list = append(list, name)
	}
	lister := newLister(b, labels)
	owners := authz.NewOwners(lister.Get, nil)
	o := options(nil)
	o.Owners, o.Subjects.Owners = owners, owners
	boundary := authz.New(o, nil, nil)
	u := callerOf("tenanta")
	for name, of := range map[string]func(i int) string{ // the minimum cost of a decision: the lookup
		"lister own namespaces":     func(i int) string { return list[i%3800*26] },
		"lister foreign namespaces": func(i int) string { return list[i%3800*26+1] },
		"lister one namespace":      func(int) string { return list[26*77] },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				_, _ = lister.Get(of(i))
			}
		})
	}
	// This is the minimum cost of a decision in one namespace. It includes reading the attributes,
	// the caller and the label.
	b.Run("least of a decision", func(b *testing.B) {
		var a authorizer.Attributes = &authorizer.AttributesRecord{
			User:            u,
			Verb:            "get",
			Namespace:       list[26*77],
			Resource:        "pods",
			Name:            "p",
			APIVersion:      "v1",
			ResourceRequest: true,
		}
		own := 0
		b.ReportAllocs()
		for b.Loop() {
			id, _ := tenant.Of(a.GetUser())
			ns, err := lister.Get(a.GetNamespace())
			if a.IsResourceRequest() && a.GetVerb() != "" && a.GetResource() != "" && a.GetSubresource() == "" &&
				a.GetAPIGroup() == "" && a.GetName() != "" &&
				err == nil && ns.Labels[tenant.Label] == id.String() {
				own++
			}
		}
		if own != b.N {
			b.Errorf("%d of %d requests are in the caller's namespace", own, b.N)
		}
	})
	inNamespace := func(of func(i int) string) func(*authorizer.AttributesRecord, int) {
		return func(a *authorizer.AttributesRecord, i int) { a.Namespace = of(i) }
	}
	for name, change := range map[string]func(a *authorizer.AttributesRecord, i int){
		"own namespaces":     inNamespace(func(i int) string { return list[i%3800*26] }),
		"foreign namespaces": inNamespace(func(i int) string { return list[i%3800*26+1] }),
		"one namespace":      inNamespace(func(int) string { return list[26*77] }),
		"cluster scope":      func(a *authorizer.AttributesRecord, _ int) { a.Resource = "nodes" },
		"path": func(a *authorizer.AttributesRecord, _ int) {
			a.ResourceRequest, a.Path = false, "/apis/apps/v1"
		},
	} {
		b.Run(name, func(b *testing.B) {
			// A server also creates the attributes just before the decision.
			a := &authorizer.AttributesRecord{
				User:            u,
				Verb:            "get",
				Resource:        "pods",
				Name:            "p",
				APIVersion:      "v1",
				ResourceRequest: true,
			}
			b.ReportAllocs()
			ctx := context.Background()
			for i := 0; b.Loop(); i++ {
				change(a, i)
				_, _, _ = boundary.Authorize(ctx, a)
			}
		})
	}
}
