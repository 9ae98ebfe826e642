// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package binding_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/binding"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

type keys = map[string]string

// newPlugin returns the plugin for Farms, and for Applications of KubeVela. The user root belongs
// to the system tenant. The tenant of the user "nobody" is unknown. All other users belong to
// tenant a.
func newPlugin() plugins.Interface {
	return binding.New(binding.Options{
		Subject: func(_ context.Context, u user.Info) (tenant.ID, error) {
			switch u.GetName() {
			case "root":
				return tenant.System(), nil
			case "nobody":
				return tenant.ID{}, tenant.ErrUnbound
			}
			return tenant.Parse("a")
		},
		Owner: func(_ context.Context, namespace string) (tenant.ID, error) {
			switch namespace {
			case "kube-system":
				return tenant.System(), nil
			case "away":
				return tenant.System(), errors.New("away")
			}
			return tenant.Parse("a")
		},
		Kinds: map[schema.GroupKind]bool{
			{Group: "example.com", Kind: "Farm"}:         false,
			{Group: "core.oam.dev", Kind: "Application"}: true,
		},
	})
}

func farm(annotations keys, change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	u := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Farm", "spec": map[string]any{"size": "1"}},
	}
	u.SetName("f")
	u.SetAnnotations(maps.Clone(annotations))
	if change != nil {
		change(u)
	}
	return u
}

// write is a write of a Farm. By default, alice writes it in the namespace a--web.
type write struct {
	old, obj        *unstructured.Unstructured // if old is nil, the write is a create
	by              string
	groups          []string
	namespace, kind string
	subresource     string
}

func (r write) attributes() admission.Attributes {
	or := func(text, other string) string {
		if text == "" {
			return other
		}
		return strings.TrimPrefix(text, "-")
	}
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Farm"}
	if r.kind != "" {
		kind = schema.GroupVersionKind{Group: "core.oam.dev", Version: "v1", Kind: r.kind}
	}
	op, was := admission.Create, runtime.Object(nil)
	if r.old != nil {
		op, was = admission.Update, r.old
	}
	return admission.NewAttributesRecord(r.obj, was, kind, or(r.namespace, "a--web"), "f",
		schema.GroupVersionResource{Group: kind.Group, Version: "v1", Resource: "x"},
		r.subresource, op, nil, false, &user.DefaultInfo{Name: or(r.by, "alice"), Groups: r.groups})
}

func identity(text string) keys { return keys{tenant.IdentityAnnotation: text} }

func with(all ...keys) keys {
	out := keys{}
	for _, k := range all {
		maps.Copy(out, k)
	}
	return out
}

const (
	mine    = `{"user":"alice","tenant":"a"}`
	bobs    = `{"user":"bob","tenant":"a"}`
	nobodys = `{"tenant":"a"}`
	roots   = `{"user":"root","tenant":"system"}`
)

var takeIdentity = keys{tenant.TakeIdentityAnnotation: "true"}

