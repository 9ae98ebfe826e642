// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubetenant/kubetenant/tenant"
)

// Check returns an error if k is incomplete, or if objects of the kind can never be published.
// Objects of these kinds run programs, hold data or locks, belong to a controller, are
// identities, or are not stored.
func (k *PublicationKind) Check() error {
	switch {
	case k.Kind == "" || k.Resource == "":
		return errors.New("kind and resource must be set")
	case strings.Contains(k.Resource, "/"):
		return errors.New("resource: must not be a subresource")
	case isOurDomain(k.Group):
		return fmt.Errorf("group: objects of %s cannot be published", tenant.Domain)
	case slices.ContainsFunc(neverPublished(), k.isLike):
		return fmt.Errorf("kind: objects of the kind %s cannot be published", k.name())
	}
	return nil
}

// isLike reports whether k and other have the same kind or the same resource.
func (k *PublicationKind) isLike(other PublicationKind) bool {
	return k.Group == other.Group &&
		(strings.EqualFold(k.Kind, other.Kind) || strings.EqualFold(k.Resource, other.Resource))
}

func (k *PublicationKind) name() string {
	if k.Group == "" {
		return k.Kind
	}
	return k.Kind + "." + k.Group
}

// isOurDomain reports whether name is [tenant.Domain] or a subdomain of it.
func isOurDomain(name string) bool {
	return name == tenant.Domain || strings.HasSuffix(name, "."+tenant.Domain)
}

// neverPublished returns the built-in kinds that cannot be published.
func neverPublished() []PublicationKind {
	return []PublicationKind{
		{"", "Pod", "pods"},
		{"", "PodTemplate", "podtemplates"},
		{"", "ReplicationController", "replicationcontrollers"},
		{"apps", "ControllerRevision", "controllerrevisions"},
		{"apps", "DaemonSet", "daemonsets"},
		{"apps", "Deployment", "deployments"},
		{"apps", "ReplicaSet", "replicasets"},
		{"apps", "StatefulSet", "statefulsets"},
		{"batch", "CronJob", "cronjobs"},
		{"batch", "Job", "jobs"},
		{"", "PersistentVolumeClaim", "persistentvolumeclaims"},
		{"", "Event", "events"},
		{"events.k8s.io", "Event", "events"},
		{"coordination.k8s.io", "Lease", "leases"},
		{"coordination.k8s.io", "LeaseCandidate", "leasecandidates"},
		{"", "Endpoints", "endpoints"},
		{"discovery.k8s.io", "EndpointSlice", "endpointslices"},
		{"", "ServiceAccount", "serviceaccounts"},
		{"", "Binding", "bindings"},
		{"authorization.k8s.io", "LocalSubjectAccessReview", "localsubjectaccessreviews"},
		{"metrics.k8s.io", "PodMetrics", "pods"},
	}
}

// alwaysPublished returns the kinds that can be published without an entry in the configuration.
func alwaysPublished() []PublicationKind {
	return []PublicationKind{
		{"", "ConfigMap", "configmaps"},
		{"", "LimitRange", "limitranges"},
		{"networking.k8s.io", "NetworkPolicy", "networkpolicies"},
		{"", "ResourceQuota", "resourcequotas"},
		{"rbac.authorization.k8s.io", "Role", "roles"},
		{"rbac.authorization.k8s.io", "RoleBinding", "rolebindings"},
		{"", "Secret", "secrets"},
	}
}

// validatePublication checks the kinds, labels and annotations of admission.publication. A kind
// that admission.binding.kinds or admission.workloads contains cannot be published.
func validatePublication(a *Admission, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range a.Publication.Kinds {
		k := &a.Publication.Kinds[i]
		at := path.Child("kinds").Index(i)
		bad := validateGroupKind(k.Group, k.Kind, at)
		if len(validation.IsDNS1123Label(k.Resource)) > 0 {
			bad = append(bad, field.Invalid(at.Child("resource"), k.Resource,
				"must be the name of a resource, in lower case and without a subresource"))
		}
		if errs = append(errs, bad...); len(bad) > 0 {
			continue
		}
		like := func(group, kind string) bool { return k.Group == group && strings.EqualFold(k.Kind, kind) }
		switch {
		case k.Check() != nil:
			errs = append(errs, field.Forbidden(at, k.Check().Error()))
		case slices.ContainsFunc(alwaysPublished(), k.isLike):
			errs = append(errs, field.Forbidden(at, "objects of this kind can always be published"))
		case slices.ContainsFunc(a.Publication.Kinds[:i], k.isLike):
			errs = append(errs, field.Duplicate(at, k.name()))
		case slices.ContainsFunc(a.Binding.Kinds, func(b BindingKind) bool { return like(b.Group, b.Kind) }):
			errs = append(errs, field.Forbidden(at,
				"admission.binding.kinds has this kind, and such objects act as their creator"))
		case slices.ContainsFunc(a.Workloads, func(w WorkloadKind) bool { return like(w.Group, w.Kind) }):
			errs = append(errs, field.Forbidden(at, "admission.workloads has this kind, and such objects create Pods"))
		}
	}
	errs = append(errs, validateCopiedKeys(a.Publication.Labels, path.Child("labels"))...)
	return append(errs, validateCopiedKeys(a.Publication.Annotations, path.Child("annotations"))...)
}

// validateCopiedKeys checks the keys of the labels or annotations that are copied.
func validateCopiedKeys(keys []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, key := range keys {
		domain, _, _ := strings.Cut(key, "/")
		switch {
		case len(validation.IsQualifiedName(key)) > 0:
			errs = append(errs, field.Invalid(path.Index(i), key, "must be a qualified name, for example example.com/key"))
		case isOurDomain(domain):
			errs = append(errs, field.Forbidden(path.Index(i), "keys of this domain cannot be copied"))
		case key == corev1.LastAppliedConfigAnnotation:
			errs = append(errs, field.Forbidden(path.Index(i), "it contains earlier data of a Secret"))
		}
	}
	return errs
}
