// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/deploy"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// InstallDefinitions is the command that installs every CustomResourceDefinition of the project.
const InstallDefinitions = "kubectl apply --server-side -f installed/crds/ --force-conflicts"

// DefinitionState specifies why a CustomResourceDefinition of the project cannot be used.
type DefinitionState string

// The states of a definition.
const (
	// DefinitionMissing means that the server has no definition with this name.
	DefinitionMissing DefinitionState = "Missing"
	// DefinitionTerminating means that the definition and all its objects are being deleted.
	DefinitionTerminating DefinitionState = "Terminating"
	// DefinitionNotEstablished means that the server does not serve the definition.
	DefinitionNotEstablished DefinitionState = "NotEstablished"
	// DefinitionOutdated means that the definition lacks the API version, a field or another part
	// that this release uses.
	DefinitionOutdated DefinitionState = "Outdated"
	// DefinitionForeign means that the definition has the name of a definition of this project but
	// belongs to another project.
	DefinitionForeign DefinitionState = "Foreign"
)

// DefinitionProblem is a CustomResourceDefinition of the project that cannot be used.
type DefinitionProblem struct {
	// Resource is the plural name without the group, such as tenants.
	Resource string
	State    DefinitionState
	// Message describes the problem. It does not name any object of a tenant.
	Message string
}

// Name returns the name of the CustomResourceDefinition.
func (p *DefinitionProblem) Name() string {
	resource := v1alpha1.Resource(p.Resource)
	return resource.String()
}

// String returns the name of the definition and its problem.
func (p *DefinitionProblem) String() string {
	return "CustomResourceDefinition " + p.Name() + " " + p.Message
}

// Definitions returns the problems with the project's CustomResourceDefinitions, sorted by name. It
// returns no problem if each definition exists, is established and has all parts that this release
// uses. It fails if it cannot read a definition. The client must be allowed to get definitions.
func Definitions(ctx context.Context, client dynamic.Interface) ([]DefinitionProblem, error) {
	var problems []DefinitionProblem
	var failed error
	for _, resource := range definedResources() {
		name := v1alpha1.Resource(resource)
		stored, err := client.Resource(definitions).Get(ctx, name.String(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			stored = nil
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("read CustomResourceDefinition %s: %w", name, err))
			continue
		}
		if p := checkDefinition(resource, stored); p != nil {
			problems = append(problems, *p)
		}
	}
	return problems, failed
}

// ownDefinitions returns this release's definitions, keyed by the plural name of their resource.
var ownDefinitions = sync.OnceValue(func() map[string]*unstructured.Unstructured {
	all := map[string]*unstructured.Unstructured{}
	for file, text := range deploy.Definitions() {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			panic(file + ": " + err.Error()) // the text is compiled in and tested
		}
		resource, _, _ := unstructured.NestedString(u.Object, "spec", "names", "plural")
		all[resource] = u
	}
	return all
})

// definedResources returns the resources of the project's kinds, sorted by name.
func definedResources() []string { return slices.Sorted(maps.Keys(ownDefinitions())) }

// checkDefinition returns the problem with a resource's definition, or nil if the definition can be
// used. stored is nil if the definition is missing.
//
// checkDefinition checks that all fields are present, because a server silently drops fields that
// the schema lacks. For example, a suspended tenant would get its access back. It does not compare
// hashes, because a definition from a later release or one that a tool normalized has a different
// hash.
func checkDefinition(resource string, stored *unstructured.Unstructured) *DefinitionProblem {
	problem := func(state DefinitionState, format string, args ...any) *DefinitionProblem {
		return &DefinitionProblem{Resource: resource, State: state, Message: fmt.Sprintf(format, args...)}
	}
	if stored == nil {
		return problem(DefinitionMissing, "is missing")
	}
	want := ownDefinitions()[resource]
	identity := [][]string{{"spec", "group"}, {"spec", "names", "plural"}, {"spec", "names", "kind"}, {"spec", "scope"}}
	for _, path := range identity {
		wanted, _, _ := unstructured.NestedString(want.Object, path...)
		if got, _, _ := unstructured.NestedString(stored.Object, path...); got != wanted {
			return problem(DefinitionForeign, "belongs to another project: %s is %q instead of %q",
				strings.Join(path, "."), got, wanted)
		}
	}
	if stored.GetDeletionTimestamp() != nil {
		return problem(DefinitionTerminating, "is being deleted with all its objects")
	}
	wanted, version := servedVersion(want), servedVersion(stored)
	if version == nil {
		return problem(DefinitionOutdated, "does not serve the version %s", v1alpha1.SchemeGroupVersion.Version)
	}
	if isForeignSchema(wanted, version) {
		return problem(DefinitionForeign, "belongs to another project: its spec has none of kubetenant's fields")
	}
	if lacking := lackingParts(wanted, version); len(lacking) > 0 {
		return problem(DefinitionOutdated, "is outdated: it lacks %s", joinParts(lacking))
	}
	switch {
	case conditionOf(stored, "NamesAccepted") == metav1.ConditionFalse:
		return problem(DefinitionNotEstablished, "is not established: another definition has one of its names")
	case conditionOf(stored, "Established") != metav1.ConditionTrue:
		return problem(DefinitionNotEstablished, "is not established")
	}
	return nil
}

