// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/internal/cli/publish"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var secretsResource = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// confirmation is a cluster with an unchecked Publication of the Secret platform/registry.
type confirmation struct {
	*cluster
	t *testing.T
	// change is called after the command has read the source, and before it confirms the content.
	// race is called before the first update.
	change, race func(*confirmation)
	// confirms specifies whether the author has the required rights. If not, the server restores
	// the annotation.
	confirms bool
	refuses  error // the error that an update returns
}

// edit changes the stored Secret like another caller.
func (c *confirmation) edit(change func(*unstructured.Unstructured)) {
	c.t.Helper()
	stored, err := c.objects.Tracker().Get(secretsResource, "platform", "registry")
	if err != nil {
		c.t.Fatal(err)
	}
	u := stored.DeepCopyObject().(*unstructured.Unstructured)
	change(u)
	if err := c.objects.Tracker().Update(secretsResource, u, "platform"); err != nil {
		c.t.Fatal(err)
	}
}

// update responds to an update like the server's admission plugin.
func (c *confirmation) update(action clienttesting.Action) (bool, runtime.Object, error) {
	_, _, _ = c.record(action)
	if race := c.race; race != nil {
		c.race = nil
		race(c)
		return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), "registry", errors.New("changed"))
	}
	if c.refuses != nil {
		return true, nil, c.refuses
	}
	u := action.(clienttesting.UpdateAction).GetObject().(*unstructured.Unstructured).DeepCopy()
	stored, err := c.objects.Tracker().Get(action.GetResource(), action.GetNamespace(), u.GetName())
	if err != nil {
		return true, nil, err
	}
	annotations := stored.(*unstructured.Unstructured).GetAnnotations()
	if c.confirms {
		source, err := c.objects.Tracker().Get(secretsResource, "platform", "registry")
		if err != nil {
			return true, nil, err
		}
		content, err := (&publication.Rules{}).Content(source.(*unstructured.Unstructured), nil)
		if err != nil {
			return true, nil, err
		}
		annotations = map[string]string{tenant.PublishedAnnotation: content.Hash}
	}
	u.SetAnnotations(annotations)
	if len(action.(clienttesting.UpdateActionImpl).UpdateOptions.DryRun) > 0 {
		return true, u, nil
	}
	return true, u, c.objects.Tracker().Update(action.GetResource(), u, action.GetNamespace())
}

func withData(value string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { u.Object["data"] = map[string]any{"x": value} }
}

