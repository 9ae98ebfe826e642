// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/publish"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// registry is the name of the Publication of the Secret platform/registry.
const registry = "secret-platform-4d1092ac"

// cluster is a fake cluster that records writes.
type cluster struct {
	objects  *dynamicfake.FakeDynamicClient
	metadata *metadatafake.FakeMetadataClient
	written  []string
	output   strings.Builder
}

// newCluster returns a cluster with the tenants acme and globex.
func newCluster(t *testing.T, more ...*unstructured.Unstructured) *cluster {
	t.Helper()
	all := []*unstructured.Unstructured{
		namespace("platform", ""),
		namespace("kube-system", "globex"),
		namespace("acme--web", "acme"),
		namespace("acme--db", "acme"),
		namespace("globex--shop", "globex"),
		namespace("odd", "not a tenant"),
		object("v1", "Namespace", "", "acme--old", map[string]any{
			"labels":            labels(tenant.Label, "acme"),
			"deletionTimestamp": "2026-01-01T00:00:00Z",
			"finalizers":        []any{"x"},
		}),
	}
	all = append(all, more...)
	c := &cluster{}
	lists := map[schema.GroupVersionResource]string{}
	for _, of := range []string{"secrets Secret", "configmaps ConfigMap", "namespaces Namespace"} {
		resource, kind, _ := strings.Cut(of, " ")
		lists[schema.GroupVersionResource{Version: "v1", Resource: resource}] = kind + "List"
	}
	for _, of := range []string{"publications Publication", "tenants Tenant"} {
		resource, kind, _ := strings.Cut(of, " ")
		lists[v1alpha1.SchemeGroupVersion.WithResource(resource)] = kind + "List"
	}
	var full, partial []runtime.Object
	for _, u := range all {
		full = append(full, u)
		partial = append(partial, &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: u.GetAPIVersion(), Kind: u.GetKind()},
			ObjectMeta: metav1.ObjectMeta{
				Name:              u.GetName(),
				Namespace:         u.GetNamespace(),
				Labels:            u.GetLabels(),
				DeletionTimestamp: u.GetDeletionTimestamp(),
			},
		})
	}
	c.objects = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, full...)
	known := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(known); err != nil {
		t.Fatal(err)
	}
	c.metadata = metadatafake.NewSimpleMetadataClient(known, partial...)
	c.metadata.PrependReactor("list", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if list := action.(clienttesting.ListAction); list.GetListRestrictions().Fields.String() != "metadata.name=registry" {
			t.Error("Secrets with other names were listed")
		}
		return false, nil, nil
	})
	c.objects.PrependReactor("*", "*", c.record)
	return c
}

// record records a write. It also implements server-side apply, which the fake client does not
// support.
func (c *cluster) record(action clienttesting.Action) (bool, runtime.Object, error) {
	var dryRun []string
	var u *unstructured.Unstructured
	switch a := action.(type) {
	case clienttesting.CreateActionImpl:
		dryRun, u = a.CreateOptions.DryRun, a.Object.(*unstructured.Unstructured)
	case clienttesting.UpdateActionImpl:
		dryRun, u = a.UpdateOptions.DryRun, a.Object.(*unstructured.Unstructured)
	case clienttesting.PatchActionImpl:
		if a.PatchType != types.ApplyPatchType {
			return false, nil, nil
		}
		dryRun, u = a.PatchOptions.DryRun, &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(a.Patch); err != nil {
			return true, nil, err
		}
	default:
		return false, nil, nil
	}
	c.written = append(c.written, strings.Join(append(dryRun, action.GetVerb(), u.GetKind(), u.GetName()), " "))
	if action.GetVerb() != "patch" {
		if len(dryRun) == 0 {
			return false, nil, nil
		}
		_, err := c.objects.Tracker().Get(action.GetResource(), action.GetNamespace(), u.GetName())
		if action.GetVerb() == "create" && err == nil {
			return true, nil, apierrors.NewAlreadyExists(action.GetResource().GroupResource(), u.GetName())
		}
		return true, u, nil
	}
	if len(dryRun) > 0 {
		return true, u, nil
	}
	if err := c.objects.Tracker().Update(action.GetResource(), u, u.GetNamespace()); !apierrors.IsNotFound(err) {
		return true, u, err
	}
	return true, u, c.objects.Tracker().Create(action.GetResource(), u, u.GetNamespace())
}

