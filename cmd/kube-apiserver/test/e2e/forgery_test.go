// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/test/waittest"
)

const forgedText = `{"user":"forged","tenant":"system"}`

// protectedKind is a kind of object whose protected keys the test tries to forge.
type protectedKind struct {
	kind         string
	resource     schema.GroupVersionResource
	spec         map[string]any
	template     []string // path of the pod template, nil if there is none
	subresources []string
	application  bool
}

func (g protectedKind) object(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	for key, value := range g.spec {
		u.Object[key] = value
	}
	u = u.DeepCopy()
	u.SetGroupVersionKind(g.resource.GroupVersion().WithKind(g.kind))
	u.SetNamespace("acme--web")
	u.SetName(name)
	return u
}

// keyPosition is the position of a protected annotation or label in an object.
type keyPosition struct {
	key  string
	path []string // path of the map that contains the key
}

func (g protectedKind) keyPositions() []keyPosition {
	annotations := []string{"metadata", "annotations"}
	out := []keyPosition{
		{tenant.CreatorAnnotation, annotations},
		{tenant.OnBehalfOfAnnotation, annotations},
		{tenant.Label, []string{"metadata", "labels"}},
	}
	if g.application {
		out = append(out, keyPosition{tenant.IdentityAnnotation, annotations})
	}
	if g.template != nil {
		out = append(out, keyPosition{tenant.WorkloadUserAnnotation, slices.Concat(g.template, annotations)})
	}
	return out
}

func protectedKinds() []protectedKind {
	pod := map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}}
	template := func(more map[string]any) map[string]any {
		spec := maps.Clone(pod)
		maps.Copy(spec, more)
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "x"}}, "spec": spec}
	}
	selector := map[string]any{"matchLabels": map[string]any{"app": "x"}}
	never := map[string]any{"restartPolicy": "Never"}
	apps := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}
	}
	core := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: resource}
	}
	batch := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: resource}
	}
	spec := func(fields map[string]any) map[string]any { return map[string]any{"spec": fields} }
	inSpec := []string{"spec", "template"}
	return []protectedKind{
		{"ConfigMap", core("configmaps"), map[string]any{"data": map[string]any{"k": "v"}}, nil, nil, false},
		{"Widget", widgets, spec(map[string]any{"n": int64(1)}), nil, []string{"status"}, true},
		{
			"Farm",
			schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "farms"},
			spec(map[string]any{"template": template(nil)}),
			inSpec,
			[]string{"status"},
			false,
		},
		{"Pod", core("pods"), spec(pod), []string{}, []string{"status", "ephemeralcontainers", "resize"}, false},
		{"PodTemplate", core("podtemplates"), map[string]any{"template": template(nil)}, []string{"template"}, nil, false},
		{
			"ReplicationController",
			core("replicationcontrollers"),
			spec(map[string]any{"replicas": int64(0), "selector": map[string]any{"app": "x"}, "template": template(nil)}),
			inSpec,
			[]string{"status", "scale"},
			false,
		},
		{
			"Deployment",
			apps("deployments"),
			spec(map[string]any{"replicas": int64(0), "selector": selector, "template": template(nil)}),
			inSpec,
			[]string{"status", "scale"},
			false,
		},
		{
			"ReplicaSet",
			apps("replicasets"),
			spec(map[string]any{"replicas": int64(0), "selector": selector, "template": template(nil)}),
			inSpec,
			[]string{"status", "scale"},
			false,
		},
		{
			"StatefulSet",
			apps("statefulsets"),
			spec(map[string]any{
				"replicas":    int64(0),
				"serviceName": "x",
				"selector":    selector,
				"template":    template(nil),
			}),
			inSpec,
			[]string{"status", "scale"},
			false,
		},
		{
			"DaemonSet",
			apps("daemonsets"),
			spec(map[string]any{"selector": selector, "template": template(nil)}),
			inSpec,
			[]string{"status"},
			false,
		},
		{
			"Job",
			batch("jobs"),
			spec(map[string]any{"suspend": true, "template": template(never)}),
			inSpec,
			[]string{"status"},
			false,
		},
		{
			"CronJob",
			batch("cronjobs"),
			spec(map[string]any{
				"suspend":     true,
				"schedule":    "0 0 1 1 *",
				"jobTemplate": map[string]any{"spec": map[string]any{"template": template(never)}},
			}),
			[]string{"spec", "jobTemplate", "spec", "template"},
			[]string{"status"},
			false,
		},
	}
}

