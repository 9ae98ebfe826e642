// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/plugins/lifecycle"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// fieldsOf calls f with the path of each leaf field of a type. It does not visit the fields below a
// field for which covered returns true.
func fieldsOf(of reflect.Type, path string, covered func(path string) bool, f func(path string)) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
		of = of.Elem()
	}
	if covered(path) {
		return
	}
	if of.Kind() != reflect.Struct || of.PkgPath() != reflect.TypeFor[v1alpha1.TenantSpec]().PkgPath() {
		f(path)
		return
	}
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		fieldsOf(of.Field(i).Type, path+"."+name, covered, f)
	}
}

func specTypes() map[string]reflect.Type {
	return map[string]reflect.Type{
		v1alpha1.KindTenant:            reflect.TypeFor[v1alpha1.TenantSpec](),
		v1alpha1.KindTenantMembers:     reflect.TypeFor[v1alpha1.TenantMembersSpec](),
		v1alpha1.KindNamespaceTemplate: reflect.TypeFor[v1alpha1.NamespaceTemplateSpec](),
		v1alpha1.KindPublication:       reflect.TypeFor[v1alpha1.PublicationSpec](),
		v1alpha1.KindTenantQuota:       reflect.TypeFor[v1alpha1.TenantQuotaSpec](),
		v1alpha1.KindAccessGrant:       reflect.TypeFor[v1alpha1.AccessGrantSpec](),
	}
}

// TestEveryFieldHasWriterRule checks that every field of a spec has a rule, and that every rule
// has a field. Each rule must have either rights or a reason.
func TestEveryFieldHasWriterRule(t *testing.T) {
	rules := stack.WriterRules()
	for kind, of := range specTypes() {
		used := map[string]bool{}
		fieldsOf(of, "spec", func(path string) bool {
			rule, ok := rules[kind][path]
			if ok && (rule.Rights == nil) == (rule.Reason == "") {
				t.Errorf("%s: %s has rights and a reason, or neither", kind, path)
			}
			used[path] = ok
			return ok
		}, func(path string) { t.Errorf("%s: %s has no rule", kind, path) })
		for path := range rules[kind] {
			if !used[path] {
				t.Errorf("%s: %s is not a field", kind, path)
			}
		}
	}
	if len(rules) != len(specTypes()) {
		t.Errorf("rules of %v", slices.Sorted(maps.Keys(rules)))
	}
}

// writerCase is a change of a Tenant and the rights that its author needs.
type writerCase struct {
	before, after v1alpha1.TenantSpec
	deleting      bool
	want          []string
}

