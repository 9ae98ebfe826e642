// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// InstallCRDs creates or updates the CustomResourceDefinitions of the project in a cluster. It does
// not replace a definition from a later release, because the server would then drop the stored
// fields that this release does not know. An annotation can allow the replacement, see
// [tenant.AllowFieldRemovalAnnotation]. The client must be allowed to get, create and patch
// definitions.
func InstallCRDs(ctx context.Context, client dynamic.Interface) error {
	for _, resource := range definedResources() {
		definition := ownDefinitions()[resource].DeepCopy()
		stored, err := client.Resource(definitions).Get(ctx, definition.GetName(), metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("read CustomResourceDefinition %s: %w", definition.GetName(), err)
		}
		if err == nil {
			if more := laterParts(definition, stored); len(more) > 0 {
				klog.FromContext(ctx).Info("Keeping a CustomResourceDefinition of a later release, because objects "+
					"would lose fields without it. To replace it, set its annotation "+
					tenant.AllowFieldRemovalAnnotation+" to true", "definition", definition.GetName(), "parts", joinParts(more))
				continue
			}
			// The write fails if the definition changes after this read.
			definition.SetResourceVersion(stored.GetResourceVersion())
		}
		if _, err := client.Resource(definitions).Apply(ctx, definition.GetName(), definition,
			metav1.ApplyOptions{FieldManager: v1alpha1.FieldManager, Force: true}); err != nil {
			return err
		}
	}
	return nil
}

// laterParts returns the parts that the installed definition has and this release's definition does
// not have. It returns nil if the installed definition lacks a part of this release's definition,
// because the installed definition is then not from a later release. It also returns nil if
// [tenant.AllowFieldRemovalAnnotation] allows the replacement.
func laterParts(own, stored *unstructured.Unstructured) []string {
	if stored.GetAnnotations()[tenant.AllowFieldRemovalAnnotation] == "true" {
		return nil
	}
	wanted, version := servedVersion(own), servedVersion(stored)
	if version == nil || isForeignSchema(wanted, version) || len(lackingParts(wanted, version)) > 0 {
		return nil
	}
	more := lackingParts(version, wanted)
	known := versionNames(own)
	for _, name := range versionNames(stored) {
		if !slices.Contains(known, name) {
			more = append(more, "the version "+name)
		}
	}
	return more
}

func versionNames(definition *unstructured.Unstructured) (names []string) {
	versions, _, _ := unstructured.NestedFieldNoCopy(definition.Object, "spec", "versions")
	list, _ := versions.([]any)
	for _, v := range list {
		name, _ := asMap(v)["name"].(string)
		names = append(names, name)
	}
	return names
}
