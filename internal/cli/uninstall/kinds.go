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

// kinds deletes the definitions of kubetenant's kinds, and waits until they are
// gone with all their objects.
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
		if err := r.allFinalizers(ctx); err != nil { // a tenant's caller may have set another one
			return err
		}
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
}

// blocked names the definitions that are not gone, and the objects that hold them.
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