// TestConfirm checks that the command makes the server confirm the content of a source. The server
// MUST NOT confirm content that the caller has not published.
func TestConfirm(t *testing.T) {
	const source, object = "update Secret registry", "update Publication " + registry
	relabel := func(c *confirmation) {
		c.edit(func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"a": "b"}) })
	}
	forge := func(c *confirmation) { c.edit(withData("Zm9yZ2Vk")) }
	sealed := func(c *confirmation) {
		c.edit(func(u *unstructured.Unstructured) { u.Object["type"] = "bootstrap.kubernetes.io/token" })
	}
	content, err := (&publication.Rules{}).Content(func() *unstructured.Unstructured {
		u := secret("platform")
		withData("eQ==")(u)
		return u
	}(), nil)
	if err != nil {
		t.Fatal(err)
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "registry", errors.New("no rights"))
	for name, c := range map[string]struct {
		confirmation
		annotated string // the annotation of the source
		defaults  bool   // the server adds a field to the applied source
		applies   bool   // the source is written from a file
		dryRun    []string
		updates   []string
		said      string
		want      string // a part of the error
	}{
		"annotation on the source": {
			confirmation: confirmation{confirms: true},
			annotated:    "0123",
			updates:      []string{source},
			said:         "configured",
		},
		"annotation on the Publication": {
			confirmation: confirmation{confirms: true}, updates: []string{object}, said: "configured",
		},
		"already confirmed": {
			confirmation: confirmation{confirms: true},
			annotated:    content.Hash,
			updates:      []string{source},
			said:         "unchanged",
		},
		"no rights, annotation on the source": {
			annotated: "0123",
			updates:   []string{source},
			want:      "does not let you publish the content of Secret platform/registry",
		},
		"no rights, annotation on the Publication": {updates: []string{object}, want: "does not let you publish"},
		"the server forbids the update": {
			confirmation: confirmation{refuses: forbidden},
			annotated:    "0123",
			updates:      []string{source},
			want:         "no rights",
		},
		"other metadata changes at the same time": {
			confirmation: confirmation{confirms: true, race: relabel},
			annotated:    "0123",
			updates:      []string{source, source},
			said:         "configured",
		},
		"the content changes at the same time": {
			confirmation: confirmation{confirms: true, race: forge},
			annotated:    "0123",
			updates:      []string{source},
			want:         "Secret platform/registry has changed since it was read",
		},
		"the content changes before": {
			confirmation: confirmation{confirms: true, change: forge}, annotated: "0123", want: "has changed since it was read",
		},
		"the content changes before, without an annotation": {
			confirmation: confirmation{confirms: true, change: forge}, want: "has changed since it was read",
		},
		"the content changes after it was applied": {
			confirmation: confirmation{confirms: true, change: forge}, applies: true, want: "has changed since it was read",
		},
		"the type changes": {
			confirmation: confirmation{confirms: true, change: sealed}, annotated: "0123", want: "has changed since it was read",
		},
		"applied": {
			confirmation: confirmation{confirms: true},
			applies:      true,
			updates:      []string{object},
			said:         "configured",
		},
		"applied, with a default of the server": {
			confirmation: confirmation{confirms: true},
			applies:      true,
			defaults:     true,
			updates:      []string{object},
			said:         "configured",
		},
		"a dry run": {
			confirmation: confirmation{confirms: true, change: forge},
			applies:      true,
			dryRun:       []string{metav1.DryRunAll},
			updates:      []string{"All " + object},
			said:         "configured",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &c.confirmation
			u := secret("platform")
			withData("eQ==")(u)
			if c.annotated != "" {
				u.SetAnnotations(map[string]string{tenant.PublishedAnnotation: c.annotated})
			}
			s.t, s.cluster = t, newCluster(t, u)
			p := s.publisher()
			p.DryRun = c.dryRun
			o := &publish.Object{Content: u.DeepCopy(), Stored: !c.applies}
			if err := p.Prepare(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			stored, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.Publication())
			if err != nil {
				t.Fatal(err)
			}
			stored["status"] = map[string]any{
				"conditions": []any{map[string]any{"type": "Ready", "reason": v1alpha1.ReasonAuthorNotChecked}},
			}
			if err := s.objects.Tracker().Add(&unstructured.Unstructured{Object: stored}); err != nil {
				t.Fatal(err)
			}
			s.objects.PrependReactor("update", "*", s.update)
			s.objects.PrependReactor("patch", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
				if !c.defaults {
					return false, nil, nil
				}
				_, applied, err := s.record(a)
				if err != nil {
					return true, nil, err
				}
				applied.(*unstructured.Unstructured).Object["type"] = "Opaque"
				return true, applied, s.objects.Tracker().Update(secretsResource, applied, "platform")
			})
			s.objects.PrependReactor("create", "publications", func(clienttesting.Action) (bool, runtime.Object, error) {
				if s.change != nil {
					s.change(s)
				}
				return false, nil, nil
			})
			err = p.Publish(t.Context(), o)
			switch {
			case c.want == "" && err != nil, c.want != "" && !errors.Is(err, tenancy.ErrRefused):
				t.Errorf("the error is %v, want %q", err, c.want)
			case err != nil && !strings.Contains(err.Error(), c.want):
				t.Errorf("the error is %v, want %q", err, c.want)
			}
			updates := slices.DeleteFunc(s.written, func(w string) bool { return !strings.Contains(w, "update ") })
			if !slices.Equal(updates, c.updates) {
				t.Errorf("the updates are %q, want %q", updates, c.updates)
			}
			said := s.output.String()
			if !strings.Contains(said, c.said) || c.want != "" && strings.Contains(said, "publication") {
				t.Errorf("the output is %q, want %q", said, c.said)
			}
		})
	}
}
