package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cmd/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Remedy is the smallest change that would allow a request. It was tried: the stack allows with it.
type Remedy struct {
	// Text says what it is and who may do it, or why there is none.
	Text string `json:"text"`
	// YAML are the objects, or the line of the policy file. Empty where there is no remedy.
	YAML string `json:"yaml,omitempty"`
}

// remedy returns what would allow the request. Each proposal is tried.
func (q *Query) remedy(ctx context.Context, a *answer) (*Remedy, error) {
	r := &q.Request
	switch {
	case a.outcome.Reason == authz.ReasonRevoked:
		return &Remedy{Text: "the caller is revoked: take it out of the file of revocations"}, nil
	case a.outcome.Caller.IsZero():
		return &Remedy{Text: "whoever has no tenant may do next to nothing: have a source of the configuration give the caller one (of --as: --tenant)"}, nil
	case a.outcome.Reason == authz.ReasonSystemGroup:
		return &Remedy{Text: "a tenant's caller may not be in a group that begins system: take it out of the group"}, nil
	case strings.HasPrefix(r.Verb, "impersonate") && a.outcome.Verdict == authz.Denied:
		return &Remedy{Text: "nothing lets a tenant's caller impersonate anybody beyond its tenant"}, nil
	}
	if a.outcome.Verdict != authz.Denied {
		remedy, err := q.tryBinding(ctx, a.outcome.Caller)
		if remedy == nil && err == nil {
			remedy = &Remedy{Text: "no role can say this: " + a.reason}
		}
		return remedy, err
	}
	if owner := a.outcome.Owner; r.Namespace != "" && !owner.IsZero() && !owner.IsSystem() && r.Resource != "namespaces" {
		if remedy, err := q.tryGrant(ctx, a.outcome.Caller, owner); remedy != nil || err != nil {
			return remedy, err
		}
	}
	space := a.outcome.Owner
	if space.IsZero() {
		space = tenant.System()
	}
	remedy, err := q.tryLine(ctx, a.outcome.Caller, space)
	if remedy == nil && err == nil {
		remedy = &Remedy{Text: "nothing opens this to tenants: " + string(a.outcome.Reason)}
	}
	return remedy, err
}

// allowedWith reports whether the stack allows the request under a configuration, with further objects.
func (q *Query) allowedWith(ctx context.Context, config *v1alpha1.Settings, more ...runtime.Object) (bool, error) {
	changed, err := q.Snapshot.With(more...)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := q.stack(ctx, config, changed)
	if err != nil {
		return false, err
	}
	return q.ask(ctx, s).decision == authorizer.DecisionAllow, nil
}

// names returns the names that a rule for the request is limited to: none for what names no object.
func (q *Query) names() []string {
	if q.Request.Name == "" || q.Request.Verb == "create" && q.Request.Subresource == "" {
		return nil
	}
	return []string{q.Request.Name}
}

func (q *Query) resource() string {
	if q.Request.Subresource != "" {
		return q.Request.Resource + "/" + q.Request.Subresource
	}
	return q.Request.Resource
}

// name returns a name for what is proposed.
func (q *Query) name() string {
	r := &q.Request
	words := []string{r.Verb, r.Resource, r.Subresource}
	if !r.ResourceRequest {
		words = []string{r.Verb, "path"}
	}
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
	return strings.ToLower(strings.NewReplacer(":", "-", "*", "any", "/", "-").Replace(strings.Join(words, "-")))
}

// tryBinding proposes a role with just the one rule, and its binding.
func (q *Query) tryBinding(ctx context.Context, caller tenant.ID) (*Remedy, error) {
	r := &q.Request
	rule := rbacv1.PolicyRule{Verbs: []string{r.Verb}, APIGroups: []string{r.APIGroup}, Resources: []string{q.resource()}, ResourceNames: q.names()}
	if !r.ResourceRequest {
		rule = rbacv1.PolicyRule{Verbs: []string{r.Verb}, NonResourceURLs: []string{r.Path}}
	}
	subject := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: q.User.GetName()}
	if namespace, name, err := serviceaccount.SplitUsername(q.User.GetName()); err == nil {
		subject = rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	}
	meta := metav1.ObjectMeta{Name: q.name(), Namespace: r.Namespace}
	if r.Namespace != "" && r.Resource != "namespaces" {
		const who = "a role with just this rule, and its binding; whoever may do it himself in the namespace can make them"
		return q.tried(ctx, who, &rbacv1.Role{TypeMeta: typeMeta("Role"), ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}},
			&rbacv1.RoleBinding{TypeMeta: typeMeta("RoleBinding"), ObjectMeta: meta, Subjects: []rbacv1.Subject{subject},
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}})
	}
	meta.Namespace = ""
	role := &rbacv1.ClusterRole{TypeMeta: typeMeta("ClusterRole"), ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}
	binding := &rbacv1.ClusterRoleBinding{TypeMeta: typeMeta("ClusterRoleBinding"), ObjectMeta: meta, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name}}
	const who = "a role with just this rule, and its binding; the cluster's admin can make them"
	if caller.IsSystem() || subject.Kind == rbacv1.ServiceAccountKind {
		return q.tried(ctx, who, role, binding)
	}
	limited := binding.DeepCopy()
	limited.Annotations = map[string]string{tenant.ScopeAnnotation: caller.String()}
	remedy, err := q.tried(ctx, who+"; the annotation keeps it to the tenant's spaces where the server's RBAC evaluator is Indexed: without it users of that name of every tenant are bound, the system tenant's included", role, limited)
	if remedy != nil || err != nil {
		return remedy, err
	}
	return q.tried(ctx, who+"; users of that name of every tenant are bound by it, the system tenant's included", role, binding)
}