func writerCases() map[string]map[string]writerCase {
	minutes := func(n int) *metav1.Duration { return &metav1.Duration{Duration: time.Duration(n) * time.Minute} }
	labels := func(value v1alpha1.LabelValue) (s v1alpha1.TenantSpec) {
		s.Namespaces.Labels = map[string]v1alpha1.LabelValue{"resource.kubernetes.io/admin-access": value}
		return s
	}
	level := func(level string) (s v1alpha1.TenantSpec) {
		s.Namespaces.PodSecurity = level
		return s
	}
	limit := func(n int32) (s v1alpha1.TenantSpec) {
		s.Namespaces.Max = &n
		return s
	}
	pods := func(n string) v1alpha1.TenantSpec {
		return v1alpha1.TenantSpec{Quota: corev1.ResourceList{"pods": resource.MustParse(n)}}
	}
	ends := func(p v1alpha1.TenantDeletionPolicy, delay *metav1.Duration) v1alpha1.TenantSpec {
		return v1alpha1.TenantSpec{DeletionPolicy: p, DeletionDelay: delay}
	}
	var none v1alpha1.TenantSpec
	update := []string{"update namespaces"}
	writes := []string{"create tenantquotas.kubetenant.dev", "update tenantquotas.kubetenant.dev"}
	drops := []string{"delete tenantquotas.kubetenant.dev"}
	orphans := []string{
		"delete clusterrolebindings.rbac.authorization.k8s.io", "delete tenantquotas.kubetenant.dev",
		"delete tenantmembers.kubetenant.dev",
	}
	deletes := append([]string{"delete namespaces"}, orphans...)
	change := func(was, is v1alpha1.TenantSpec, want []string) writerCase {
		return writerCase{before: was, after: is, want: want}
	}
	going := func(was, is v1alpha1.TenantSpec, want []string) writerCase {
		c := change(was, is, want)
		c.deleting = true
		return c
	}
	del, orphan := v1alpha1.TenantDeletionDelete, v1alpha1.TenantDeletionOrphan
	return map[string]map[string]writerCase{
		"spec.namespaces.labels": {
			"set":       change(none, labels("true"), update),
			"change":    change(labels("true"), labels("false"), update),
			"remove":    change(labels("true"), none, update),
			"no change": change(labels("true"), labels("true"), nil),
		},
		"spec.namespaces.podSecurity": {
			"set":       change(none, level("privileged"), update),
			"change":    change(level("baseline"), level("restricted"), update),
			"remove":    change(level("restricted"), none, update),
			"no change": change(level("privileged"), level("privileged"), nil),
		},
		"spec.namespaces.max": {
			"set":       change(none, limit(3), writes),
			"change":    change(limit(3), limit(0), writes),
			"remove":    change(limit(3), none, drops),
			"no change": change(limit(3), limit(3), nil),
		},
		"spec.quota": {
			"set":       change(none, pods("3"), writes),
			"change":    change(pods("3"), pods("4"), writes),
			"remove":    change(pods("3"), none, drops),
			"no change": change(pods("1000"), pods("1k"), nil),
		},
		"spec.deletionPolicy": {
			"set":                     change(none, ends(del, nil), deletes),
			"set to Orphan":           change(none, ends(orphan, nil), orphans),
			"change":                  change(ends(orphan, nil), ends(del, nil), deletes[:1]),
			"change to Orphan":        change(ends(del, nil), ends(orphan, nil), nil),
			"remove":                  change(ends(del, nil), none, nil),
			"no change":               change(ends(del, nil), ends(del, nil), nil),
			"protected":               change(none, ends(v1alpha1.TenantDeletionProtect, nil), nil),
			"set while it is deleted": going(none, ends(orphan, nil), orphans),
		},
		"spec.deletionDelay": {
			"set":                           change(ends(del, nil), ends(del, minutes(5)), nil),
			"change":                        change(ends(del, minutes(5)), ends(del, minutes(1)), nil),
			"remove":                        change(ends(del, minutes(5)), ends(del, nil), nil),
			"set while it is deleted":       going(ends(del, nil), ends(del, minutes(5)), nil),
			"shortened while it is deleted": going(ends(del, minutes(5)), ends(del, minutes(1)), deletes),
			"removed while it is deleted":   going(ends(del, minutes(5)), ends(del, nil), deletes),
			"unchanged while it is deleted": going(ends(del, minutes(5)), ends(del, minutes(5)), nil),
			"longer while it is deleted":    going(ends(del, minutes(5)), ends(del, minutes(9)), nil),
			"removed while it is orphaned":  going(ends(orphan, minutes(5)), ends(orphan, nil), orphans),
		},
	}
}

// TestWriterNeedsRights checks each field that requires rights. A change must be rejected if one
// of these rights is missing, and allowed with exactly these rights.
func TestWriterNeedsRights(t *testing.T) {
	cases := writerCases()
	for field, rule := range stack.WriterRules()[v1alpha1.KindTenant] {
		if (rule.Rights == nil) != (cases[field] == nil) {
			t.Errorf("%s has no cases", field)
		}
	}
	for field, changes := range cases {
		for _, needed := range []string{"set", "change", "remove"} {
			if _, ok := changes[needed]; !ok {
				t.Errorf("%s: no case %q", field, needed)
			}
		}
		for name, c := range changes {
			if err := writeTenant(t, &c, c.want); err != nil {
				t.Errorf("%s, %s, with the rights: %v", field, name, err)
			}
			for i, right := range c.want {
				err := writeTenant(t, &c, slices.Delete(slices.Clone(c.want), i, i+1))
				want := field + ": the caller may not " + right + " in the whole cluster"
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s, %s, without the right to %s: %v", field, name, right, err)
				}
			}
		}
	}
}

