// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rolebinding_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins/rolebinding"
	"github.com/kubetenant/kubetenant/plugins/workload"
	"github.com/kubetenant/kubetenant/tenant"
)

// newPlugin returns the plugin. The name of a caller is its tenant, and a name that begins with
// "system:" belongs to the system tenant. The namespace x--y belongs to tenant x. The owner of away
// is unknown. All other namespaces belong to the system tenant.
func newPlugin(change func(*rolebinding.Options)) admission.ValidationInterface {
	owner := func(namespace string) (tenant.ID, error) {
		name, _, of := strings.Cut(namespace, "--")
		switch {
		case namespace == "away" || name == "away":
			return tenant.System(), errors.New("away")
		case !of:
			return tenant.System(), nil
		}
		return tenant.Parse(name)
	}
	o := rolebinding.Options{
		Names: names,
		Kinds: workload.New(nil),
		Subject: func(_ context.Context, u user.Info) (tenant.ID, error) {
			if strings.HasPrefix(u.GetName(), "system:") {
				return tenant.System(), nil
			}
			return tenant.Parse(u.GetName())
		},
		Owner: func(_ context.Context, namespace string) (tenant.ID, error) { return owner(namespace) },
		ReferencedOwner: func(_ context.Context, _ tenant.ID, namespace string) (tenant.ID, error) {
			return owner(namespace)
		},
	}
	if change != nil {
		change(&o)
	}
	return rolebinding.New(o)
}

// write is a write. By default, a caller of tenant a sends it in the namespace a--web. If old is
// set, the write is an update.
type write struct {
	by, namespace, subresource string
	obj, old                   runtime.Object
}

func (h write) validate(t *testing.T, p admission.ValidationInterface, kind schema.GroupVersionKind) string {
	t.Helper()
	or := func(text, other string) string {
		if text == "" {
			return other
		}
		return text
	}
	op := admission.Create
	if h.old != nil {
		op = admission.Update
	}
	err := p.Validate(t.Context(),
		admission.NewAttributesRecord(h.obj, h.old, kind, or(h.namespace, "a--web"), "x", schema.GroupVersionResource{},
			h.subresource, op, nil, false,
			&user.DefaultInfo{Name: or(h.by, "a")}), nil)
	return fmt.Sprint(err)
}

// wantError fails the test unless got is the text of an error that contains want. If want is empty,
// got must be "<nil>".
func wantError(t *testing.T, name, got, want string) {
	t.Helper()
	if (got == "<nil>") != (want == "") || !strings.Contains(got, want) {
		t.Errorf("%s: %s, want %q", name, got, want)
	}
}

// TestSubjects checks which subjects a binding in a tenant's namespace may have, with and without
// qualified names.
func TestSubjects(t *testing.T) {
	const foreign, reserved, account = "names callers of another tenant", "is a reserved name",
		"names a service account in a namespace"
	for _, c := range []struct {
		kind, namespace, name string
		plain, qualified      string // the expected errors
	}{
		{"User", "", "bob", "", ""},
		{"User", "", "a:bob", "", ""},
		{"User", "", "b:bob", "", foreign},
		{"User", "", "root", reserved, reserved},
		{"User", "", "system:anonymous", reserved, reserved},
		{"User", "", "system:serviceaccount:a--web:robot", "", ""},
		{"User", "", "system:serviceaccount:b--web:robot", account, account},
		{"User", "", "system:serviceaccount:away:robot", "away", "away"},
		{"User", "", "system:serviceaccount:a--web", reserved, reserved},
		{"Group", "", "dev", "", ""},
		{"Group", "", "a:dev", "", ""},
		{"Group", "", "b:dev", "", foreign},
		{"Group", "", "tenant:a", "", ""},
		{"Group", "", "tenant:b", foreign, foreign},
		{"Group", "", "tenant:", foreign, foreign},
		{"Group", "", "system:masters", reserved, reserved},
		{"Group", "", "system:authenticated", reserved, reserved},
		{"Group", "", "kubeadm:cluster-admins", reserved, reserved},
		{"Group", "", "system:serviceaccounts:a--db", "", ""},
		{"Group", "", "system:serviceaccounts:b--web", account, account},
		{"Group", "", "system:serviceaccounts", reserved, reserved},
		{"ServiceAccount", "a--db", "robot", "", ""},
		{"ServiceAccount", "b--web", "robot", account, account},
		{"ServiceAccount", "kube-system", "robot", account, account},
		{"ServiceAccount", "away--web", "robot", "away", "away"},
		{"Robot", "", "bob", reserved, reserved},
	} {
		t.Run(c.name, func(t *testing.T) {
			binding := &rbacv1.RoleBinding{
				Subjects: []rbacv1.Subject{{Kind: "User", Name: "bob"}, {Kind: c.kind, Namespace: c.namespace, Name: c.name}},
			}
			for qualified, want := range map[bool]string{false: c.plain, true: c.qualified} {
				p := newPlugin(func(o *rolebinding.Options) { o.QualifiedNames = qualified })
				if want != "" && want != "away" {
					want = "subjects[1] " + want
				}
				wantError(t, fmt.Sprintf("%s %s/%s, qualified %t", c.kind, c.namespace, c.name, qualified),
					write{obj: binding}.validate(t, p, rbacv1.SchemeGroupVersion.WithKind("RoleBinding")), want)
			}
		})
	}
}

