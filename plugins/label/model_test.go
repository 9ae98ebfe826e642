// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package label_test

import (
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins/label"
)

const absent = "-" // the object has no label

// write is one random write of TestLabelModel.
type write struct {
	namespace, kind, subresource string
	update, fromStored           bool   // whether the stored metadata is used after Admit
	was, is                      string // the label
	keys                         []string
	bound                        string // the group and kind to which a token is bound
}

var owners = map[string]string{
	"a--web":      "a",
	"b--web":      "b",
	"bad":         absent,
	"missing":     absent,
	"kube-system": absent,
	"":            absent,
}

// stored is the model. It returns the label that is stored, or false if the write is denied.
func (w *write) stored() (string, bool) {
	want, known := owners[w.namespace]
	switch {
	case w.kind == "Namespace":
		return w.is, true // TenantNamespace checks this label
	case w.kind == "Binding":
		for _, key := range append(w.keys, labelKey(w.is)...) {
			if strings.HasPrefix(strings.ToLower(key), "kubetenant.dev/") || key == "yunikorn.apache.org/user.info" {
				return "", false
			}
		}
		return w.is, known
	case w.kind == "TokenRequest":
		// In the system tenant's namespaces, a token may be bound to any kind.
		owned := w.namespace == "a--web" || w.namespace == "b--web" || w.namespace == "bad" || w.namespace == "missing"
		return w.is, known && (w.bound == "" || !owned || w.bound == "/Pod" || w.bound == "/Secret")
	case w.kind == "Scale", w.kind == "Eviction":
		return w.is, known
	case !known:
		return "", false
	case w.fromStored && w.update && w.subresource != "":
		return w.was, true
	case w.is == want, w.is == absent, w.update && w.is == w.was, w.isRewritten():
		return want, true
	}
	return "", false
}

// isRewritten reports whether the label of a new object is rewritten, because its namespace has a
// known owner.
func (w *write) isRewritten() bool {
	return !w.update && (w.namespace == "a--web" || w.namespace == "b--web" || w.namespace == "kube-system")
}

func labelKey(value string) []string {
	if value == absent {
		return nil
	}
	return []string{"kubetenant.dev/tenant"}
}

func makeWrite(r *rand.Rand) write {
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	w := write{
		namespace: pick("a--web", "a--web", "b--web", "bad", "missing", "away", "kube-system", ""),
		kind:      "ConfigMap",
		update:    r.IntN(2) == 0,
		was:       pick("a", "a", "b", absent, "", "system"),
		is:        pick("a", "a", "b", absent, absent, "", "all"),
	}
	if r.IntN(2) == 0 {
		w.is = w.was
	}
	switch r.IntN(12) {
	case 0:
		w.kind = "Namespace"
	case 1:
		w.kind, w.subresource = "Binding", "binding"
		w.keys = []string{
			pick("example.com/x", "kubetenant.dev/creator", "KubeTenant.dev/x",
				"yunikorn.apache.org/user.info", "xkubetenant.dev/x"),
		}
	case 2:
		w.kind, w.subresource, w.update, w.bound = "TokenRequest", "token", false,
			pick("", "/Pod", "/Secret", "/Node", "apps/Pod", "/pod")
	case 3:
		w.kind, w.subresource = pick("Scale", "Eviction"), "scale"
	case 4, 5:
		w.subresource, w.update, w.fromStored = "status", true, r.IntN(2) == 0
	}
	return w
}

func metadata(namespace, value string, keys []string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Name:        "x",
		Namespace:   namespace,
		Labels:      map[string]string{"other": "kept"},
		Annotations: map[string]string{"other": "kept"},
	}
	if value != absent {
		m.Labels["kubetenant.dev/tenant"] = value
	}
	for _, key := range keys {
		m.Annotations[key] = "x"
	}
	return m
}

// object returns the object of the write as a typed or unstructured object.
func (w *write) object(t *testing.T, value string, isUnstructured bool) runtime.Object {
	t.Helper()
	m := metadata(w.namespace, value, w.keys)
	var o runtime.Object = &corev1.ConfigMap{ObjectMeta: m}
	if w.kind == "TokenRequest" {
		token := &authenticationv1.TokenRequest{ObjectMeta: m}
		if w.bound != "" {
			group, kind, _ := strings.Cut(w.bound, "/")
			token.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
				Kind:       kind,
				APIVersion: strings.TrimPrefix(group+"/v1", "/"),
			}
		}
		return token
	}
	if isUnstructured {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		o = &unstructured.Unstructured{Object: content}
	}
	return o
}

// TestLabelModel compares random writes with the model. An admitted write must store the label
// that the model returns.
func TestLabelModel(t *testing.T) {
	t.Parallel()
	groups := map[string]string{"Scale": "autoscaling", "Eviction": "policy", "TokenRequest": "authentication.k8s.io"}
	resources := map[string]string{
		"Namespace":    "namespaces",
		"Binding":      "pods",
		"TokenRequest": "serviceaccounts",
		"Scale":        "deployments",
		"Eviction":     "pods",
		"ConfigMap":    "configmaps",
	}
	refused := 0
	const writes = 50_000
	p := label.New(owner)
	for seed := range uint64(writes) {
		r := rand.New(rand.NewPCG(seed, 0))
		w := makeWrite(r)
		isUnstructured := r.IntN(2) == 0
		is, was := w.object(t, w.is, isUnstructured), w.object(t, w.was, isUnstructured)
		operation := admission.Create
		if w.update {
			operation = admission.Update
		} else {
			was = nil
		}
		a := admission.NewAttributesRecord(is, was,
			schema.GroupVersionKind{Group: groups[w.kind], Version: "v1", Kind: w.kind}, w.namespace, "x",
			schema.GroupVersionResource{Version: "v1", Resource: resources[w.kind]}, w.subresource, operation, nil, false, nil)
		err := p.Admit(t.Context(), a, nil)
		if err == nil && w.fromStored {
			labels := maps.Clone(was.(metav1.Object).GetLabels())
			is.(metav1.Object).SetLabels(labels)
		}
		if err == nil {
			err = p.Validate(t.Context(), a, nil)
		}
		got, ok := is.(metav1.Object).GetLabels()["kubetenant.dev/tenant"]
		if !ok {
			got = absent
		}
		want, accepted := w.stored()
		if accepted != (err == nil) || accepted && got != want {
			t.Fatalf("write %d, %+v: %q, %v; want %q, accepted %v", seed, w, got, err, want, accepted)
		}
		if is.(metav1.Object).GetLabels()["other"] != "kept" {
			t.Fatalf("write %d, %+v: other labels were changed", seed, w)
		}
		if err != nil {
			refused++
		}
	}
	if t.Logf("%d of %d refused", refused, writes); refused < writes/10 || refused > writes*9/10 {
		t.Error("too few writes are denied or admitted")
	}
}