// TestRecordedIdentity checks that an object gets the identity of the tenant's caller that creates
// or changes it. An object gets the identity of a caller of the system tenant only on request, or
// outside the tenants' namespaces.
func TestRecordedIdentity(t *testing.T) {
	sized := func(u *unstructured.Unstructured) { _ = unstructured.SetNestedField(u.Object, "2", "spec", "size") }
	for name, c := range map[string]struct {
		write
		want keys // nil if the write is denied
	}{
		"created":             {write{obj: farm(nil, nil)}, identity(mine)},
		"created, forged":     {write{obj: farm(identity(bobs), nil)}, identity(mine)},
		"created, requested":  {write{obj: farm(takeIdentity, nil)}, identity(mine)},
		"created by system":   {write{obj: farm(nil, nil), by: "root"}, identity(nobodys)},
		"requested by system": {write{obj: farm(takeIdentity, nil), by: "root"}, with(identity(roots), takeIdentity)},
		"created by system, invalid request": {
			write{obj: farm(keys{tenant.TakeIdentityAnnotation: "yes"}, nil), by: "root"}, identity(nobodys),
		},
		"created in a namespace of the system tenant": {
			write{obj: farm(nil, nil), by: "root", namespace: "kube-system"}, identity(roots),
		},
		"created without a namespace": {write{obj: farm(nil, nil), by: "root", namespace: "-"}, identity(roots)},
		"created, unknown owner":      {write{obj: farm(nil, nil), by: "root", namespace: "away"}, nil},
		"created, unknown caller":     {write{obj: farm(nil, nil), by: "nobody"}, nil},
		"changed": {
			write{old: farm(identity(bobs), nil), obj: farm(identity(bobs), sized)}, identity(mine),
		},
		"changed, no identity": {write{old: farm(nil, nil), obj: farm(nil, sized)}, identity(mine)},
		"changed by system": {
			write{old: farm(identity(bobs), nil), obj: farm(identity(bobs), sized), by: "root"}, identity(bobs),
		},
		"changed by system, no identity": {
			write{old: farm(nil, nil), obj: farm(nil, sized), by: "root"}, identity(nobodys),
		},
		"requested": {
			write{old: farm(identity(bobs), nil), obj: farm(with(identity(bobs), takeIdentity), nil), by: "root"},
			with(identity(roots), takeIdentity),
		},
		"requested by a tenant's caller": {
			write{old: farm(identity(bobs), nil), obj: farm(with(identity(bobs), takeIdentity), nil)}, identity(bobs),
		},
		"requested before": {
			write{
				old: farm(with(identity(bobs), takeIdentity), nil),
				obj: farm(with(identity(bobs), takeIdentity), sized),
				by:  "root",
			},
			identity(bobs),
		},
		"not changed": {
			write{old: farm(identity(bobs), nil), obj: farm(identity(bobs), nil)}, identity(bobs),
		},
		"not changed, no identity": {write{old: farm(nil, nil), obj: farm(nil, nil)}, keys{}},
		"not changed by system":    {write{old: farm(nil, nil), obj: farm(nil, nil), by: "root"}, keys{}},
		"another tool's annotation": {
			write{old: farm(with(identity(bobs), keys{binding.KubeVelaUser: "x"}), nil), obj: farm(identity(bobs), nil)},
			identity(bobs),
		},
		"not changed, forged": {
			write{old: farm(identity(bobs), nil), obj: farm(identity(mine), nil)}, identity(bobs),
		},
		"not changed, identity added":   {write{old: farm(nil, nil), obj: farm(identity(mine), nil)}, keys{}},
		"not changed, identity omitted": {write{old: farm(identity(bobs), nil), obj: farm(nil, nil)}, identity(bobs)},
		"status subresource": {
			write{old: farm(identity(bobs), nil), obj: farm(identity(bobs), sized), subresource: "status"}, identity(bobs),
		},
		"subresource created": {write{obj: farm(identity(bobs), nil), subresource: "other"}, identity(bobs)},
		"another kind":        {write{obj: farm(identity(bobs), nil), kind: "Other"}, identity(bobs)},
		"too many groups to record": {
			write{obj: farm(nil, nil), groups: []string{strings.Repeat("g", 33<<10)}}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := run(t, c.write); !cmp.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// run calls Admit and Validate. It returns the annotations that would be stored, or nil if the
// write is denied.
func run(t *testing.T, r write) keys {
	t.Helper()
	p, a := newPlugin(), r.attributes()
	if p.Admit(t.Context(), a, nil) != nil {
		if p.Validate(t.Context(), a, nil) == nil {
			t.Errorf("%+v: Admit failed, but Validate did not", r)
		}
		return nil
	}
	if err := p.Validate(t.Context(), a, nil); err != nil {
		t.Errorf("%+v: Admit succeeded, but Validate failed: %v", r, err)
	}
	return with(r.obj.GetAnnotations())
}

// TestChangesThatSetTheIdentity checks that every change sets the identity, except for changes of
// the status and of fields that servers set.
func TestChangesThatSetTheIdentity(t *testing.T) {
	set := func(value any, path ...string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*unstructured.Unstructured)
		is     bool
	}{
		"the spec":      {set("2", "spec", "size"), true},
		"another field": {set("x", "data"), true},
		"a label":       {set("x", "metadata", "labels", "l"), true},
		"an annotation": {set("x", "metadata", "annotations", "n"), true},
		"a finalizer":   {func(u *unstructured.Unstructured) { u.SetFinalizers([]string{"example.com/f"}) }, true},
		"an owner": {
			func(u *unstructured.Unstructured) { u.SetOwnerReferences([]metav1.OwnerReference{{Name: "o"}}) }, true,
		},
		"the status":  {set("x", "status", "phase"), false},
		"the version": {set("example.com/v2", "apiVersion"), false},
		"the managed fields": {
			func(u *unstructured.Unstructured) { u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "m"}}) }, false,
		},
		"the tenant label":     {set("a", "metadata", "labels", tenant.Label), false},
		"the creator":          {set("x", "metadata", "annotations", tenant.CreatorAnnotation), false},
		"on-behalf-of":         {set("x", "metadata", "annotations", tenant.OnBehalfOfAnnotation), false},
		"KubeVela's user":      {set("x", "metadata", "annotations", binding.KubeVelaUser), false},
		"the resource version": {set("9", "metadata", "resourceVersion"), false},
	} {
		t.Run(name, func(t *testing.T) {
			want := bobs
			if c.is {
				want = mine
			}
			if got := run(t, write{
				old: farm(identity(bobs), nil),
				obj: farm(identity(bobs), c.change),
			}); got[tenant.IdentityAnnotation] != want {
				t.Errorf("%v", got)
			}
		})
	}
}

