// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubetenant/kubetenant/cluster"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// progressAnnotation records the progress of kubectl tenant uninstall on the published
	// configuration in kube-system. The cluster does not otherwise show that the labels of
	// namespaces are being removed. Without this record, a RoleBinding to a tenant's group would
	// look like a binding in a namespace of another tenant.
	progressAnnotation = tenant.Domain + "/uninstall"
	onlyNamespaces     = "namespaces"
)

// installed reports whether the server has a CustomResourceDefinition of kubetenant. It also
// returns the published configuration, or nil if no configuration is published.
func (r *run) installed(ctx context.Context) (defined bool, published *unstructured.Unstructured, err error) {
	for _, resource := range kinds() {
		_, err := r.Admin.Objects.Resource(definitions).Get(ctx, resource.GroupResource().String(), metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return false, nil, fmt.Errorf("read the CustomResourceDefinition of %s: %w", resource.Resource, err)
		}
		defined = defined || err == nil
	}
	for _, namespace := range append([]string{metav1.NamespaceSystem}, r.ServiceNamespaces...) {
		published, err := r.Admin.Objects.Resource(core("configmaps")).Namespace(namespace).
			Get(ctx, configv1alpha1.PublishedName, metav1.GetOptions{})
		if err == nil {
			return defined, published, nil
		}
		if !apierrors.IsNotFound(err) {
			return false, nil, fmt.Errorf("read ConfigMap %s/%s: %w", namespace, configv1alpha1.PublishedName, err)
		}
	}
	return defined, nil, nil
}

// checkForeign returns an error if a CustomResourceDefinition that has one of our names belongs to
// another project. Its deletion would delete all objects of that project.
func (r *run) checkForeign(ctx context.Context) error {
	problems, err := cluster.Definitions(ctx, r.Admin.Objects)
	if err != nil {
		return err
	}
	var foreign []string
	for i := range problems {
		if problems[i].State == cluster.DefinitionForeign {
			foreign = append(foreign, problems[i].String())
		}
	}
	if len(foreign) == 0 {
		return nil
	}
	return fmt.Errorf("%w: the command would delete objects of another project: %s", ErrRefused,
		strings.Join(foreign, ", "))
}

// recordProgress records that only the labels of namespaces remain to be removed.
func (r *run) recordProgress(ctx context.Context) error {
	if r.DryRun {
		return nil
	}
	published := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	published.SetName(configv1alpha1.PublishedName)
	published.SetNamespace(metav1.NamespaceSystem)
	published.SetAnnotations(map[string]string{progressAnnotation: onlyNamespaces})
	objects := r.Admin.Objects.Resource(core("configmaps")).Namespace(metav1.NamespaceSystem)
	_, err := objects.Patch(ctx, configv1alpha1.PublishedName, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+progressAnnotation+`":"`+onlyNamespaces+`"}}}`), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = objects.Create(ctx, published, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("save the progress: %w", err)
	}
	return nil
}

// published deletes the published configurations. The configuration in kube-system is last.
func (r *run) published(ctx context.Context, namespaces []string) error {
	for _, namespace := range namespaces {
		published := namedObjects{core("configmaps"), []string{configv1alpha1.PublishedName}}
		if err := r.deleteNamed(ctx, namespace, published); err != nil {
			return err
		}
		if !slices.Contains(r.ServiceNamespaces, namespace) {
			continue
		}
		switch _, err := r.Admin.Kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); {
		case err == nil:
			r.Printf("  the namespace %s remains: delete it if it contains nothing else", namespace)
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("read namespace %s: %w", namespace, err)
		}
	}
	return nil
}
