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
	ours := map[string]bool{}
	for _, resource := range kinds() {
		ours[resource.GroupResource().String()] = true
	}
	is := func(u *unstructured.Unstructured) bool { return ours[u.GetName()] }
	if err := r.deleteAll(ctx, definitions, is); err != nil || r.DryRun {
		return err
	}
	const looks = 30
	for look := 0; ; look++ {
		var left []string
		if err := r.eachObject(ctx, definitions, func(u *unstructured.Unstructured) {
			if is(u) {
				left = append(left, u.GetName())
			}
		}); err != nil {
			return err
		}
		switch {
		case len(left) == 0:
			return nil
		case look == looks:
			return r.blocked(ctx, left)
		}
		if err := r.allFinalizers(ctx); err != nil { // a tenant's caller may have set another finalizer
			return err
		}
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
}

// blocked returns an error that names the remaining definitions and the objects that block their
// deletion.
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
		strings.Join(definitions, ", "), inShort(objects))
}

// inShort lists at most 20 names.
func inShort(names []string) string {
	const most = 20
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}