const forgeryConfig = `admission:
  restriction: { resources: [ { resource: nodes } ] }
  workloads: [ { group: example.com, kind: Farm, paths: [ spec.template ] } ]
  binding: { kinds: [ { group: example.com, kind: Widget } ] }
`

const forgeryRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: everything }
rules: [ { apiGroups: ["*"], resources: ["*"], verbs: ["*"] } ]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: { name: everything, namespace: acme--web }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: everything }
subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: Group, name: "tenant:acme" } ]
`

func definition(plural, kind string) string {
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: %s.example.com }
spec:
  group: example.com
  scope: Namespaced
  names: { plural: %[1]s, singular: %s, kind: %s, listKind: %[3]sList }
  versions: [ { name: v1, served: true, storage: true, subresources: { status: {} },
    schema: { openAPIV3Schema: { type: object, x-kubernetes-preserve-unknown-fields: true } } } ]
`, plural, strings.ToLower(kind), kind)
}

// TestForgery checks that no write changes a protected key of an object. It tries every method of
// create and update for each kind of protectedKinds, as a caller of a tenant and as a caller of the
// system tenant.
func TestForgery(t *testing.T) {
	t.Parallel()
	testForgery(t, certificatesConfig)
}

func TestWebhookForgery(t *testing.T) {
	t.Parallel()
	testForgery(t, groupsConfig, "--webhook")
}

func testForgery(t *testing.T, config string, args ...string) {
	s := startServer(t, map[string]string{"tenancy.yaml": config + forgeryConfig}, args...)
	s.prepare(t)
	s.apply(t, definition("widgets", "Widget")+"---"+definition("farms", "Farm")+"---"+forgeryRights)
	f := &forger{t: t, clients: map[string]dynamic.Interface{}}
	for _, caller := range []string{"acme", "admin"} {
		quiet := s.config(t, caller)
		quiet.WarningHandler = rest.NoWarnings{}
		c := dynamicClient(t, quiet)
		f.clients[caller] = c
	}
	for _, g := range protectedKinds() {
		waittest.Until(t, func() error { // until the server serves the kind and the service account exists
			_, err := f.client("acme", g).Create(t.Context(), g.object("standing"), metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				err = nil
			}
			return err
		})
		f.truth = f.stored(g)
		for _, p := range g.keyPositions() {
			for caller := range f.clients {
				f.tryCreates(caller, g, p)
				f.tryUpdates(caller, g, p)
			}
		}
	}
	f.tryOtherRequests()
	t.Logf("tried %d, refused %d, forged %d", f.tried, f.refused, f.forged)
	if f.tried < 2000 || f.refused == f.tried {
		t.Errorf("too few attempts: tried %d, refused %d", f.tried, f.refused)
	}
}

type forger struct {
	t                      *testing.T
	clients                map[string]dynamic.Interface
	truth                  *unstructured.Unstructured
	tried, refused, forged int
}

func (f *forger) client(caller string, g protectedKind) dynamic.ResourceInterface {
	return f.clients[caller].Resource(g.resource).Namespace("acme--web")
}

func (f *forger) stored(g protectedKind) *unstructured.Unstructured {
	f.t.Helper()
	u, err := f.client("admin", g).Get(f.t.Context(), "standing", metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(g.kind, err)
	}
	return u
}

func valueAt(u *unstructured.Unstructured, p keyPosition) string {
	value, found, err := unstructured.NestedString(u.Object, append(slices.Clone(p.path), p.key)...)
	if err != nil || !found {
		return "absent"
	}
	return value
}

