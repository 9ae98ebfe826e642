// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package managed_test

import (
	"fmt"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
)

// publishable returns the resources of copies. These are the built-in resources and one resource
// that only the configuration allows.
func publishable() []schema.GroupVersionResource {
	core := corev1.SchemeGroupVersion
	return []schema.GroupVersionResource{
		core.WithResource("configmaps"),
		core.WithResource("limitranges"),
		core.WithResource("resourcequotas"),
		core.WithResource("secrets"),
		networkingv1.SchemeGroupVersion.WithResource("networkpolicies"),
		rbacv1.SchemeGroupVersion.WithResource("roles"),
		rbacv1.SchemeGroupVersion.WithResource("rolebindings"),
		{Group: "cert-manager.io", Version: "v1", Resource: "certificates"},
	}
}

// copyOf returns an object with labels and annotations. With the server's labels, it is a copy of a
// Publication.
func copyOf(labels, annotations map[string]string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.Name, m.Namespace, m.Labels, m.Annotations = "x", "a--web", labels, annotations
	return m
}

// TestOnlyTheManagerWritesCopies checks, for each kind, that only [tenant.ManagerUser] writes the
// copies of Publications. The error for a copy names the Publication.
func TestOnlyTheManagerWritesCopies(t *testing.T) {
	ours := map[string]string{tenant.ManagedLabel: managed.SourcePublication, tenant.PublicationLabel: "ca"}
	half := map[string]string{tenant.PublicationLabel: "ca"}
	const belongs = "belongs to the Publication ca of the platform"
	object := func(labels map[string]string, hash string) *metav1.PartialObjectMetadata {
		return copyOf(labels, marks(hash, ""))
	}
	owned := object(ours, "h")
	owned.OwnerReferences = []metav1.OwnerReference{{Name: "y"}}
	finalized := object(ours, "h")
	finalized.Finalizers = []string{"x/y"}
	for name, c := range map[string]struct {
		was, is *metav1.PartialObjectMetadata
		sub, in string
		by      string
		want    string
	}{
		"forged":              {is: object(ours, "h"), want: "only the server may set the label kubetenant.dev/managed"},
		"forged by one label": {is: object(half, "h"), want: "may set the label " + tenant.PublicationLabel},
		"own object as copy":  {was: object(nil, ""), is: object(ours, "h"), want: "the label kubetenant.dev/managed"},
		"one label": {
			was:  object(nil, ""),
			is:   object(half, ""),
			want: "the label kubetenant.dev/publication",
		},
		"one label by status": {
			was:  object(nil, ""),
			is:   object(half, ""),
			sub:  "status",
			want: "the label kubetenant.dev/publication",
		},
		"changed":          {was: object(ours, "h"), is: object(ours, "g"), want: belongs},
		"without the hash": {was: object(ours, "h"), is: object(ours, ""), want: belongs},
		"unlabelled":       {was: object(ours, "h"), is: object(nil, "h"), want: belongs},
		"unlabelled by a status": {
			was:  object(ours, "h"),
			is:   object(nil, "h"),
			sub:  "status",
			want: belongs,
		},
		"with one label removed":         {was: object(ours, "h"), is: object(half, "h"), want: belongs},
		"with an owner":                  {was: object(ours, "h"), is: owned, want: belongs},
		"with a finalizer":               {was: object(ours, "h"), is: finalized, want: belongs},
		"deleted":                        {was: object(ours, "h"), want: belongs},
		"with one label, deleted":        {was: object(half, "h"), want: belongs},
		"deleted in a deleted namespace": {was: object(ours, "h"), in: "going", want: belongs},
		"by the controller of namespaces": {
			was: object(ours, "h"),
			in:  "going",
			by:  "system:serviceaccount:kube-system:namespace-controller",
		},
		"with its status":         {was: object(ours, "h"), is: object(ours, "h"), sub: "status"},
		"unchanged":               {was: object(ours, "h"), is: object(ours, "h")},
		"created by the manager":  {is: object(ours, "h"), by: tenant.ManagerUser},
		"changed by the manager":  {was: object(ours, "h"), is: object(ours, "g"), by: tenant.ManagerUser},
		"replaced by the manager": {was: object(nil, ""), is: object(ours, "g"), by: tenant.ManagerUser},
		"deleted by the manager":  {was: object(ours, "h"), by: tenant.ManagerUser},
		"another object":          {is: object(nil, "")},
		"another object, deleted": {was: object(nil, "")},
	} {
		t.Run(name, func(t *testing.T) {
			for _, resource := range publishable() {
				callers := []user.Info{
					&user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}},
					&user.DefaultInfo{Name: "alice", Groups: []string{"a"}},
				}
				if c.by != "" {
					callers = []user.Info{&user.DefaultInfo{Name: c.by}}
				}
				for _, by := range callers {
					w := write{
						by:       by,
						resource: resource,
						in:       "a--web",
						sub:      c.sub,
					}
					if c.in != "" {
						w.in = c.in
					}
					if c.was != nil {
						w.old = c.was.DeepCopy()
					}
					var is *metav1.PartialObjectMetadata
					if c.is != nil {
						is = c.is.DeepCopy()
						w.obj = is
					}
					p := (&publishing{rights: []string{"*"}}).plugin()
					err := p.Admit(t.Context(), w.attributes(), nil)
					if err == nil {
						err = p.Validate(t.Context(), w.attributes(), nil)
					}
					if got := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(got, c.want) {
						t.Errorf("%s %s by %s: %s, want %q", resource.Resource, name, by.GetName(), got, c.want)
					}
					if err == nil && is != nil && is.Annotations[tenant.PublishedAnnotation] !=
						c.is.Annotations[tenant.PublishedAnnotation] {
						t.Errorf("%s %s: the annotation of the manager changed", resource.Resource, name)
					}
				}
			}
		})
	}
}

// TestScaleOfCopies checks that a Scale is denied if its object has a reserved name. A Scale has
// no labels that show whether the object is a copy.
func TestScaleOfCopies(t *testing.T) {
	for name, want := range map[string]bool{"given": false, "x": true} {
		t.Run(name, func(t *testing.T) {
			for _, by := range []string{"alice", "root", tenant.ManagerUser} {
				a := admission.NewAttributesRecord(&autoscalingv1.Scale{}, &autoscalingv1.Scale{},
					autoscalingv1.SchemeGroupVersion.WithKind("Scale"), "a--web", name,
					corev1.SchemeGroupVersion.WithResource("configmaps"), "scale", admission.Update, nil, false,
					&user.DefaultInfo{Name: by})
				err := templatePlugin().Validate(t.Context(), a, nil)
				if (err == nil) != (want || by == tenant.ManagerUser) {
					t.Errorf("%s by %s: %v", name, by, err)
				}
			}
		})
	}
}

// TestGeneratedNamesAreReserved checks that a reserved name is also denied if the server generated
// it. The admission attributes do not contain a generated name.
func TestGeneratedNamesAreReserved(t *testing.T) {
	for name, ok := range map[string]bool{"given": false, "giv3n": true} {
		t.Run(name, func(t *testing.T) {
			obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, GenerateName: "giv"}}
			a := admission.NewAttributesRecord(obj, nil, corev1.SchemeGroupVersion.WithKind("ConfigMap"), "a--web", "",
				corev1.SchemeGroupVersion.WithResource("configmaps"), "", admission.Create, nil, false,
				&user.DefaultInfo{Name: "alice"})
			if err := templatePlugin().Validate(t.Context(), a, nil); (err == nil) != ok {
				t.Errorf("%v", err)
			}
		})
	}
}