func labels(pairs ...string) map[string]any {
	all := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return all
}

// object returns an object with the given metadata, to which it adds the namespace and the name.
func object(apiVersion, kind, namespace, name string, metadata map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}}
	if metadata == nil {
		u.Object["metadata"] = map[string]any{}
	}
	if namespace != "" {
		u.SetNamespace(namespace)
	}
	u.SetName(name)
	return u
}

func namespace(name, owner string) *unstructured.Unstructured {
	u := object("v1", "Namespace", "", name, nil)
	if owner != "" {
		u.SetLabels(map[string]string{tenant.Label: owner})
	}
	return u
}

// secret returns a Secret named registry. pairs alternates between the keys and values of its
// labels.
func secret(namespace string, pairs ...string) *unstructured.Unstructured {
	return object("v1", "Secret", namespace, "registry", map[string]any{"labels": labels(pairs...)})
}

// mapper returns a mapper for the kinds that the server serves.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Secret", "ConfigMap", "Pod"} {
		m.Add(schema.GroupVersionKind{Version: "v1", Kind: kind}, meta.RESTScopeNamespace)
	}
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, meta.RESTScopeRoot)
	m.Add(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, meta.RESTScopeNamespace)
	return m
}

// publisher returns a Publisher that publishes to all tenants.
func (c *cluster) publisher() *publish.Publisher {
	return &publish.Publisher{
		Objects:  c.objects,
		Metadata: c.metadata,
		Mapper:   mapper(),
		Rules:    &publication.Rules{},
		System:   []string{"kube-system"},
		Writing:  tenancy.Writing{Changes: output.NewChanges(&c.output, "", "")},
		Spec:     v1alpha1.PublicationSpec{Tenants: v1alpha1.PublicationTenants{All: true}},
	}
}