// servedVersion returns the entry in spec.versions for the API version that this release uses, or
// nil if the definition does not serve that version.
func servedVersion(definition *unstructured.Unstructured) map[string]any {
	versions, _, _ := unstructured.NestedFieldNoCopy(definition.Object, "spec", "versions")
	list, _ := versions.([]any)
	for _, v := range list {
		version, _ := v.(map[string]any)
		if version["name"] == v1alpha1.SchemeGroupVersion.Version && version["served"] == true {
			return version
		}
	}
	return nil
}

// conditionOf returns the status of a condition of a definition, or "" if it has no such condition.
func conditionOf(definition *unstructured.Unstructured, kind string) metav1.ConditionStatus {
	conditions, _, _ := unstructured.NestedFieldNoCopy(definition.Object, "status", "conditions")
	list, _ := conditions.([]any)
	for _, c := range list {
		if condition, _ := c.(map[string]any); condition["type"] == kind {
			status, _ := condition["status"].(string)
			return metav1.ConditionStatus(status)
		}
	}
	return ""
}

// isForeignSchema reports whether the schema of stored has none of the fields of want, which means
// that another project defined it. For a kind with a spec, it compares only the fields of the spec.
// It returns false if stored preserves unknown fields.
func isForeignSchema(want, stored map[string]any) bool {
	path := []string{"schema", "openAPIV3Schema"}
	wanted, _, _ := unstructured.NestedFieldNoCopy(want, path...)
	got, _, _ := unstructured.NestedFieldNoCopy(stored, path...)
	own, other := asMap(wanted), asMap(got)
	if spec := asMap(asMap(own["properties"])["spec"]); spec != nil {
		own, other = spec, asMap(asMap(other["properties"])["spec"])
	}
	if other["x-kubernetes-preserve-unknown-fields"] == true {
		return false
	}
	fields := asMap(other["properties"])
	for name := range asMap(own["properties"]) {
		if _, ok := fields[name]; ok && !slices.Contains([]string{"apiVersion", "kind", "metadata"}, name) {
			return false
		}
	}
	return true
}

// lackingParts returns the parts of the version want that the version stored lacks. Parts are
// fields, the status subresource and selectable fields.
func lackingParts(want, stored map[string]any) []string {
	wanted, _, _ := unstructured.NestedFieldNoCopy(want, "schema", "openAPIV3Schema")
	got, _, _ := unstructured.NestedFieldNoCopy(stored, "schema", "openAPIV3Schema")
	lacking := lackingFields("", asMap(wanted), asMap(got))
	slices.Sort(lacking)
	if _, ok, _ := unstructured.NestedFieldNoCopy(want, "subresources", "status"); ok {
		if _, ok, _ := unstructured.NestedFieldNoCopy(stored, "subresources", "status"); !ok {
			lacking = append(lacking, "the status subresource")
		}
	}
	selectable := selectableFields(stored)
	for _, path := range selectableFields(want) {
		if !slices.Contains(selectable, path) {
			lacking = append(lacking, "the selectable field "+path)
		}
	}
	return lacking
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// lackingFields returns the paths of the fields in want that a server with the schema stored would
// drop.
func lackingFields(path string, want, stored map[string]any) (lacking []string) {
	const anything = "x-kubernetes-preserve-unknown-fields"
	if stored[anything] == true {
		return nil
	}
	if want[anything] == true {
		lacking = append(lacking, path+".*")
	}
	properties := asMap(stored["properties"])
	for name, wanted := range asMap(want["properties"]) {
		at := strings.TrimPrefix(path+"."+name, ".")
		if _, ok := properties[name]; !ok {
			lacking = append(lacking, at)
			continue
		}
		lacking = append(lacking, lackingFields(at, asMap(wanted), asMap(properties[name]))...)
	}
	for _, part := range []struct{ field, suffix string }{{"items", "[]"}, {"additionalProperties", "{}"}} {
		if wanted := asMap(want[part.field]); wanted != nil {
			lacking = append(lacking, lackingFields(path+part.suffix, wanted, asMap(stored[part.field]))...)
		}
	}
	return lacking
}

func selectableFields(version map[string]any) (paths []string) {
	list, _ := version["selectableFields"].([]any)
	for _, f := range list {
		path, _ := asMap(f)["jsonPath"].(string)
		paths = append(paths, path)
	}
	return paths
}

// maxNamedParts is the maximum number of lacking parts that a message names.
const maxNamedParts = 3

// joinParts names at most maxNamedParts parts. The list must not be empty.
func joinParts(parts []string) string {
	text := strings.Join(parts[:min(maxNamedParts, len(parts))], ", ")
	if more := len(parts) - maxNamedParts; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Problems returns the problems with the project's definitions, like [Definitions], but reads the
// definitions from the cache. known reports whether the cache has synced. Each call compares all
// fields of all definitions.
func (c *CRDScopes) Problems() (problems []DefinitionProblem, known bool) {
	if !c.HasSynced() {
		return nil, false
	}
	for _, resource := range definedResources() {
		name := v1alpha1.Resource(resource)
		obj, _, err := c.informer.GetStore().GetByKey(name.String())
		if err != nil {
			return nil, false
		}
		stored, _ := obj.(*unstructured.Unstructured)
		if p := checkDefinition(resource, stored); p != nil {
			problems = append(problems, *p)
		}
	}
	return problems, true
}

// isOwnDefinition reports whether a definition has the name of a definition of the project.
func isOwnDefinition(name string) bool {
	resource, isOurs := strings.CutSuffix(name, "."+v1alpha1.SchemeGroupVersion.Group)
	return isOurs && ownDefinitions()[resource] != nil
}