// TestErrorsNameAllFields checks that an error names every invalid subject and every invalid field.
func TestErrorsNameAllFields(t *testing.T) {
	p := newPlugin(func(o *rolebinding.Options) { o.ForbidVolumeNames = true })
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
			{
				APIVersion:         "v1",
				Kind:               "Node",
				Name:               "n",
				BlockOwnerDeletion: new(true),
			},
		}},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: "root"}, {Kind: "Group", Name: "tenant:b"}},
	}
	wantError(t, "a RoleBinding", write{obj: binding}.validate(t, p, rbacv1.SchemeGroupVersion.WithKind("RoleBinding")),
		"[metadata.ownerReferences[0].blockOwnerDeletion may not be set for a cluster-scoped owner, "+
			"subjects[0] is a reserved name, subjects[1] names callers of another tenant]")
	both := selecting("x")
	both.VolumeName, both.DataSourceRef = "v", from("b--web").DataSourceRef
	const path = "spec.volumeClaimTemplates[%d].spec."
	set := write{obj: stateful(template("t", both), template("u", selecting("x")))}
	wantError(t, "a StatefulSet", set.validate(t, p, appsv1.SchemeGroupVersion.WithKind("StatefulSet")),
		fmt.Sprintf("["+path+"volumeName may not be set by a tenant, "+path+"selector may not be set by a tenant, "+
			path+"dataSourceRef.namespace names a namespace that the tenant does not own, "+
			path+"selector may not be set by a tenant]", 0, 0, 0, 1))
}

// TestUpdatedBindings checks that existing subjects are not checked again if the role does not
// change. The owner of the namespace determines which subjects are allowed.
func TestUpdatedBindings(t *testing.T) {
	of := func(role string, groups ...string) *rbacv1.RoleBinding {
		b := &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{Kind: "Role", Name: role}}
		for _, g := range groups {
			b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: "Group", Name: g})
		}
		return b
	}
	for name, c := range map[string]struct {
		write
		want string
	}{
		"unchanged": {write{obj: of("r", "tenant:b"), old: of("r", "tenant:b")}, ""},
		"one added": {
			write{obj: of("r", "tenant:b", "tenant:c"), old: of("r", "tenant:b")}, "subjects[1] names callers of another",
		},
		"another role": {
			write{obj: of("s", "tenant:b"), old: of("r", "tenant:b")}, "subjects[0] names callers of another",
		},
		"by a grantee, the owner's": {write{obj: of("r", "tenant:a"), by: "b"}, ""},
		"by a grantee, its own":     {write{obj: of("r", "tenant:b"), by: "b"}, "subjects[0] names callers of another"},
		"by the system tenant":      {write{obj: of("r", "tenant:b"), by: "system"}, ""},
		"by an invalid tenant":      {write{obj: of("r", "tenant:b"), by: "A B"}, "subjects[0] names callers of another"},
		"failed owner lookup":       {write{obj: of("r"), namespace: "away"}, "away"},
		"no binding":                {write{}, "no object"},
		"invalid old binding": {
			write{
				obj: of("r"),
				old: &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"}},
			},
			"no object",
		},
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, name, c.validate(t, newPlugin(nil), rbacv1.SchemeGroupVersion.WithKind("RoleBinding")), c.want)
		})
	}
}