func forgedValue(p keyPosition) string {
	if p.key == tenant.Label {
		return "globex"
	}
	return forgedText
}

// tryCreates tries to create an object with a forged value of the key, with each method of
// creation.
func (f *forger) tryCreates(caller string, g protectedKind, p keyPosition) {
	for _, method := range []string{"create", "generateName", "dry run", "apply", "apply with force"} {
		u := g.object("forged")
		if err := unstructured.SetNestedField(u.Object, forgedValue(p), append(slices.Clone(p.path), p.key)...); err != nil {
			f.t.Fatal(err)
		}
		o := metav1.CreateOptions{}
		var got *unstructured.Unstructured
		var err error
		switch method {
		case "apply", "apply with force":
			got, err = f.client(caller, g).Apply(f.t.Context(), u.GetName(), u,
				metav1.ApplyOptions{FieldManager: "forger", Force: method != "apply"})
		case "dry run":
			o.DryRun = []string{metav1.DryRunAll}
			got, err = f.client(caller, g).Create(f.t.Context(), u, o)
		case "generateName":
			u.SetName("")
			u.SetGenerateName("forged-")
			got, err = f.client(caller, g).Create(f.t.Context(), u, o)
		default:
			got, err = f.client(caller, g).Create(f.t.Context(), u, o)
		}
		f.tried++
		if err != nil {
			f.refused++
			continue
		}
		if value := valueAt(got, p); value == forgedValue(p) {
			f.forged++
			f.t.Errorf("%s: %s of %s %s: stored %s", caller, method, g.kind, p.key, value)
		}
		if method != "dry run" {
			zero := int64(0)
			if err := f.client("admin", g).Delete(f.t.Context(), got.GetName(),
				metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
				f.t.Fatal(err)
			}
		}
	}
}

// writeMethods contains the methods that change an object.
var writeMethods = []string{"update", "json-patch", "merge-patch", "strategic", "apply", "force-apply"}

// tryUpdates tries to forge and to remove the key, through the object and through each of its
// subresources.
func (f *forger) tryUpdates(caller string, g protectedKind, p keyPosition) {
	for _, sub := range append([]string{""}, g.subresources...) {
		for _, method := range writeMethods {
			for _, remove := range []bool{false, true} {
				f.tryUpdate(caller, g, p, sub, method, remove, false)
				if method == "update" || method == "merge-patch" {
					f.tryUpdate(caller, g, p, sub, method, remove, true)
				}
			}
		}
	}
}

func (f *forger) tryUpdate(caller string, g protectedKind, p keyPosition, sub, method string, remove, dry bool) {
	var dryRun []string
	if dry {
		dryRun = []string{metav1.DryRunAll}
	}
	var subs []string
	if sub != "" {
		subs = []string{sub}
	}
	at := append(slices.Clone(p.path), p.key)
	client := f.client(caller, g)
	var got *unstructured.Unstructured
	var err error
	switch method {
	case "update":
		u := f.stored(g)
		unstructured.RemoveNestedField(u.Object, at...)
		if !remove {
			if err := unstructured.SetNestedField(u.Object, forgedValue(p), at...); err != nil {
				f.t.Fatal(err)
			}
		}
		got, err = client.Update(f.t.Context(), u, metav1.UpdateOptions{DryRun: dryRun}, subs...)
	case "apply", "force-apply":
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetGroupVersionKind(g.resource.GroupVersion().WithKind(g.kind))
		u.SetName("standing")
		if !remove {
			if err := unstructured.SetNestedField(u.Object, forgedValue(p), at...); err != nil {
				f.t.Fatal(err)
			}
		}
		got, err = client.Apply(f.t.Context(), "standing", u,
			metav1.ApplyOptions{FieldManager: "forger", Force: method == "force-apply", DryRun: dryRun}, subs...)
	default:
		kind := map[string]types.PatchType{
			"json-patch":  types.JSONPatchType,
			"merge-patch": types.MergePatchType,
			"strategic":   types.StrategicMergePatchType,
		}[method]
		got, err = client.Patch(f.t.Context(), "standing", kind, f.patch(at, p, method, remove),
			metav1.PatchOptions{DryRun: dryRun}, subs...)
	}
	f.tried++
	if err != nil {
		f.refused++
	}
	if dry && err != nil {
		return
	}
	attempt := fmt.Sprintf("%s: %s of %s/%s %s, remove %t, dry run %t", caller, method, g.kind, sub, p.key, remove, dry)
	if dry && got.GetKind() == g.kind && valueAt(got, p) != valueAt(f.truth, p) {
		f.forged++
		f.t.Errorf("%s: answered %s", attempt, valueAt(got, p))
	}
	if dry {
		return
	}
	// No protected value may change.
	if value := valueAt(f.stored(g), p); value != valueAt(f.truth, p) {
		f.forged++
		f.t.Errorf("%s: stored %s, was %s", attempt, value, valueAt(f.truth, p))
		f.truth = f.stored(g)
	}
}