// tried returns a remedy if the stack allows the request with the role and the binding.
func (q *Query) tried(ctx context.Context, text string, role, binding runtime.Object) (*Remedy, error) {
	allowed, err := q.allowedWith(ctx, q.Config, role, binding)
	if err != nil || !allowed {
		return nil, err
	}
	yaml, err := output.Documents(role, binding)
	return &Remedy{text, yaml}, err
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

// tryGrant proposes an AccessGrant in the owner's namespace; nil where none can say this.
func (q *Query) tryGrant(ctx context.Context, caller, owner tenant.ID) (*Remedy, error) {
	r := &q.Request
	g := &v1alpha1.AccessGrant{
		TypeMeta:   metav1.TypeMeta{APIVersion: tenant.Domain + "/v1alpha1", Kind: v1alpha1.KindAccessGrant},
		ObjectMeta: metav1.ObjectMeta{Name: q.name(), Namespace: r.Namespace},
		Spec: v1alpha1.AccessGrantSpec{From: v1alpha1.AccessGrantFrom{Tenant: caller.String()},
			To: []v1alpha1.AccessGrantRule{{APIGroups: []string{r.APIGroup}, Resources: []string{q.resource()}, Verbs: []string{r.Verb}, ResourceNames: q.names()}}},
	}
	if namespace, name, err := serviceaccount.SplitUsername(q.User.GetName()); err == nil {
		g.Spec.From.ServiceAccounts = []v1alpha1.ServiceAccountName{{Namespace: namespace, Name: name}}
	} else {
		g.Spec.From.Users = []string{q.User.GetName()}
	}
	text, err := output.Documents(g)
	if err != nil {
		return nil, err
	}
	g.Spec.Grantor = &v1alpha1.AccessGrantor{Owner: owner.String(), Tenant: owner.String(), User: "an admin"} // as the server will
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(g)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: object}
	if _, err := v1alpha1.AccessGrantOf(u); err != nil {
		return nil, nil // which says what no grant may
	}
	allowed, err := q.allowedWith(ctx, q.Config, u)
	if err != nil || !allowed {
		return nil, err
	}
	return &Remedy{fmt.Sprintf("an AccessGrant, which somebody of tenant %s can make who may write accessgrants and may do this himself; it counts at the server's own address, not on a tenant's path", owner), text}, nil
}

// tryLine proposes a line of the policy file; nil where none can say this.
func (q *Query) tryLine(ctx context.Context, caller, space tenant.ID) (*Remedy, error) {
	r := &q.Request
	if r.Subresource != "" || q.User.GetName() == "*" {
		return nil, nil // a line is about a resource with all its subresources, and "*" is everybody
	}
	spec := map[string]any{"user": q.User.GetName(), "tenant": caller.String(), "space": space.String()}
	if r.ResourceRequest {
		spec["apiGroup"], spec["resource"], spec["namespace"] = r.APIGroup, r.Resource, r.Namespace
		if r.Namespace == "" {
			spec["namespace"] = "*"
		}
	} else {
		spec["nonResourcePath"] = r.Path
	}
	if r.IsReadOnly() {
		spec["readonly"] = true
	}
	line, err := json.Marshal(map[string]any{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": spec})
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp("", "policy-*.jsonl")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.Write(append(line, '\n'))
	if err := errors.Join(err, file.Close(), reload.Whole(file.Name())); err != nil {
		return nil, err
	}
	config := *q.Config
	config.Authorization.ABAC = &v1alpha1.ABAC{Path: file.Name()}
	allowed, err := q.allowedWith(ctx, &config)
	if err != nil || !allowed {
		return nil, err
	}
	return &Remedy{"a line of the policy file (authorization.abac.path), which the cluster's admin writes; it opens every verb (or with readonly every read) on all objects of the resource, its subresources included, in that space; it counts at the server's own address, not on a tenant's path", string(line) + "\n"}, nil
}