// TestPlan checks the predicted action in each namespace. It depends on the existing object.
func TestPlan(t *testing.T) {
	managed := func(namespace, of string) *unstructured.Unstructured {
		return secret(namespace, tenant.ManagedLabel, "publication", tenant.PublicationLabel, of)
	}
	for name, c := range map[string]struct {
		change func(*publish.Publisher)
		with   []*unstructured.Unstructured
		want   []string
	}{
		"every namespace of a tenant": {
			want: []string{
				"namespaces: 3 (conflict: 0, replace: 0, create: 3, exists: 0)",
				"  create   acme--db", "  create   acme--web", "  create   globex--shop",
			},
		},
		"some tenants": {
			change: func(p *publish.Publisher) { p.Spec.Tenants = v1alpha1.PublicationTenants{IDs: []string{"globex"}} },
			want: []string{
				"namespaces: 1 (conflict: 0, replace: 0, create: 1, exists: 0)",
				"  create   globex--shop",
			},
		},
		"another object, a copy and a copy of another source": {
			with: []*unstructured.Unstructured{
				secret("acme--db"), managed("acme--web", registry), managed("globex--shop", "older"),
			},
			want: []string{
				"namespaces: 3 (conflict: 2, replace: 0, create: 0, exists: 1)",
				"  conflict acme--db: another object has this name: delete it, or set --replace",
				"  conflict globex--shop: Publication older gives an object of this name",
				"  exists   acme--web",
			},
		},
		"replacement of unmanaged objects only": {
			change: func(p *publish.Publisher) { p.Spec.OnConflict = v1alpha1.PublicationReplace },
			with: []*unstructured.Unstructured{
				secret("acme--db"), secret("acme--web", tenant.ManagedLabel, "template"),
				managed("globex--shop", "older"),
			},
			want: []string{
				"namespaces: 3 (conflict: 2, replace: 1, create: 0, exists: 0)",
				"  conflict acme--web: the server gives an object of this name (kubetenant.dev/managed: template)",
				"  conflict globex--shop: Publication older gives an object of this name",
				"  replace  acme--db: the server deletes the object of this name",
			},
		},
		"label of a copy on an unmanaged object": {
			with: []*unstructured.Unstructured{secret("acme--db", tenant.PublicationLabel, registry)},
			want: []string{
				"namespaces: 3 (conflict: 1, replace: 0, create: 2, exists: 0)",
				"  conflict acme--db: another object has this name: delete it, or set --replace",
				"  create   acme--web", "  create   globex--shop",
			},
		},
		"selector with a label of the Tenant": {
			change: func(p *publish.Publisher) {
				p.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
			},
			with: []*unstructured.Unstructured{
				{Object: map[string]any{
					"apiVersion": v1alpha1.GroupVersion,
					"kind":       "Tenant",
					"metadata":   map[string]any{"name": "globex"},
					"spec":       map[string]any{"id": "globex", "namespaces": map[string]any{"labels": labels("tier", "gold")}},
				}},
				object("v1", "Namespace", "", "acme--gold", map[string]any{"labels": labels(tenant.Label, "acme", "tier", "gold")}),
			},
			want: []string{
				"namespaces: 1 (conflict: 0, replace: 0, create: 1, exists: 0)",
				"  create   globex--shop",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newCluster(t, c.with...)
			p := k.publisher()
			if c.change != nil {
				c.change(p)
			}
			o := &publish.Object{Content: secret("platform")}
			if err := p.Prepare(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			plan, err := p.Plan(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			if err := plan.Print(&b); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			if len(k.written) > 0 {
				t.Errorf("unexpected writes %q", k.written)
			}
		})
	}
}

// TestExamples checks that Print lists at most 20 namespaces.
func TestExamples(t *testing.T) {
	var more []*unstructured.Unstructured
	for i := range 30 {
		more = append(more, namespace(fmt.Sprintf("initech--%02d", i), "initech"))
	}
	c := newCluster(t, more...)
	p := c.publisher()
	p.Spec.Tenants = v1alpha1.PublicationTenants{IDs: []string{"initech"}}
	o := &publish.Object{Content: secret("platform")}
	if err := p.Prepare(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	plan, err := p.Plan(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := plan.Print(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 22 || lines[0] != "namespaces: 30 (conflict: 0, replace: 0, create: 30, exists: 0)" ||
		lines[21] != "  and 10 more" {
		t.Errorf("report of %d lines: %q", len(lines), lines)
	}
}

// TestPrepareRefuses checks that Prepare rejects an object that cannot be published, and writes
// nothing.
func TestPrepareRefuses(t *testing.T) {
	annotated := secret("platform")
	annotated.SetAnnotations(map[string]string{tenant.PublishAnnotation: "*"})
	token := secret("platform")
	token.Object["type"] = "kubernetes.io/service-account-token"
	for name, c := range map[string]struct {
		object  *unstructured.Unstructured
		with    []*unstructured.Unstructured
		unknown bool // rules
		stored  bool
		want    string
		missing bool
	}{
		"a tenant's namespace": {
			object: secret("acme--web"),
			want:   "namespace acme--web belongs to tenant acme: put the object in a namespace of the system tenant",
		},
		"a namespace that does not exist": {object: secret("nosuch"), want: "namespace nosuch: the namespace", missing: true},
		"a Pod": {
			object: object("v1", "Pod", "platform", "x", nil),
			want:   "objects of the kind Pod cannot be published",
		},
		"a Pod with unknown rules": {
			object:  object("v1", "Pod", "platform", "x", nil),
			unknown: true,
			want:    "objects of the kind Pod cannot be published",
		},
		"a kind that the configuration does not add": {
			object: object("example.com/v1", "Widget", "platform", "x", nil),
			want:   "admission.publication.kinds",
		},
		"a cluster-scoped kind": {
			object: object("v1", "Namespace", "platform", "x", nil),
			want: "Namespace is cluster-scoped: only objects in a " +
				"namespace can be published",
		},
		"an unknown kind": {
			object: object("v1", "Sekret", "platform", "x", nil),
			want:   "the server does not know the kind Sekret of v1: check apiVersion and kind",
		},
		"a token": {object: token, want: "Secrets of the type kubernetes.io/service-account-token cannot be published"},
		"an object with the annotation": {
			object: annotated,
			want:   "the annotation kubetenant.dev/publish of Secret platform/registry already publishes it",
		},
		"an object with the annotation in the cluster": {
			object: secret("platform"),
			with:   []*unstructured.Unstructured{annotated},
			want:   "already publishes it",
		},
		"an object that is not in the cluster": {
			object:  secret("platform"),
			stored:  true,
			missing: true,
			want:    "Secret platform/registry does not exist",
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newCluster(t, c.with...)
			p := k.publisher()
			if c.unknown {
				p.Rules = nil
			}
			err := p.Prepare(t.Context(), &publish.Object{Content: c.object, Stored: c.stored})
			of := tenancy.ErrRefused
			if c.missing {
				of = tenancy.ErrMissing
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, of) {
				t.Errorf("%v; want %q", err, c.want)
			}
			if len(k.written) > 0 {
				t.Errorf("unexpected writes %q", k.written)
			}
		})
	}
	k := newCluster(t)
	p := k.publisher()
	p.Rules = nil
	widget := &publish.Object{Content: object("example.com/v1", "Widget", "platform", "x", nil)}
	if err := p.Prepare(t.Context(), widget); err != nil {
		t.Errorf("a kind that the configuration may add: %v", err)
	}
}

// TestPublish checks the writes when an object is published, published again without a change, and
// published after a change.
func TestPublish(t *testing.T) {
	c := newCluster(t)
	for i, want := range [][]string{
		{"secret/registry created", "publication.kubetenant.dev/" + registry + " created"},
		{"secret/registry unchanged", "publication.kubetenant.dev/" + registry + " unchanged"},
		{"secret/registry configured", "publication.kubetenant.dev/" + registry + " configured"},
	} {
		p := c.publisher()
		o := &publish.Object{Content: secret("platform")}
		if i == 2 {
			o.Content.Object["data"] = map[string]any{"a": "Yg=="}
			p.Spec.Hold = true
		}
		if err := p.Prepare(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if err := p.Try(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if c.output.Len() > 0 {
			t.Errorf("Try printed %q", c.output.String())
		}
		if err := p.Publish(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(c.output.String()), "\n")); diff != "" {
			t.Errorf("run %d (-want +got):\n%s", i, diff)
		}
		c.output.Reset()
	}
	if want := []string{
		"All patch Secret registry", "All create Publication " + registry,
		"patch Secret registry", "create Publication " + registry,
		"All patch Secret registry", "All create Publication " + registry,
		"patch Secret registry", "create Publication " + registry,
		"All patch Secret registry", "All create Publication " + registry, "All update Publication " + registry,
		"patch Secret registry", "create Publication " + registry, "update Publication " + registry,
	}; !slices.Equal(c.written, want) {
		t.Errorf("unexpected writes %q", c.written)
	}
	u, err := c.objects.Resource(v1alpha1.SchemeGroupVersion.WithResource("publications")).
		Get(t.Context(), registry, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"from": map[string]any{
			"apiVersion": "v1",
			"kind":       "Secret",
			"namespace":  "platform",
			"name":       "registry",
		},
		"tenants": map[string]any{"all": true},
		"hold":    true,
	}
	if diff := cmp.Diff(want, u.Object["spec"]); diff != "" {
		t.Errorf("the spec (-want +got):\n%s", diff)
	}
}

// TestPublishStored checks that, for a stored object, only its Publication is written.
func TestPublishStored(t *testing.T) {
	c := newCluster(t, secret("platform"))
	p := c.publisher()
	o := &publish.Object{Content: secret("platform"), Stored: true}
	if err := errors.Join(p.Prepare(t.Context(), o), p.Publish(t.Context(), o)); err != nil {
		t.Fatal(err)
	}
	if want := []string{"create Publication " + registry}; !slices.Equal(c.written, want) {
		t.Errorf("unexpected writes %q", c.written)
	}
}

// TestRefusals checks that errors contain the server's reason and advice.
func TestRefusals(t *testing.T) {
	publications := schema.GroupResource{Group: tenant.Domain, Resource: "publications"}
	for name, c := range map[string]struct {
		verb, resource string
		err            error
		want           string
		refused        bool
	}{
		"no right to create Publications": {
			"create", "publications", apierrors.NewForbidden(publications, registry, errors.New("no right")),
			"publish Secret platform/registry: publications.kubetenant.dev \"" + registry + "\" is forbidden: no right", true,
		},
		"no CustomResourceDefinition": {
			"create", "publications", apierrors.NewGenericServerResponse(404, "create", publications, "", "", 0, true),
			"the CustomResourceDefinition publications.kubetenant.dev is not installed: see docs/install.md", true,
		},
		"no right to read the object": {
			"get", "secrets", apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "registry", errors.New("no")),
			"you may not publish an object that you may not read", true,
		},
		"fields of another program": {
			"patch", "secrets",
			apierrors.NewApplyConflict(nil, "Apply failed with 1 conflict: conflict with \"argocd\": .data.a"),
			"Secret platform/registry has fields that another program manages: Apply failed with 1 conflict: conflict with " +
				"\"argocd\": .data.a: change the object with that program, and publish it as KIND/NAME", true,
		},
		"other error": {"patch", "secrets", errors.New("broken"), "publish Secret platform/registry: broken", false},
	} {
		t.Run(name, func(t *testing.T) {
			k := newCluster(t)
			k.objects.PrependReactor(c.verb, c.resource,
				func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.err })
			p, o := k.publisher(), &publish.Object{Content: secret("platform")}
			err := p.Prepare(t.Context(), o)
			if err == nil {
				err = p.Publish(t.Context(), o)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, tenancy.ErrRefused) != c.refused {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

// TestTooLarge checks that Plan rejects copies whose total size exceeds the maximum.
func TestTooLarge(t *testing.T) {
	var more []*unstructured.Unstructured
	for i := range 300 {
		more = append(more, namespace(fmt.Sprintf("initech--%03d", i), "initech"))
	}
	c := newCluster(t, more...)
	p, o := c.publisher(), &publish.Object{Content: secret("platform")}
	o.Content.Object["data"] = map[string]any{"a": strings.Repeat("YWFh", 1<<18)}
	if err := p.Prepare(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	_, err := p.Plan(t.Context(), o)
	if err == nil || !errors.Is(err, tenancy.ErrRefused) ||
		!strings.Contains(err.Error(), "303 copies of Secret platform/registry need 303 MiB, and at most 256 MiB are") {
		t.Error(err)
	}
}

// TestRead checks that Read parses the objects in a file and rejects other content.
func TestRead(t *testing.T) {
	const a, b = "{apiVersion: v1, kind: Secret, metadata: {name: a}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}"
	for text, want := range map[string]string{
		a: "Secret platform/a",
		"{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: b}}": "Secret b/a",
		a + "\n---\n---\n" + b:                             "Secret platform/a, ConfigMap platform/b",
		"{apiVersion: v1, kind: List, items: [" + a + "]}": "Secret platform/a",
		"": "there is no object in it",
		"{apiVersion: v1, kind: Secret, metadata: {}}":                      "document 1: metadata.name must be set",
		"{apiVersion: v1, metadata: {name: a}}":                             "document 1: Object 'Kind' is missing",
		"{kind: Secret, metadata: {name: a}}":                               "document 1: apiVersion and kind must be set",
		"{apiVersion: v1, kind: Secret, kind: Secret, metadata: {name: a}}": "document 1: ",
	} {
		t.Run(text, func(t *testing.T) {
			var got []string
			all, err := publish.Read([]byte(text), "platform", false)
			for _, o := range all {
				got = append(got, fmt.Sprintf("%s %s/%s", o.Content.GetKind(), o.Content.GetNamespace(), o.Content.GetName()))
			}
			if err != nil {
				got = []string{err.Error()}
			}
			if is := strings.Join(got, ", "); !strings.HasPrefix(is, want) || want == "" {
				t.Errorf("%q; want %q", is, want)
			}
		})
	}
	_, err := publish.Read([]byte("{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: b}}"), "platform", true)
	if want := `document 1: the namespace of Secret is "b", but -n is "platform"`; err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
}

// TestPublishUnchecked checks that the command makes the server check the content of the object if
// the server has not checked the Publication's author. Otherwise, the command does not update the
// Publication.
func TestPublishUnchecked(t *testing.T) {
	for reason, want := range map[string]int{v1alpha1.ReasonAuthorNotChecked: 1, v1alpha1.ReasonPublished: 0} {
		t.Run(reason, func(t *testing.T) {
			for _, annotation := range []string{"", "0123"} {
				c := newCluster(t)
				p := c.publisher()
				p.Spec.Tenants.All = true
				o := &publish.Object{Content: secret("platform")}
				if err := p.Prepare(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				stored, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.Publication())
				if err != nil {
					t.Fatal(err)
				}
				u := &unstructured.Unstructured{Object: stored}
				if annotation != "" {
					u.SetAnnotations(map[string]string{tenant.PublishedAnnotation: annotation})
				}
				u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "reason": reason}}}
				if err := c.objects.Tracker().Add(u); err != nil {
					t.Fatal(err)
				}
				if err := p.Publish(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				updates := 0
				for _, w := range c.written {
					if strings.HasPrefix(w, "update Publication") {
						updates++
					}
				}
				if updates != want {
					t.Errorf("%s, annotation %q: %q, want %d updates", reason, annotation, c.written, want)
				}
			}
		})
	}
}