// TestExternalIPs checks that external IP addresses cannot be added to a Service if they are
// forbidden.
func TestExternalIPs(t *testing.T) {
	of := func(all ...string) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{ExternalIPs: all}}
	}
	for name, c := range map[string]struct {
		write
		want string
	}{
		"none":                 {write{obj: of()}, ""},
		"one":                  {write{obj: of("192.0.2.1")}, "externalIPs"},
		"by the system tenant": {write{obj: of("192.0.2.1"), by: "system"}, ""},
		"unchanged":            {write{obj: of("192.0.2.1", "192.0.2.2"), old: of("192.0.2.2", "192.0.2.1")}, ""},
		"one removed":          {write{obj: of("192.0.2.1"), old: of("192.0.2.1", "192.0.2.2")}, ""},
		"one added":            {write{obj: of("192.0.2.1", "192.0.2.2"), old: of("192.0.2.1")}, "externalIPs"},
		"no service":           {write{}, "no object"},
		"invalid old service": {
			write{obj: of("192.0.2.1"), old: &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}}},
			"no object",
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind := corev1.SchemeGroupVersion.WithKind("Service")
			wantError(
				t,
				name,
				c.validate(t, newPlugin(func(o *rolebinding.Options) { o.ForbidExternalIPs = true }), kind),
				c.want,
			)
			wantError(t, name+", not forbidden", c.validate(t, newPlugin(nil), kind), "")
		})
	}
}

type claimSpec = corev1.PersistentVolumeClaimSpec

func from(namespace string) claimSpec {
	return claimSpec{
		DataSourceRef: &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "x", Namespace: &namespace},
	}
}

func selecting(label string) claimSpec {
	return claimSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"l": label}}}
}

// TestClaimSources checks that the namespace of a claim's data source must belong to the tenant. If
// ForbidVolumeNames is set, a claim may not select its volume. Both rules also apply to templates
// of claims.
func TestClaimSources(t *testing.T) {
	const controller = "system:serviceaccount:kube-system:ephemeral-volume-controller"
	named := func(volume string) claimSpec { return claimSpec{VolumeName: volume} }
	for name, c := range map[string]struct {
		by, namespace string
		is            claimSpec
		was           *claimSpec
		open, closed  string // the expected errors without and with ForbidVolumeNames
	}{
		"plain":                     {"", "", claimSpec{}, nil, "", ""},
		"a volume":                  {"", "", named("v"), nil, "", "spec.volumeName may not be set"},
		"an unchanged volume":       {"", "", named("v"), new(named("v")), "", ""},
		"another volume":            {"", "", named("v"), new(named("w")), "", "spec.volumeName may not be set"},
		"a selector":                {"", "", selecting("x"), nil, "", "spec.selector may not be set"},
		"an unchanged selector":     {"", "", selecting("x"), new(selecting("x")), "", ""},
		"another selector":          {"", "", selecting("x"), new(selecting("y")), "", "spec.selector may not be set"},
		"a source in the namespace": {"", "", from("a--web"), nil, "", ""},
		"an own namespace":          {"", "", from("a--db"), nil, "", ""},
		"another tenant's source": {
			"", "", from("b--web"), nil, "spec.dataSourceRef.namespace names", "spec.dataSourceRef.namespace names",
		},
		"unchanged source": {"", "", from("b--web"), new(from("b--web")), "", ""},
		"another source": {
			"",
			"",
			from("b--web"),
			new(from("a--web")),
			"spec.dataSourceRef.namespace names",
			"spec.dataSourceRef.namespace names",
		},
		"a source without a namespace": {
			"", "", claimSpec{DataSourceRef: &corev1.TypedObjectReference{Kind: "X"}}, nil, "", "",
		},
		"failed owner lookup":  {"", "away", from("b--web"), nil, "away", "away"},
		"by the system tenant": {"system", "", from("b--web"), nil, "", ""},
		"created from a template": {
			controller, "", from("b--web"), nil, "spec.dataSourceRef.namespace names", "spec.dataSourceRef.namespace names",
		},
		"a volume, from a template":      {controller, "", named("v"), nil, "", "spec.volumeName may not be set"},
		"changed by the controller":      {controller, "", from("b--web"), new(from("a--web")), "", ""},
		"a system namespace":             {controller, "kube-system", from("b--web"), nil, "", ""},
		"failed lookup, from a template": {controller, "away", claimSpec{}, nil, "away", "away"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := write{by: c.by, namespace: c.namespace, obj: &corev1.PersistentVolumeClaim{Spec: c.is}}
			set := write{by: c.by, namespace: c.namespace, obj: stateful(template("t", c.is))}
			if c.was != nil {
				claim.old, set.old = &corev1.PersistentVolumeClaim{Spec: *c.was},
					stateful(template("other", claimSpec{}), template("t", *c.was))
			}
			for forbidden, want := range map[bool]string{false: c.open, true: c.closed} {
				p := newPlugin(func(o *rolebinding.Options) { o.ForbidVolumeNames = forbidden })
				wantError(t, fmt.Sprintf("%s, forbidden %t", name, forbidden),
					claim.validate(t, p, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")), want)
				if c.by == controller || want == "away" && c.is.DataSourceRef == nil {
					continue // the controller that creates claims does not write templates
				}
				if strings.HasPrefix(want, "spec.") {
					want = "spec.volumeClaimTemplates[0]." + want
				}
				wantError(t, fmt.Sprintf("%s in a template, forbidden %t", name, forbidden),
					set.validate(t, p, appsv1.SchemeGroupVersion.WithKind("StatefulSet")), want)
			}
		})
	}
	p := newPlugin(nil)
	wantError(
		t,
		"no claim",
		write{}.validate(t, p, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")),
		"no object",
	)
	wantError(t, "invalid old claim",
		write{
			obj: &corev1.PersistentVolumeClaim{},
			old: &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}},
		}.validate(t, p, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")), "no object")
}

func template(name string, spec claimSpec) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

func stateful(templates ...corev1.PersistentVolumeClaim) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{VolumeClaimTemplates: templates}}
}

