// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubetenant/kubetenant/plugins"
)

type warnings []string

func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

func recorder(ctx context.Context) (context.Context, *warnings) {
	w := &warnings{}
	return warning.WithWarningRecorder(ctx, w), w
}

func updateBy(options runtime.Object) admission.Attributes {
	return admission.NewAttributesRecord(&corev1.ConfigMap{}, &corev1.ConfigMap{},
		corev1.SchemeGroupVersion.WithKind("ConfigMap"), "a--web", "x",
		corev1.SchemeGroupVersion.WithResource("configmaps"), "", admission.Update, options, false, nil)
}

// TestWarnRestored checks that users of kubectl get one warning for each key. Controllers and users
// of kubectl replace get none.
func TestWarnRestored(t *testing.T) {
	const label, template = "the label a is managed by the server and was not removed",
		"spec.template: the label a is managed by the server and was not removed"
	for manager, ok := range map[string]bool{
		"kubectl":                   true,
		"kubectl-label":             true,
		"kubectl-edit":              true,
		"kubectl-patch":             true,
		"kubectl-client-side-apply": true,
		"kubectl-replace":           false,
		"operator":                  false,
		"":                          false,
	} {
		t.Run(manager, func(t *testing.T) {
			ctx, got := recorder(t.Context())
			a := updateBy(&metav1.UpdateOptions{FieldManager: manager})
			plugins.WarnRestored(ctx, a, "", "label", "b", "a")
			plugins.WarnRestored(ctx, a, "spec.template", "label", "a")
			want := warnings{label, "the label b is managed by the server and was not removed", template}
			if !ok {
				want = nil
			}
			if !slices.Equal(*got, want) {
				t.Errorf("%q", *got)
			}
		})
	}
	ctx, got := recorder(t.Context())
	plugins.WarnRestored(ctx, updateBy(nil), "", "label", "a")
	if len(*got) > 0 {
		t.Errorf("without options: %q", *got)
	}
}

// TestRestoreAnnotationsWarns checks that a caller is warned of every added or changed annotation
// that is not stored. Only users of kubectl are warned of removed annotations.
func TestRestoreAnnotationsWarns(t *testing.T) {
	for manager, more := range map[string]int{"kubectl-annotate": 1, "operator": 0} {
		t.Run(manager, func(t *testing.T) {
			oldObj := &metav1.ObjectMeta{Annotations: map[string]string{"changed": "1", "removed": "1", "same": "1"}}
			newObj := &metav1.ObjectMeta{Annotations: map[string]string{"changed": "2", "added": "1", "same": "1"}}
			ctx, got := recorder(t.Context())
			plugins.RestoreAnnotations(ctx, updateBy(&metav1.UpdateOptions{FieldManager: manager}), oldObj, newObj,
				"added", "changed", "removed", "same")
			if err := plugins.CheckUnchanged(oldObj, newObj, "added", "changed", "removed", "same"); err != nil ||
				len(*got) != 2+more {
				t.Errorf("%v, %q", err, *got)
			}
		})
	}
}
