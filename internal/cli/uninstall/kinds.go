// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// kinds deletes the CustomResourceDefinitions of kubetenant, and waits until they no longer exist.
func (r *run) kinds(ctx context.Context) error {
	names := map[string]bool{}
	for _, resource := range kinds() {
		names[resource.GroupResource().String()] = true
	}
	isOwn := func(u *unstructured.Unstructured) bool { return names[u.GetName()] }
	if err := r.deleteAll(ctx, definitions, isOwn); err != nil || r.DryRun {
		return err
	}
	const looks = 30
	for check := 0; ; check++ {
		var remaining []string
		if err := r.eachObject(ctx, definitions, func(u *unstructured.Unstructured) {
			if isOwn(u) {
				remaining = append(remaining, u.GetName())
			}
		}); err != nil {
			return err
		}
		switch {
		case len(remaining) == 0:
			return nil
		case check == looks:
			return r.blocked(ctx, remaining)
		}
		if err := r.allFinalizers(ctx); err != nil { // a tenant's caller may have set a finalizer again
			return err
		}
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
}

// blocked returns an error that names the remaining CustomResourceDefinitions, and the objects that
// block their deletion.
func (r *run) blocked(ctx context.Context, definitions []string) error {
	var objects []string
	for _, resource := range kinds() {
		if !slices.Contains(definitions, resource.GroupResource().String()) {
			continue
		}
		if err := r.eachObject(ctx, resource, func(u *unstructured.Unstructured) {
			objects = append(objects, u.GetKind()+" "+strings.TrimPrefix(u.GetNamespace()+"/"+u.GetName(), "/"))
		}); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: these CustomResourceDefinitions still exist: %s; their remaining objects: %s", ErrRefused,
		strings.Join(definitions, ", "), shortList(objects))
}

// shortList returns at most 20 names as text, followed by the number of the remaining names.
func shortList(names []string) string {
	const most = 20
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}
