// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/workload"
)

// isSelectedNode reports whether an annotation names the node of a volume. The scheduler sets the
// annotation, and a provisioner reads it (k8s.io/component-helpers storage/volume, v0.37.1). A
// caller that sets it chooses the node of the Pods. Provisioners also read older keys, such as
// volume.alpha.kubernetes.io/selected-node.
func isSelectedNode(key string) bool {
	domain, name, _ := strings.Cut(key, "/")
	if name != "selected-node" {
		return false
	}
	return slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(suffix string) bool {
		return domain == suffix || strings.HasSuffix(domain, "."+suffix)
	})
}

var claimKind = corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")

// checkNodes checks the nodes that annotations name. It does not check an unchanged annotation.
func (r *TenantRules) checkNodes(path string, old, obj metav1.Object, errs *plugins.Errors) {
	var before map[string]string
	if old != nil {
		before = old.GetAnnotations()
	}
	if path != "" {
		path += "."
	}
	annotations := obj.GetAnnotations()
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		node := annotations[key]
		if !isSelectedNode(key) || node == "" || before[key] == node {
			continue
		}
		errs.Add(check(r.Rules["nodeName"], "nodeName",
			item{path: path + "metadata.annotations[" + key + "]", key: node}))
	}
}

// checkClaim checks a claim that a tenant's caller writes, or that a controller creates from a
// tenant's template.
func (p *plugin) checkClaim(ctx context.Context, a admission.Attributes, rules *TenantRules) error {
	isFromTemplate := a.GetOperation() == admission.Create && plugins.CreatesClaims(a.GetUserInfo())
	if !isFromTemplate && p.Subject.IsSystem(ctx, a.GetUserInfo()) {
		return nil
	}
	obj, err := meta.Accessor(a.GetObject())
	if err != nil {
		return plugins.ErrObject
	}
	var old metav1.Object
	if a.GetOperation() == admission.Update {
		if old, err = meta.Accessor(a.GetOldObject()); err != nil {
			return errOld
		}
	}
	var errs plugins.Errors
	rules.checkNodes("", old, obj, &errs)
	return errs.Err()
}

var capacityKind = storagev1.SchemeGroupVersion.WithKind("CSIStorageCapacity")

// checkCapacity checks a CSIStorageCapacity, which specifies the nodes on which volumes fit. The
// scheduler reads these objects in all namespaces, for the Pods of every tenant.
func (p *plugin) checkCapacity(ctx context.Context, a admission.Attributes, rules *TenantRules) error {
	if p.Subject.IsSystem(ctx, a.GetUserInfo()) || plugins.IsMaintenance(a) {
		return nil
	}
	return check(rules.Rules["nodeAffinity"], "nodeAffinity", item{path: "nodeTopology"})
}

// checkTemplates checks the templates of claims in an object.
func checkTemplates(oldObj, newObj *workload.Object, rules *TenantRules) error {
	claims, err := newObj.Claims()
	if err != nil || len(claims) == 0 {
		return err
	}
	before := map[string]metav1.Object{}
	if oldObj != nil {
		old, err := oldObj.Claims()
		if err != nil {
			return errOld
		}
		for _, c := range old {
			before[c.Key] = c.Meta
		}
	}
	var errs plugins.Errors
	for _, c := range claims {
		rules.checkNodes(c.Path, before[c.Key], c.Meta, &errs)
	}
	return errs.Err()
}

// checkNominated checks the node that the status of a Pod nominates. The scheduler reserves room
// for the Pod on this node.
func (p *plugin) checkNominated(
	ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces, rules *TenantRules,
) error {
	if p.Subject.IsSystem(ctx, a.GetUserInfo()) {
		return nil
	}
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	obj, err := plugins.Versioned[corev1.Pod](a.GetObject(), kind, o)
	if err != nil {
		return err
	}
	old, err := plugins.Versioned[corev1.Pod](a.GetOldObject(), kind, o)
	if err != nil {
		return errOld
	}
	if node := obj.Status.NominatedNodeName; node != "" && node != old.Status.NominatedNodeName {
		return check(rules.Rules["nodeName"], "nodeName", item{path: "status.nominatedNodeName", key: node})
	}
	return nil
}