// TestKubeVelaAnnotations checks that the identity of an Application is also recorded in the
// annotations of KubeVela. If these annotations cannot represent the identity, the write is
// denied.
func TestKubeVelaAnnotations(t *testing.T) {
	vela := func(user, groups string) keys { return keys{binding.KubeVelaUser: user, binding.KubeVelaGroup: groups} }
	const grouped = `{"user":"alice","tenant":"a","groups":["dev","ops"]}`
	sized := func(u *unstructured.Unstructured) { _ = unstructured.SetNestedField(u.Object, "2", "spec", "size") }
	for name, c := range map[string]struct {
		write
		want keys
	}{
		"created": {
			write{obj: farm(nil, nil), groups: []string{"dev", "ops"}}, with(identity(grouped), vela("alice", "dev,ops")),
		},
		"created, forged": {
			write{obj: farm(vela("root", "system:masters"), nil)}, with(identity(mine), vela("alice", "")),
		},
		"created by system": {write{obj: farm(vela("root", ""), nil), by: "root"}, identity(nobodys)},
		"changed": {
			write{
				old: farm(with(identity(bobs), vela("bob", "")), nil),
				obj: farm(with(identity(bobs), vela("bob", "")), sized),
			},
			with(identity(mine), vela("alice", "")),
		},
		"not changed, forged": {
			write{
				old: farm(with(identity(bobs), vela("bob", "")), nil),
				obj: farm(with(identity(bobs), vela("root", "x")), nil),
			},
			with(identity(bobs), vela("bob", "")),
		},
		"not changed, added": {
			write{old: farm(identity(bobs), nil), obj: farm(with(identity(bobs), vela("root", "x")), nil)}, identity(bobs),
		},
		"changed by system, no identity": {
			write{old: farm(vela("root", "x"), nil), obj: farm(vela("root", "x"), sized), by: "root"}, identity(nobodys),
		},
		"a group with a comma": {write{obj: farm(nil, nil), groups: []string{"dev", "x,system:masters"}}, nil},
		"a name with a comma":  {write{obj: farm(nil, nil), by: "alice,bob"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c.kind = "Application"
			if got := run(t, c.write); !cmp.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
	if got := run(t, write{obj: farm(vela("x", "y"), nil), groups: []string{"x,y"}}); len(got) != 3 {
		t.Errorf("the annotations of another kind were changed: %v", got)
	}
}

// TestChangesAfterAdmitAreDenied checks that Validate denies annotations that differ from those
// that Admit would set.
func TestChangesAfterAdmitAreDenied(t *testing.T) {
	sized := func(u *unstructured.Unstructured) { _ = unstructured.SetNestedField(u.Object, "2", "spec", "size") }
	vela := keys{binding.KubeVelaUser: "alice", binding.KubeVelaGroup: ""}
	for name, c := range map[string]struct {
		write
		ok bool
	}{
		"created":               {write{obj: farm(identity(mine), nil)}, true},
		"created, no identity":  {write{obj: farm(nil, nil)}, false},
		"created, another user": {write{obj: farm(identity(bobs), nil)}, false},
		"changed, another user": {write{old: farm(identity(bobs), nil), obj: farm(identity(bobs), sized)}, false},
		"not changed, another":  {write{old: farm(identity(bobs), nil), obj: farm(identity(mine), nil)}, false},
		"not changed, removed":  {write{old: farm(identity(bobs), nil), obj: farm(nil, nil)}, false},
		"not changed, requested": {
			write{old: farm(identity(bobs), nil), obj: farm(with(identity(bobs), takeIdentity), nil)}, true,
		},
		"KubeVela": {write{obj: farm(with(identity(mine), vela), nil), kind: "Application"}, true},
		"KubeVela, without groups": {
			write{obj: farm(with(identity(mine), keys{binding.KubeVelaUser: "alice"}), nil), kind: "Application"}, false,
		},
		"KubeVela, no user": {
			write{
				obj:  farm(with(identity(nobodys), keys{binding.KubeVelaUser: "root"}), nil),
				by:   "root",
				kind: "Application",
			},
			false,
		},
		"KubeVela, only its annotations differ": {
			write{old: farm(identity(bobs), nil), obj: farm(with(identity(bobs), vela), nil), kind: "Application"}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := newPlugin().Validate(t.Context(), c.attributes(), nil); (err == nil) != c.ok {
				t.Errorf("%v", err)
			}
		})
	}
	wrong := write{obj: farm(identity(bobs), nil), kind: "Application"}
	const all = "[only the server may set the annotation app.oam.dev/group, " +
		"only the server may set the annotation app.oam.dev/username, " +
		"only the server may set the annotation kubetenant.dev/identity]"
	if err := newPlugin().Validate(t.Context(), wrong.attributes(), nil); err == nil ||
		!strings.Contains(err.Error(), all) {
		t.Errorf("all three are wrong: %v", err)
	}
	for _, op := range []admission.Operation{admission.Create, admission.Update} {
		a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{Group: "example.com", Kind: "Farm"}, "a--web",
			"f", schema.GroupVersionResource{}, "", op, nil, false, &user.DefaultInfo{Name: "alice"})
		if newPlugin().Admit(t.Context(), a, nil) == nil || newPlugin().Validate(t.Context(), a, nil) == nil {
			t.Errorf("%s without an object was admitted", op)
		}
	}
}

// TestGuessedKinds checks that the kind is guessed from the name of the resource if KindOf does not
// return it. The group must be the same.
func TestGuessedKinds(t *testing.T) {
	for name, c := range map[string]struct {
		group, resource string
		kindOf          func(schema.GroupResource) string
		held            bool
	}{
		"the plural of a kind": {"example.com", "farms", nil, true},
		"an empty kind":        {"example.com", "farms", func(schema.GroupResource) string { return "" }, true},
		"another kind":         {"example.com", "farms", func(schema.GroupResource) string { return "Other" }, false},
		"another group":        {"example.org", "farms", nil, false},
		"another name":         {"example.com", "farm", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := binding.New(binding.Options{
				KindOf:  c.kindOf,
				Kinds:   map[schema.GroupKind]bool{{Group: "example.com", Kind: "Farm"}: false},
				Subject: func(context.Context, user.Info) (tenant.ID, error) { return tenanttest.ID(t, "a"), nil },
			})
			resource := schema.GroupVersionResource{Group: c.group, Version: "v1", Resource: c.resource}
			a := admission.NewAttributesRecord(farm(nil, nil), nil,
				schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, "a--web", "f", resource, "scale",
				admission.Update, nil, false, &user.DefaultInfo{Name: "alice"})
			if err := p.Validate(t.Context(), a, nil); (err != nil) != c.held {
				t.Errorf("%v, want a denial: %t", err, c.held)
			}
		})
	}
}