func (f *forger) patch(at []string, p keyPosition, method string, remove bool) []byte {
	var patch any
	if method == "json-patch" {
		escape := strings.NewReplacer("~", "~0", "/", "~1")
		path := ""
		for _, name := range at {
			path += "/" + escape.Replace(name)
		}
		op := map[string]any{"op": "add", "path": path, "value": forgedValue(p)}
		if remove {
			op = map[string]any{"op": "remove", "path": path}
		}
		patch = []any{op}
	} else {
		var value any = forgedValue(p)
		if remove {
			value = nil
		}
		for _, name := range slices.Backward(at) {
			value = map[string]any{name: value}
		}
		patch = value
	}
	data, err := json.Marshal(patch)
	if err != nil {
		f.t.Fatal(err)
	}
	return data
}

// tryOtherRequests tries to forge keys with bindings and evictions of a Pod, whose bodies have
// their own metadata. It also tries the deletion of collections.
func (f *forger) tryOtherRequests() {
	pods := protectedKinds()[3]
	for _, p := range pods.keyPositions() {
		for _, body := range []map[string]any{
			{"apiVersion": "v1", "kind": "Binding", "target": map[string]any{"kind": "Node", "name": "n"}},
			{"apiVersion": "policy/v1", "kind": "Eviction", "deleteOptions": map[string]any{"dryRun": []any{"All"}}},
		} {
			for caller := range f.clients {
				u := &unstructured.Unstructured{Object: body}
				u = u.DeepCopy()
				u.SetName("standing")
				if err := unstructured.SetNestedField(u.Object, forgedValue(p),
					append(slices.Clone(p.path), p.key)...); err != nil {
					f.t.Fatal(err)
				}
				sub := map[string]string{"Binding": "binding", "Eviction": "eviction"}[u.GetKind()]
				_, err := f.client(caller, pods).Create(f.t.Context(), u, metav1.CreateOptions{}, sub)
				f.tried++
				if err != nil {
					f.refused++
				}
				if now := f.stored(pods); valueAt(now, p) != valueAt(f.unforgedObject(pods), p) {
					f.forged++
					f.t.Errorf("%s: %s with %s: stored %s", caller, u.GetKind(), p.key, valueAt(now, p))
				}
			}
		}
	}
	for _, g := range protectedKinds() {
		f.tried++
		if err := f.client("acme", g).DeleteCollection(f.t.Context(),
			metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ListOptions{}); err != nil {
			f.refused++
		}
		for _, p := range g.keyPositions() {
			if value := valueAt(f.stored(g), p); value == forgedValue(p) {
				f.forged++
				f.t.Errorf("deletecollection of %s: %s is %s", g.kind, p.key, value)
			}
		}
	}
}

// unforgedObject creates an object without a forged key, in a dry run.
func (f *forger) unforgedObject(g protectedKind) *unstructured.Unstructured {
	u, err := f.client("acme", g).Create(f.t.Context(), g.object("honest"),
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		f.t.Fatal(err)
	}
	return u
}