// TestEphemeralVolumes checks that an ephemeral volume of a Pod may not select a volume if
// ForbidVolumeNames is set. Status updates, and unreadable objects that are being deleted, are not
// checked.
func TestEphemeralVolumes(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
		Name: "v",
		VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claimSpec{VolumeName: "v"}},
		}},
	}}}}
	broken := func(leaving bool) runtime.Object {
		o := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"}}
		if leaving {
			o.DeletionTimestamp = new(metav1.Now())
		}
		return o
	}
	changed := broken(true).(*corev1.ConfigMap)
	changed.Data = map[string]string{"x": "y"}
	blocking := template("t", claimSpec{})
	blocking.OwnerReferences = []metav1.OwnerReference{{
		APIVersion:         "v1",
		Kind:               "Node",
		Name:               "n",
		BlockOwnerDeletion: new(true),
	}}
	owned := func(blocks *bool) runtime.Object {
		set := stateful(*blocking.DeepCopy())
		set.Spec.VolumeClaimTemplates[0].OwnerReferences[0].BlockOwnerDeletion = blocks
		set.OwnerReferences = set.Spec.VolumeClaimTemplates[0].OwnerReferences
		return set
	}
	claiming := func(templates any) runtime.Object {
		return &unstructured.Unstructured{
			Object: map[string]any{
				"apiVersion": "apps/v1",
				"kind":       "StatefulSet",
				"spec":       map[string]any{"volumeClaimTemplates": templates, "template": map[string]any{}},
			},
		}
	}
	sets, pods := appsv1.SchemeGroupVersion.WithKind("StatefulSet"), corev1.SchemeGroupVersion.WithKind("Pod")
	for name, c := range map[string]struct {
		write
		kind         schema.GroupVersionKind
		open, closed string
	}{
		"a pod":            {write{obj: pod}, pods, "", "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.volumeName"},
		"an unchanged pod": {write{obj: pod, old: pod.DeepCopy()}, pods, "", ""},
		"a pod's status":   {write{obj: pod, old: &corev1.Pod{}, subresource: "status"}, pods, "", ""},
		"no templates":     {write{obj: stateful()}, sets, "", ""},
		"an owner in a template": {
			write{obj: stateful(blocking)},
			sets,
			"spec.volumeClaimTemplates[0].metadata.ownerReferences[0].blockOwnerDeletion",
			"ownerReferences[0].blockOwnerDeletion",
		},
		"an unchanged owner":         {write{obj: stateful(blocking), old: stateful(blocking)}, sets, "", ""},
		"an owner without the field": {write{obj: owned(nil)}, sets, "", ""},
		"an owner without blocking":  {write{obj: owned(new(false))}, sets, "", ""},
		"invalid claims":             {write{obj: claiming("x")}, sets, "cannot read", "cannot read"},
		"invalid old claims": {
			write{obj: stateful(blocking), old: claiming("x")}, sets, "cannot read", "cannot read",
		},
		"unreadable":                {write{obj: broken(false)}, sets, "cannot read", "cannot read"},
		"unreadable, unchanged":     {write{obj: broken(false), old: broken(false)}, sets, "cannot read", "cannot read"},
		"unreadable, being deleted": {write{obj: broken(true), old: broken(true)}, sets, "", ""},
		"being deleted, changed":    {write{obj: changed, old: broken(true)}, sets, "cannot read", "cannot read"},
		"unreadable old object":     {write{obj: stateful(blocking), old: broken(false)}, sets, "no object", "no object"},
	} {
		t.Run(name, func(t *testing.T) {
			for forbidden, want := range map[bool]string{false: c.open, true: c.closed} {
				wantError(t, fmt.Sprintf("%s, forbidden %t", name, forbidden),
					c.validate(t, newPlugin(func(o *rolebinding.Options) { o.ForbidVolumeNames = forbidden }), c.kind), want)
			}
		})
	}
}
