// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/plugins/namespace"
	"github.com/kubetenant/kubetenant/plugins/rolebinding"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// desiredState has the objects and labels that a Tenant specifies for each namespace, and the quota
// of the tenant. The zero value specifies nothing.
type desiredState struct {
	bindings  []rbacv1.RoleBinding // without their namespace, sorted by name
	roles     []rbacv1.Role        // without their namespace, sorted by name
	labels    map[string]string    // the labels of the Namespace itself
	quota     corev1.ResourceList  // the limits for all namespaces together
	templates []namedTemplate
	// domain is the ID of the tenant's Keystone domain. It is empty if the tenant has no domain.
	domain string
	// published are the states of the Publications that select the tenant, oldest first.
	published []*published
	// unread reports that the current version of a Publication has not been read. If set, no namespace
	// is marked as prepared.
	unread bool
	// publication returns the state of the Publication with the given name, or nil if it is not known.
	publication func(name string) *published
	// selects reports whether a Publication currently selects the tenant.
	selects func(*published) bool
	// namespaceLabels are the labels that the Tenant specifies in spec.namespaces.labels.
	namespaceLabels map[string]string
	// uid and generation are the UID and the generation of the Tenant. They are empty if the
	// tenant has no Tenant. The objects of the former Tenant's templates then remain, so that its
	// namespaces remain protected.
	uid        types.UID
	generation int64
	refused    error // the reason why some subjects are not bound
}

// desiredOf returns the content that a Tenant and its TenantMembers specify, without templates
// and Publications. members may be nil. desiredOf omits subjects with reserved names, groups of
// other tenants, and service accounts in namespaces of other tenants. It does not check the names
// that the configuration reserves, because admission checks them.
func (e *Engine) desiredOf(
	ctx context.Context,
	id tenant.ID,
	t *v1alpha1.Tenant,
	members *v1alpha1.TenantMembers,
) *desiredState {
	out := &desiredState{quota: hardOf(&t.Spec), uid: t.UID, generation: t.Generation}
	roles := SpreadOf(id, &t.Spec).Roles
	if members != nil {
		out.addRoles(id, &members.Spec)
		for _, role := range MembersSpreadOf(id, &members.Spec).Roles {
			if !slices.Contains(t.Spec.MemberRoles, role.ClusterRole) {
				out.refused = errors.Join(out.refused, fmt.Errorf("TenantMembers: %s: "+
					"spec.memberRoles of the Tenant does not name the ClusterRole %s", role.Path, role.ClusterRole))
				continue
			}
			role.Path = membersPath + role.Path
			roles = append(roles, role)
		}
	}
	for _, role := range roles {
		b := rbacv1.RoleBinding{
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.ClusterRole},
		}
		switch {
		case role.Path == adminsPath:
			b.Name = managed.NamePrefix + "admins"
		case strings.HasPrefix(role.Path, membersPath):
			b.Name = managed.NamePrefix + "members:" + role.ClusterRole
		default:
			b.Name = managed.NamePrefix + "binding:" + role.ClusterRole
		}
		b.Labels = map[string]string{tenant.ManagedLabel: managed.SourceTenant, tenant.Label: id.String()}
		for i, s := range role.Subjects {
			if err := e.subjects.Check(ctx, id, s); err != nil {
				out.refused = errors.Join(out.refused, fmt.Errorf("%s[%d] %w", role.Path, i, err))
				continue
			}
			if s.Kind != rbacv1.ServiceAccountKind {
				s.APIGroup = rbacv1.GroupName // the default that the server sets
			}
			if !slices.Contains(b.Subjects, s) {
				b.Subjects = append(b.Subjects, s)
			}
		}
		if len(b.Subjects) == 0 {
			continue
		}
		out.bindings = append(out.bindings, b)
	}
	out.refused = errors.Join(out.refused, out.addDomain(id, t))
	out.namespaceLabels = tenants.Labels(t.Spec.Namespaces.Labels)
	out.labels = maps.Clone(out.namespaceLabels)
	if level := t.Spec.Namespaces.PodSecurity; level != "" {
		if out.labels == nil {
			out.labels = map[string]string{}
		}
		out.labels[namespace.EnforceLabel] = level
	}
	slices.SortFunc(out.bindings, func(a, b rbacv1.RoleBinding) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

const (
	// adminsPath is the path of the admins in error messages.
	adminsPath = "spec.admins"
	// membersPath is the prefix of the paths of fields of TenantMembers in error messages.
	membersPath = "TenantMembers: "
)

// SpreadOf returns the roles and templates that the spec of a Tenant specifies for each namespace,
// in the types of package rolebinding.
func SpreadOf(id tenant.ID, spec *v1alpha1.TenantSpec) *rolebinding.Bindings {
	out := &rolebinding.Bindings{Tenant: id, Templates: spec.Namespaces.Templates}
	if len(spec.Admins) > 0 {
		out.Roles = append(out.Roles, rolebinding.RoleBinding{
			Path:        adminsPath,
			ClusterRole: v1alpha1.AdminRole,
			Tenantwide:  v1alpha1.NamespacesRole,
			Subjects:    tenants.Subjects(spec.Admins),
		})
	}
	out.Roles = append(out.Roles, rolesOf(spec.Bindings)...)
	for i, role := range spec.MemberRoles {
		out.MemberRoles = append(out.MemberRoles,
			rolebinding.RoleBinding{Path: fmt.Sprintf("spec.memberRoles[%d]", i), ClusterRole: role})
	}
	return out
}

// MembersSpreadOf returns the roles that the spec of TenantMembers specifies for each namespace, in
// the types of package rolebinding.
func MembersSpreadOf(id tenant.ID, spec *v1alpha1.TenantMembersSpec) *rolebinding.Bindings {
	return &rolebinding.Bindings{Tenant: id, Roles: rolesOf(spec.Bindings), DefinedRoles: definedBy(spec)}
}

func rolesOf(bindings []v1alpha1.TenantBinding) (roles []rolebinding.RoleBinding) {
	for i, b := range bindings {
		roles = append(roles, rolebinding.RoleBinding{
			Path:        fmt.Sprintf("spec.bindings[%d].subjects", i),
			ClusterRole: b.ClusterRole,
			Subjects:    tenants.Subjects(b.Subjects),
		})
	}
	return roles
}

// hasServiceAccounts reports whether a Tenant names service accounts. A service account belongs
// to the owner of its namespace, so its tenant can change.
func hasServiceAccounts(spec *v1alpha1.TenantSpec) bool {
	return slices.ContainsFunc(spec.Admins, isServiceAccount) || anyServiceAccount(spec.Bindings)
}

func anyServiceAccount(bindings []v1alpha1.TenantBinding) bool {
	return slices.ContainsFunc(bindings, func(b v1alpha1.TenantBinding) bool {
		return slices.ContainsFunc(b.Subjects, isServiceAccount)
	})
}

func isServiceAccount(s v1alpha1.Subject) bool {
	return s.Kind == rbacv1.ServiceAccountKind || tenant.IsServiceAccountName(s.Name)
}

// hash returns the value of [tenant.PreparedAnnotation] for a namespace that has all its content.
// It returns "" if the namespace should have no content.
func (g *desiredState) hash(ns *corev1.Namespace) string {
	published := g.publishedIn(ns)
	bindings := g.bindingsIn(ns)
	if len(bindings)+len(g.roles)+len(g.labels)+len(g.templates)+len(published) == 0 {
		return ""
	}
	all := []any{ns.UID, bindings}
	if len(g.labels)+len(g.templates) > 0 { // without labels and templates, the hash is the same as in earlier releases
		all = append(all, g.labels)
	}
	for _, t := range g.templates {
		all = append(all, t.name, t.digest)
	}
	if len(g.roles) > 0 { // without Roles, the hash is the same as in earlier releases
		all = append(all, "roles", g.roles)
	}
	for _, p := range published {
		all = append(all, "Publication", p.publication.Name, p.lastHash())
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // impossible, all values can be encoded
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]) + g.rolesMark() + g.kindsOf(published)
}

