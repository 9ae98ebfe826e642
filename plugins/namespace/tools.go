// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Tool is a client program and the keys in which it records its actions on Namespaces. Tenants
// may write these keys. Keys that control a tool are not included, except the order of objects
// (sync-wave) and the protection of an object from deletion (resource-policy).
type Tool struct {
	Name string
	// Source is the project and the release with the source code that sets the keys.
	Source              string
	Labels, Annotations []string
}

// Tools returns the tools with keys that tenants may write in every configuration. A label of a
// tool is denied if a webhook or a policy uses it to select namespaces, see
// [Options.SelectionReason].
//
// The labels app.kubernetes.io/name and app.kubernetes.io/instance are not included, because
// NetworkPolicies of other tenants select namespaces by them. Argo CD can track its objects with
// other keys.
func Tools() []Tool {
	return []Tool{
		{
			Name:   "kubectl",
			Source: "k8s.io/kubectl v0.37.1, and the well-known annotations of Kubernetes",
			Labels: []string{"applyset.kubernetes.io/part-of"},
			Annotations: []string{
				corev1.LastAppliedConfigAnnotation, "kubernetes.io/change-cause", "kubernetes.io/description",
			},
		},
		{
			Name:   "Helm",
			Source: "helm.sh/helm/v4 v4.3.1",
			Labels: []string{
				"app.kubernetes.io/created-by", "app.kubernetes.io/managed-by", "app.kubernetes.io/part-of",
				"app.kubernetes.io/version", "helm.sh/chart",
			},
			Annotations: []string{
				"helm.sh/resource-policy", "meta.helm.sh/release-name", "meta.helm.sh/release-namespace",
			},
		},
		{
			Name:   "Flux",
			Source: "kustomize-controller v1.7.3 and helm-controller 0f61a86",
			Labels: []string{
				"helm.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/namespace",
				"kustomize.toolkit.fluxcd.io/name", "kustomize.toolkit.fluxcd.io/namespace",
			},
			Annotations: []string{"kustomize.toolkit.fluxcd.io/checksum"},
		},
		{
			Name:   "Argo CD",
			Source: "argo-cd 010192f and gitops-engine v0.7.3",
			Labels: []string{"argocd.argoproj.io/instance"},
			Annotations: []string{
				"argocd.argoproj.io/installation-id", "argocd.argoproj.io/sync-wave", "argocd.argoproj.io/tracking-id",
			},
		},
		{
			Name:        "kapp",
			Source:      "carvel-dev/kapp a89576c5",
			Labels:      []string{"kapp.k14s.io/app", "kapp.k14s.io/association"},
			Annotations: []string{"kapp.k14s.io/identity", "kapp.k14s.io/original", "kapp.k14s.io/original-diff-md5"},
		},
	}
}

// isToolLabel reports whether a tool in [Tools] sets a label.
func isToolLabel(key string) bool {
	return slices.ContainsFunc(Tools(), func(t Tool) bool { return slices.Contains(t.Labels, key) })
}

// isToolAnnotation reports whether a tool in [Tools] sets an annotation.
func isToolAnnotation(key string) bool {
	return slices.ContainsFunc(Tools(), func(t Tool) bool { return slices.Contains(t.Annotations, key) })
}
