// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kubetenant/kubetenant/internal/cli/nearest"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// kindList is the kind of a list that may contain objects of any kind.
const kindList = "List"

// hasMisplaced reports whether any document is misplaced.
func (f *file) hasMisplaced() bool {
	return slices.ContainsFunc(f.docs, func(d document) bool { return misplaced(&d) != nil })
}

// misplaced returns a finding if a document seems to be meant for kubetenant, but has no kind, an
// unknown kind or a wrong API version. It also returns a finding for a wrong API version of any
// other kind that can be checked, and for a list that kubectl rejects. Otherwise, it returns nil.
func misplaced(d *document) *Finding {
	if problem := unreadableList(d); problem != nil {
		return problem
	}
	if problem := wrongVersion(d); problem != nil {
		return problem
	}
	all := ownKinds()
	isSimilar := nearest.Name(d.kind, ownKinds()) != "" // also true for known kinds
	foreign := foreignGroup(d.kind)
	var f Finding
	switch group := d.group(); {
	case d.kind == "" && isOurs(d.apiVersion):
		f = d.at("kind", "is required", "add kind: one of "+strings.Join(all, ", "))
	case slices.Contains(all, d.kind), d.kind == "":
		return nil
	case group == tenant.Domain, isOurs(d.apiVersion) && isSimilar:
		f = d.unknownKind()
	case group == "" && foreign != "":
		f = d.at("apiVersion", "does not match the kind "+d.kind, "set apiVersion to a version of the API group "+foreign)
	case group == "" && isSimilar:
		f = d.unknownKind()
	default:
		return nil
	}
	return &f
}

// wrongVersion returns a finding if a document has a kind of kubetenant and a missing or wrong API
// version. Otherwise, it returns nil. It accepts a kind of another project with the same name,
// because that kind has another API group.
func wrongVersion(d *document) *Finding {
	if !slices.Contains(ownKinds(), d.kind) || d.apiVersion == v1alpha1.GroupVersion ||
		d.group() != "" && !isOurs(d.apiVersion) {
		return nil
	}
	f := d.at("apiVersion", "must be "+v1alpha1.GroupVersion+" for kind "+d.kind,
		"write apiVersion: "+v1alpha1.GroupVersion)
	return &f
}

// isOurs reports whether an API version is in the group of kubetenant, or in a misspelled group
// such as kubetenat.dev or kubetenant.io.
func isOurs(apiVersion string) bool {
	group, _, _ := strings.Cut(apiVersion, "/")
	label, _, _ := strings.Cut(group, ".")
	groupName, _, _ := strings.Cut(tenant.Domain, ".")
	return group != "" && (group == tenant.Domain || nearest.Name(label, []string{groupName}) != "")
}

// foreignGroup returns the API group of a Kubernetes kind that can be checked, or "".
func foreignGroup(kind string) string {
	for _, k := range kinds() {
		for group, names := range k.objects {
			if group != "" && group != tenant.Domain && slices.Contains(names, kind) {
				return group
			}
		}
	}
	return ""
}

// unknownKind returns the finding for a kind that kubetenant does not have.
func (d *document) unknownKind() Finding {
	if better := nearest.Name(d.kind, ownKinds()); better != "" {
		return d.at("kind", fmt.Sprintf("unknown kind %q; did you mean %q?", d.kind, better), "write "+better)
	}
	return d.at("kind", "unknown kind "+quotedUnlessWord(d.kind), "write one of "+strings.Join(ownKinds(), ", "))
}

// unreadableList returns a finding for a list inside another list, and for a list without a list
// of items. kubectl rejects both. Otherwise, it returns nil.
func unreadableList(d *document) *Finding {
	items := valueOf(d.node, "items")
	isList := d.kind == kindList && d.group() == ""
	if d.kind != kindList && strings.HasSuffix(d.kind, kindList) {
		isList = isOurs(d.apiVersion) || items != nil && items.Kind == yaml.SequenceNode
	}
	var f Finding
	switch {
	case !isList:
		return nil
	case d.prefix != "":
		f = d.at("kind", "a list cannot contain another list", "move the items of this list into the outer list")
	case items == nil || items.Tag == "!!null":
		f = d.at("items", "is required", "add items: a list of objects")
	case items.Kind != yaml.SequenceNode:
		f = d.at("items", "must be a list", "write a list of objects")
	default:
		return nil
	}
	return &f
}

// ownKinds returns the kinds of documents in the API group of kubetenant.
func ownKinds() []string {
	var all []string
	for _, k := range kinds() {
		all = append(all, k.objects[tenant.Domain]...)
	}
	return all
}