// writeTenant updates a Tenant as a caller that has the given rights. If the old spec is empty,
// it also creates the Tenant and expects the same result.
func writeTenant(t *testing.T, c *writerCase, rights []string) error {
	t.Helper()
	plugin := newPlugin(t, lifecycle.Name, rights)
	of := func(spec v1alpha1.TenantSpec) *unstructured.Unstructured {
		spec.ID = "acme"
		at := &v1alpha1.Tenant{Spec: spec}
		at.Name, at.Finalizers = "acme", []string{tenant.Finalizer}
		if c.deleting {
			now := metav1.Now()
			at.DeletionTimestamp = &now
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(at)
		if err != nil {
			t.Fatal(err)
		}
		return &unstructured.Unstructured{Object: content}
	}
	write := func(op admission.Operation, was runtime.Object) error {
		return plugin.Validate(t.Context(), admission.NewAttributesRecord(of(c.after), was,
			v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindTenant), "", "acme",
			v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants), "", op, nil, false,
			&user.DefaultInfo{Name: "ops", Extra: map[string][]string{tenant.ExtraKey: {"system"}}}), nil)
	}
	err := write(admission.Update, of(c.before))
	if reflect.DeepEqual(c.before, v1alpha1.TenantSpec{}) && !c.deleting {
		if created := write(admission.Create, nil); fmt.Sprint(created) != fmt.Sprint(err) {
			t.Errorf("created: %v; updated: %v", created, err)
		}
	}
	return err
}

// newPlugin returns the plugin with the given name. It belongs to a stack in which the user ops
// has the given rights in the whole cluster.
func newPlugin(t *testing.T, name string, rights []string) admission.ValidationInterface {
	t.Helper()
	built, err := stack.New(t.Context(), &configv1alpha1.Settings{}, stack.Server{
		Authorization: stack.Authorization{GrantorAuthorizer: authorizer.AuthorizerFunc(func(
			_ context.Context, a authorizer.Attributes,
		) (authorizer.Decision, string, error) {
			right := a.GetVerb() + " " + a.GetResource()
			if a.GetAPIGroup() != "" {
				right += "." + a.GetAPIGroup()
			}
			if slices.Contains(rights, right) && a.GetNamespace() == "" && a.GetUser().GetName() == "ops" {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		})},
		Cluster: (&lookup.Parts{
			Owners:  authz.NewOwners(func(string) (*corev1.Namespace, error) { return nil, errors.New("none") }, nil),
			Tenants: fakeTenants{},
		}).Cluster(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range built.Admission {
		if p.Name == name {
			return p.Interface.(admission.ValidationInterface)
		}
	}
	t.Fatal("no plugin " + name)
	return nil
}

// TestTemplateWriterMayDeleteRemovedObjects checks that the author of an update of a
// NamespaceTemplate needs the right to delete the objects that the update removes.
func TestTemplateWriterMayDeleteRemovedObjects(t *testing.T) {
	of := func(objects ...any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion,
			"kind":       v1alpha1.KindNamespaceTemplate,
			"spec":       map[string]any{"objects": objects},
		}}
		u.SetName("std")
		return u
	}
	object := func(kind, name string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name}}
	}
	limits, config := object("LimitRange", "x"), object("ConfigMap", "x")
	invalid := of()
	invalid.Object["spec"] = map[string]any{"objects": "none"}
	write := []string{"create configmaps", "update configmaps", "create limitranges", "update limitranges"}
	for name, c := range map[string]struct {
		was, is *unstructured.Unstructured
		want    string
	}{
		"the same":             {of(limits, config), of(config, limits), ""},
		"one object more":      {of(limits), of(config, limits), ""},
		"one object less":      {of(limits, config), of(config), "may not delete limitranges"},
		"another name":         {of(config), of(object("ConfigMap", "y")), "may not delete configmaps"},
		"another kind":         {of(config), of(limits), "may not delete configmaps"},
		"invalid old template": {invalid, of(config), "may not delete"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, may := range []bool{false, true} {
				rights, want := write, c.want
				if may {
					rights, want = append(slices.Clone(write), "delete configmaps", "delete limitranges", "delete resourcequotas",
						"delete networkpolicies.networking.k8s.io"), ""
				}
				err := newPlugin(t, managed.Name, rights).Validate(t.Context(), admission.NewAttributesRecord(c.is, c.was,
					v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindNamespaceTemplate), "", "std",
					v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceNamespaceTemplates), "", admission.Update, nil, false,
					&user.DefaultInfo{Name: "ops", Extra: map[string][]string{tenant.ExtraKey: {"system"}}}), nil)
				if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%s, may delete: %t: %v; want %q", name, may, err, want)
				}
			}
		})
	}
}
