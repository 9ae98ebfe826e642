// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package managed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
)

// publishing is a fake cluster. It contains the permissions of the caller, the sources, and the
// sources that Publications name.
type publishing struct {
	// rights are the requests that are allowed. A request is a verb, a resource, a namespace and a
	// name, or "*" for every request.
	rights []string
	// rbac decides authorization requests instead of rights if it is set.
	rbac authorizer.Authorizer
	// hashed is the last object that was hashed.
	hashed *unstructured.Unstructured
	// requests is the number of authorization requests.
	requests int
	// sources are the contents of sources, keyed by namespace and name.
	sources map[string]*managed.Content
	// named are the sources that Publications name. replace and unknown apply to all of them.
	named            []string
	replace, unknown bool
	unavailable      bool // the authorizer, the owner and the source are unavailable
}

func (p *publishing) plugin() plugins.Interface {
	return managed.New(managed.Options{
		Subject: func(_ context.Context, u user.Info) (tenant.ID, error) {
			if slices.Contains(u.GetGroups(), "a") {
				return tenant.Parse("a")
			}
			return tenant.System(), nil
		},
		Terminating: func(namespace string) bool { return namespace == "going" },
		Authorizer:  authorizer.AuthorizerFunc(p.authorize),
		MayPublish:  func(r schema.GroupResource) bool { return r.Resource == "certificates" },
		Publishing: &managed.Publishing{
			Owner:    p.owner,
			Read:     readPublication,
			Resource: resourceOf,
			IsNamed: func(of schema.GroupResource, namespace, name string) (named, replace, known bool) {
				return slices.Contains(p.named, of.Resource+" "+namespace+"/"+name), p.replace, !p.unknown
			},
			Object: func(_ context.Context, of *managed.Source) (*unstructured.Unstructured, error) {
				if p.unavailable {
					return nil, errors.New("away")
				}
				if p.sources[of.Namespace+"/"+of.Name] == nil {
					return nil, nil
				}
				u := &unstructured.Unstructured{}
				u.SetGroupVersionKind(of.Kind)
				u.SetNamespace(of.Namespace)
				u.SetName(of.Name)
				return u, nil
			},
			Content: func(_ context.Context, u *unstructured.Unstructured) (*managed.Content, error) {
				p.hashed = u
				if u.GetName() == "kube-root-ca.crt" {
					return nil, errors.New("spec.from.name: excluded")
				}
				if known := p.sources[u.GetNamespace()+"/"+u.GetName()]; known != nil {
					return known, nil
				}
				return &managed.Content{Hash: fmt.Sprint(u.Object["data"])}, nil
			},
		},
	})
}

func (p *publishing) owner(_ context.Context, namespace string) (tenant.ID, error) {
	switch {
	case p.unavailable:
		return tenant.ID{}, errors.New("away")
	case strings.HasPrefix(namespace, "a--"):
		return tenant.Parse("a")
	case namespace == "missing":
		return tenant.ID{}, nil
	}
	return tenant.System(), nil
}

func (p *publishing) authorize(
	ctx context.Context, a authorizer.Attributes,
) (authorizer.Decision, string, error) {
	p.requests++
	if p.rbac != nil {
		return p.rbac.Authorize(ctx, a)
	}
	resource := a.GetResource()
	if sub := a.GetSubresource(); sub != "" {
		resource += "/" + sub
	}
	request := strings.TrimSpace(strings.Join([]string{a.GetVerb(), resource, a.GetNamespace(), a.GetName()}, " "))
	if !a.IsResourceRequest() {
		request = a.GetVerb() + " " + a.GetPath()
	}
	switch {
	case p.unavailable:
		return authorizer.DecisionAllow, "", errors.New("away") // the plugin must ignore a decision with an error
	case slices.Contains(p.rights, "*"), slices.Contains(p.rights, request),
		slices.Contains(p.rights, strings.TrimSpace(strings.TrimSuffix(request, a.GetName()))): // for every name
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func resourceOf(kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	resources := map[string]string{
		"ConfigMap":     "configmaps",
		"Secret":        "secrets",
		"Role":          "roles",
		"RoleBinding":   "rolebindings",
		"NetworkPolicy": "networkpolicies",
		"LimitRange":    "limitranges",
		"ResourceQuota": "resourcequotas",
		"Certificate":   "certificates",
		"X":             "secrets",
	}
	if r := resources[kind.Kind]; r != "" {
		return kind.GroupVersion().WithResource(r), nil
	}
	return schema.GroupVersionResource{}, errors.New("spec.from: objects of the kind cannot be published")
}

func readPublication(obj runtime.Object) (*managed.Publication, error) {
	u, _ := obj.(*unstructured.Unstructured)
	text := func(fields ...string) string {
		value, _, _ := unstructured.NestedString(u.Object, append([]string{"spec"}, fields...)...)
		return value
	}
	if text("onConflict") == "bad" {
		return nil, errors.New("spec.onConflict: must be Report or Replace")
	}
	kind := schema.FromAPIVersionAndKind(text("from", "apiVersion"), text("from", "kind"))
	resource, err := resourceOf(kind)
	if err != nil {
		return nil, err
	}
	return &managed.Publication{
		Source: managed.Source{
			Kind:      kind,
			Resource:  resource,
			Namespace: text("from", "namespace"),
			Name:      text("from", "name"),
		},
		Replace: text("onConflict") == "Replace",
	}, nil
}

var publicationsResource = schema.GroupVersionResource{
	Group:    tenant.Domain,
	Version:  "v1alpha1",
	Resource: "publications",
}

// published returns a Publication of the object "KIND NAMESPACE/NAME", with annotations.
func published(from, onConflict string, annotations map[string]string) *unstructured.Unstructured {
	kind, path, _ := strings.Cut(from, " ")
	namespace, name, _ := strings.Cut(path, "/")
	version := "v1"
	if strings.HasPrefix(kind, "Role") {
		version = rbacv1.SchemeGroupVersion.String()
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"from": map[string]any{
				"apiVersion": version,
				"kind":       kind,
				"namespace":  namespace,
				"name":       name,
			},
			"onConflict": onConflict,
		},
	}}
	u.SetName("x")
	u.SetAnnotations(annotations)
	return u
}

func hash(value string) map[string]string {
	return map[string]string{tenant.PublishedAnnotation: value}
}

var configMapRights = []string{"get configmaps platform x", "create configmaps", "update configmaps"}

// publicationCase is a write of a Publication. want is a part of the error. hash is the annotation
// after the write.
type publicationCase struct {
	publishing
	by         string
	old, obj   *unstructured.Unstructured
	sub        string
	want, hash string
}

// run calls Admit and Validate, and compares the error and the annotation with c.
func (c *publicationCase) run(t *testing.T, name string) {
	t.Helper()
	if c.by == "" {
		c.by = "root"
	}
	w := write{by: &user.DefaultInfo{Name: c.by}, resource: publicationsResource, obj: c.obj}
	w.sub = c.sub
	if c.old != nil {
		w.old = c.old
	}
	if c.by == "alice" {
		w.by = &user.DefaultInfo{Name: c.by, Groups: []string{"a"}}
	}
	p := c.plugin()
	err := p.Admit(t.Context(), w.attributes(), nil)
	if err == nil {
		err = p.Validate(t.Context(), w.attributes(), nil)
	}
	if got := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(got, c.want) {
		t.Errorf("%s: %s, want %q", name, got, c.want)
	}
	if got := c.obj.GetAnnotations()[tenant.PublishedAnnotation]; err == nil && got != c.hash {
		t.Errorf("%s: the annotation is %q, want %q", name, got, c.hash)
	}
}