// publishedIn returns the Publications that have copies in a namespace, oldest first.
func (g *desiredState) publishedIn(ns *corev1.Namespace) (all []*published) {
	for _, p := range g.published {
		if !p.gone && !p.resource.Empty() && p.publication.SelectsNamespace(ns.Name, g.namespaceLabels) {
			all = append(all, p)
		}
	}
	return all
}

// isPrepared reports whether a namespace is prepared. Its annotation must record that it has all
// its content, Pods must not wait in it, and the Namespace must have its labels.
func (g *desiredState) isPrepared(ns *corev1.Namespace) bool {
	_, held := ns.Annotations[tenant.HeldAnnotation]
	return ns.Annotations[tenant.PreparedAnnotation] == g.hash(ns) && !held && g.isLabeled(ns)
}

// isSame reports whether a stored binding has the wanted content.
func isSame(stored, want *rbacv1.RoleBinding) bool {
	return hasMetadata(&stored.ObjectMeta, &want.ObjectMeta) && stored.RoleRef == want.RoleRef &&
		slices.Equal(stored.Subjects, want.Subjects)
}

// hasMetadata reports whether stored has the wanted labels and annotations, and neither owner
// references nor finalizers. It ignores additional labels and annotations outside the domain
// [tenant.Domain], because webhooks may add them to any object. It also ignores the annotations
// in which the server records the creator.
func hasMetadata(stored, want *metav1.ObjectMeta) bool {
	for key, value := range stored.Annotations {
		if isOwnKey(key) && key != tenant.CreatorAnnotation && key != tenant.OnBehalfOfAnnotation &&
			want.Annotations[key] != value {
			return false
		}
	}
	for key, value := range want.Annotations {
		if stored.Annotations[key] != value {
			return false
		}
	}
	for key := range stored.Labels {
		if _, wanted := want.Labels[key]; isOwnKey(key) && !wanted {
			return false
		}
	}
	for key, value := range want.Labels {
		if stored.Labels[key] != value {
			return false
		}
	}
	return len(stored.OwnerReferences) == 0 && len(stored.Finalizers) == 0
}

func isOwnKey(key string) bool { return strings.HasPrefix(key, tenant.Domain+"/") }

// inNamespace returns a copy of a binding for a namespace.
func inNamespace(b *rbacv1.RoleBinding, namespace string) *rbacv1.RoleBinding {
	out := b.DeepCopy()
	out.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: b.Name, Labels: out.Labels}
	return out
}
