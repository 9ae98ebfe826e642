// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"encoding/json"
	"errors"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

var errAddedLabels = errors.New("only the server may set the annotation " + tenant.GivenLabelsAnnotation)

// AddedLabels contains the labels that a Tenant added to a Namespace, and the values that the
// labels had before. A nil value means that the Namespace did not have the label. AddedLabels
// never depends on managedFields, because a tenant can write them. The entry with the key
// levelKey is not a label.
type AddedLabels map[string]*string

// levelKey is the key of the PodSecurity level that the Tenant last set. With this entry, the
// server can distinguish a stricter level that the tenant chose. No label has a key with "=".
const levelKey = EnforceLabel + "="

// SetLevel records the PodSecurity level that the Tenant sets.
func (g AddedLabels) SetLevel(level string) { g[levelKey] = &level }

// Level returns the PodSecurity level that the Tenant last set, or "" if it set none.
func (g AddedLabels) Level() string {
	if level := g[levelKey]; level != nil {
		return *level
	}
	return ""
}

// HasStricterLevel reports whether a caller has set a stricter level than level after the Tenant
// set its level. The server does not replace such a level.
func (g AddedLabels) HasStricterLevel(ns metav1.Object, level string) bool {
	present := ns.GetLabels()[EnforceLabel]
	return g.Level() != "" && present != g.Level() && IsStricter(present, level)
}

// Labels returns the labels and their values before the Tenant set them.
func (g AddedLabels) Labels() map[string]*string {
	labels := maps.Clone(map[string]*string(g))
	delete(labels, levelKey)
	return labels
}

// AddedLabelsOf returns the labels that a Tenant added to a Namespace. It returns false if
// [tenant.GivenLabelsAnnotation] is missing or invalid.
func AddedLabelsOf(ns metav1.Object) (AddedLabels, bool) {
	var out AddedLabels
	if json.Unmarshal([]byte(ns.GetAnnotations()[tenant.GivenLabelsAnnotation]), &out) != nil || out == nil {
		return nil, false
	}
	return out, true
}

// String returns the value for [tenant.GivenLabelsAnnotation].
func (g AddedLabels) String() string {
	if g == nil {
		g = AddedLabels{}
	}
	text, err := json.Marshal(map[string]*string(g))
	if err != nil {
		panic(err) // the map contains only strings
	}
	return string(text)
}

// labelsAtCreation returns the labels that the Tenant adds to a new Namespace. sent contains the
// labels that the caller sent. If the caller belongs to a tenant or sent the Tenant's own
// PodSecurity level, the recorded earlier level is the level in the configuration.
func (p *plugin) labelsAtCreation(caller tenant.ID, sent map[string]string) AddedLabels {
	id := caller
	if caller.IsSystem() {
		id, _ = tenant.Parse(sent[tenant.Label]) // the zero ID has no labels
	}
	out := AddedLabels{}
	for key, value := range p.labelsOf(id) {
		if out[key] = nil; key == EnforceLabel {
			out.SetLevel(value)
		}
		switch before, ok := sent[key]; {
		case caller.IsSystem() && ok && before != value: // an equal value may come from a backup of the label
			out[key] = &before
		case key == EnforceLabel && p.PodSecurity != "" && (ok || !caller.IsSystem()):
			out[key] = &p.PodSecurity
		}
	}
	return out
}

// recordAddedLabels sets [tenant.GivenLabelsAnnotation] on a new Namespace. It replaces a value
// that the caller sent, for example from an export of another Namespace.
func (p *plugin) recordAddedLabels(caller tenant.ID, obj metav1.Object) {
	var record *string
	if added := p.labelsAtCreation(caller, obj.GetLabels()); len(added) > 0 {
		record = new(added.String())
	}
	plugins.SetAnnotation(obj, tenant.GivenLabelsAnnotation, record)
}

// checkAddedLabels checks [tenant.GivenLabelsAnnotation] on a Namespace that a tenant's caller
// creates.
func (p *plugin) checkAddedLabels(caller tenant.ID, obj metav1.Object) error {
	want := p.labelsAtCreation(caller, obj.GetLabels())
	text, ok := obj.GetAnnotations()[tenant.GivenLabelsAnnotation]
	if ok != (len(want) > 0) || ok && text != want.String() {
		return errAddedLabels
	}
	return nil
}

// protectedLabels returns the labels that a tenant may not change. These are the labels that its
// Tenant object specifies, and the labels that this Tenant added to the Namespace before. The
// PodSecurity level has its own rules.
func protectedLabels(specified map[string]string, old metav1.Object) map[string]string {
	added, _ := AddedLabelsOf(old)
	if len(added) == 0 {
		return specified
	}
	out := map[string]string{}
	for key := range added.Labels() {
		if key != EnforceLabel {
			out[key] = old.GetLabels()[key]
		}
	}
	maps.Copy(out, specified)
	return out
}
