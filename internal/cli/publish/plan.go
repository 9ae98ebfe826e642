// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// action is the action that the server will probably take in a namespace.
type action string

// Actions, in the order in which they are reported.
const (
	conflict action = "conflict"
	replace  action = "replace"
	create   action = "create"
	exists   action = "exists"
)

func actions() []action { return []action{conflict, replace, create, exists} }

// copyPlan is the predicted action in a namespace.
type copyPlan struct {
	namespace string
	action    action
	reason    string
}

// Plan contains the predicted action of the server in each namespace that a Publication selects.
// The zero value contains no namespaces.
type Plan struct{ copies []copyPlan }

// maxExamples is the maximum number of namespaces that [Plan.Print] lists.
const maxExamples = 20

// maxBytes is the maximum total size of the copies of an object.
const maxBytes = 256 << 20

// Plan predicts the server's action in each selected namespace. It returns an error if the total
// size of the copies exceeds the maximum. [Publisher.Prepare] must be called first.
func (p *Publisher) Plan(ctx context.Context, o *Object) (*Plan, error) {
	tenantLabels, err := p.tenantLabels(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	owned := metav1.ListOptions{LabelSelector: tenant.Label}
	if err := p.each(ctx, namespaces, owned, func(ns *metav1.PartialObjectMetadata) {
		id, err := tenant.Parse(ns.Labels[tenant.Label])
		if err == nil && ns.DeletionTimestamp == nil && !slices.Contains(p.System, ns.Name) &&
			o.parsed.Selects(id, nil, true) && o.parsed.SelectsNamespace(ns.Name, tenants.Labels(tenantLabels[id])) {
			names = append(names, ns.Name)
		}
	}); err != nil {
		return nil, err
	}
	others, err := p.existingCopies(ctx, o)
	if err != nil {
		return nil, err
	}
	plan := &Plan{}
	for _, name := range names {
		plan.copies = append(plan.copies, o.planCopy(name, others[name]))
	}
	slices.SortFunc(plan.copies, func(a, b copyPlan) int {
		return cmp.Or(cmp.Compare(slices.Index(actions(), a.action), slices.Index(actions(), b.action)),
			strings.Compare(a.namespace, b.namespace))
	})
	return plan, o.checkSize(len(names))
}

// existingCopies returns the objects that have the same kind and name as o, keyed by namespace.
func (p *Publisher) existingCopies(ctx context.Context, o *Object) (map[string]*metav1.PartialObjectMetadata, error) {
	found := map[string]*metav1.PartialObjectMetadata{}
	named := metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, o.Content.GetName()).String(),
	}
	err := p.each(ctx, o.mapping.Resource, named, func(m *metav1.PartialObjectMetadata) { found[m.Namespace] = m })
	return found, err
}

// planCopy predicts the server's action in a namespace. other is the existing object with the same
// kind and name, or nil.
func (o *Object) planCopy(namespace string, other *metav1.PartialObjectMetadata) copyPlan {
	plan := copyPlan{namespace: namespace, action: create}
	if other == nil {
		return plan
	}
	by, managed := other.Labels[tenant.ManagedLabel]
	switch name := other.Labels[tenant.PublicationLabel]; {
	case managed && name == o.publication.Name:
		plan.action = exists
	case managed && name != "":
		plan.action, plan.reason = conflict, fmt.Sprintf("Publication %s gives an object of this name", name)
	case managed:
		plan.action, plan.reason = conflict, fmt.Sprintf("the server gives an object of this name (%s: %s)",
			tenant.ManagedLabel, by)
	case o.parsed.Replace:
		plan.action = replace
		plan.reason = "the server deletes the object of this name"
	default:
		plan.action = conflict
		plan.reason = "another object has this name: delete it, or set --replace"
	}
	return plan
}

// checkSize returns an error if the total size of the copies exceeds [maxBytes].
func (o *Object) checkSize(copies int) error {
	text, err := json.Marshal(o.Content.Object)
	if err != nil {
		return err
	}
	if total := len(text) * copies; total > maxBytes {
		return fmt.Errorf("%w: %d copies of %s need %d MiB, and at most %d MiB are allowed: publish a smaller object, or "+
			"to fewer namespaces", tenancy.ErrRefused, copies, described(o.Content), total>>20, maxBytes>>20)
	}
	return nil
}

// tenantLabels returns the labels that Tenants specify for their namespaces, keyed by tenant. It
// returns nil if the Publication has no namespace selector, because the labels are then not
// needed.
func (p *Publisher) tenantLabels(ctx context.Context) (map[tenant.ID]map[string]v1alpha1.LabelValue, error) {
	if p.Spec.NamespaceSelector == nil {
		return nil, nil
	}
	byTenant := map[tenant.ID]map[string]v1alpha1.LabelValue{}
	resource := v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)
	list, err := p.Objects.Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, listError(resource.GroupResource(), err)
	}
	for i := range list.Items {
		if id, labels := decodedTenant(&list.Items[i]); !id.IsZero() {
			byTenant[id] = labels
		}
	}
	return byTenant, nil
}

// each calls f for the metadata of each object of a resource, page by page.
func (p *Publisher) each(
	ctx context.Context, resource schema.GroupVersionResource, of metav1.ListOptions,
	f func(*metav1.PartialObjectMetadata),
) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return p.Metadata.Resource(resource).List(ctx, o)
	})
	err := pages.EachListItem(ctx, of, func(obj runtime.Object) error {
		if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
			f(m)
		}
		return nil
	})
	if err != nil {
		return listError(resource.GroupResource(), err)
	}
	return nil
}

// listError adds advice to the error from a list request. Plan needs the right to list, but
// Publish does not.
func listError(resource schema.GroupResource, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: list %s in all namespaces: %s", tenancy.ErrRefused, resource, oneLine(err))
	}
	return fmt.Errorf("list %s: %w", resource, err)
}

// Conflicts returns the number of namespaces in which an existing object prevents a copy.
func (p *Plan) Conflicts() int { return p.count(conflict) }

func (p *Plan) count(a action) (n int) {
	for i := range p.copies {
		if p.copies[i].action == a {
			n++
		}
	}
	return n
}

// Print writes the number of namespaces for each action, and lists at most 20 namespaces.
// Namespaces with a conflict or a replaced object are first.
func (p *Plan) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "namespaces: %d (conflict: %d, replace: %d, create: %d, exists: %d)\n", len(p.copies),
		p.count(conflict), p.count(replace), p.count(create), p.count(exists))
	for i := range p.copies[:min(len(p.copies), maxExamples)] {
		c := &p.copies[i]
		fmt.Fprintf(&b, "  %-8s %s", c.action, output.Safe(c.namespace))
		if c.reason != "" {
			fmt.Fprintf(&b, ": %s", output.Safe(c.reason))
		}
		b.WriteByte('\n')
	}
	if more := len(p.copies) - maxExamples; more > 0 {
		fmt.Fprintf(&b, "  and %d more\n", more)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
