// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// ClusterRoles of Capsule that allow owners to create and delete their tenant's namespaces.
const (
	deleterRole     = "capsule-namespace-deleter"
	provisionerRole = "capsule-namespace-provisioner"
)

// Limits in the CustomResourceDefinition Tenant.
const (
	maxSubjects   = 100
	maxBindings   = 32
	maxNameLength = 253
)

// convertSubjects converts the owners to admins or role bindings, and the additional role
// bindings to role bindings.
func (t *capsuleTenant) convertSubjects() {
	for _, owner := range t.find("spec.owners").items() {
		t.convertOwner(owner)
	}
	for _, binding := range t.find("spec.additionalRoleBindings").items() {
		t.convertBinding(binding)
	}
}

// convertOwner converts an owner to an admin if the owner had the role admin and could delete
// namespaces. It does not convert other owners to admins, because admins may delete the tenant's
// namespaces. It binds the owner's other ClusterRoles.
func (t *capsuleTenant) convertOwner(owner node) {
	if t.isBeta1() && t.hasRoleAnnotations() {
		owner.reportUnconverted(
			"its ClusterRoles are in an annotation of this API version; get the Tenant as %s/v1beta2",
			capsuleGroup,
		)
		return
	}
	subject, problem := t.ownerSubject(owner)
	if problem != "" {
		owner.reportUnconverted("%s", problem)
		return
	}
	roles := owner.get("clusterRoles")
	names := ownerRoles(owner)
	isAdmin := slices.Contains(names, v1alpha1.AdminRole) && slices.Contains(names, deleterRole)
	if isAdmin {
		if problem := t.addAdmin(subject); problem != "" {
			owner.reportUnconverted("%s", problem)
			return
		}
	}
	for _, role := range roles.items() {
		name, _ := role.value.(string)
		if name == "" {
			continue
		}
		switch {
		case isAdmin && slices.Contains([]string{v1alpha1.AdminRole, deleterRole, provisionerRole}, name):
			role.consume()
		case name == deleterRole || name == provisionerRole:
			role.reportUnconverted(
				"only spec.admins may create and delete namespaces of a tenant; if the owner may be an admin, add it " +
					"there",
			)
		default:
			t.bind(role, name, subject)
		}
	}
	owner.get("kind").consume()
	owner.get("name").consume()
	if !isAdmin {
		t.result.reportUnconverted(
			owner.location,
			"%s: the owner could create namespaces; if it may also delete them, add it to "+
				"spec.admins",
			owner.path,
		)
	}
}

// hasRoleAnnotations reports whether annotations specify the ClusterRoles of owners, as in
// version v1beta1 of Capsule's API.
func (t *capsuleTenant) hasRoleAnnotations() bool {
	return slices.ContainsFunc(t.find("metadata.annotations").keys(), func(key string) bool {
		return prefixOf(key) == "clusterrolenames."+capsuleGroup
	})
}

// ownerRoles returns the ClusterRoles of an owner without consuming them. If the field is not
// set, it returns the roles that Capsule uses by default.
func ownerRoles(owner node) (all []string) {
	roles := owner.get("clusterRoles")
	if !roles.isSet {
		return []string{v1alpha1.AdminRole, deleterRole}
	}
	for _, item := range roles.items() {
		if s, ok := item.value.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

func (t *capsuleTenant) convertBinding(binding node) {
	role := binding.get("clusterRoleName")
	name, _ := role.value.(string)
	bound := false
	for _, s := range binding.get("subjects").items() {
		subject, problem := t.subject(s)
		if problem != "" {
			s.reportUnconverted("%s", problem)
			continue
		}
		for _, key := range []string{"kind", "name", "namespace", "apiGroup"} {
			s.get(key).consume()
		}
		bound = t.bind(s, name, subject) || bound
	}
	if bound {
		role.consume()
	} else {
		role.reportUnconverted("none of its subjects was converted; see the messages about them")
	}
}

// addAdmin adds an admin. It returns "", or the reason why it cannot add the admin.
func (t *capsuleTenant) addAdmin(s v1alpha1.Subject) string {
	admins := &t.object.Spec.Admins
	if slices.Contains(*admins, s) {
		return ""
	}
	if len(*admins) == maxSubjects {
		return fmt.Sprintf("a Tenant can have at most %d admins; use a group instead", maxSubjects)
	}
	*admins = append(*admins, s)
	return ""
}

// bind binds a ClusterRole to a subject in each namespace of the tenant. If the role cannot be
// bound, bind reports the reason for n and returns false.
func (t *capsuleTenant) bind(n node, role string, s v1alpha1.Subject) bool {
	if role == "" || len(role) > maxNameLength || role == "." || role == ".." || strings.ContainsAny(role, "/%") {
		n.reportUnconverted("the name of the ClusterRole is not valid; correct it")
		return false
	}
	bindings := &t.object.Spec.Bindings
	i := slices.IndexFunc(*bindings, func(b v1alpha1.TenantBinding) bool { return b.ClusterRole == role })
	if i < 0 && len(*bindings) == maxBindings {
		n.reportUnconverted("a Tenant binds at most %d ClusterRoles; aggregate some of them", maxBindings)
		return false
	}
	if i < 0 {
		i = len(*bindings)
		*bindings = append(*bindings, v1alpha1.TenantBinding{ClusterRole: role})
	}
	subjects := &(*bindings)[i].Subjects
	if !slices.Contains(*subjects, s) {
		if len(*subjects) == maxSubjects {
			n.reportUnconverted("a Tenant can bind a ClusterRole to at most %d subjects; use a group instead", maxSubjects)
			return false
		}
		*subjects = append(*subjects, s)
	}
	n.consume()
	return true
}

// ownerSubject is like [capsuleTenant.subject] for an owner. An owner refers to a service account
// by its user name.
func (t *capsuleTenant) ownerSubject(owner node) (s v1alpha1.Subject, problem string) {
	if owner.get("kind").value != rbacv1.ServiceAccountKind {
		return t.subject(owner)
	}
	name, _ := owner.get("name").value.(string)
	namespace, ok := tenant.ServiceAccountNamespace(name)
	if !ok {
		return s, "the name is not that of a service account (system:serviceaccount:<namespace>:<name>); correct it"
	}
	return t.serviceAccount(namespace, accountName(namespace, name))
}

// accountName returns the name of a service account from its user name.
func accountName(namespace, user string) string {
	return strings.TrimPrefix(user, serviceaccount.ServiceAccountUsernamePrefix+namespace+":")
}

// subject returns the subject of a role binding, or the reason why the tenant may not have a
// binding to the subject. It does not consume n.
func (t *capsuleTenant) subject(n node) (s v1alpha1.Subject, problem string) {
	kind, _ := n.get("kind").value.(string)
	name, _ := n.get("name").value.(string)
	namespace, isText := n.get("namespace").value.(string)
	group, isGroup := n.get("apiGroup").value.(string)
	if n.get("namespace").isSet && !isText || n.get("apiGroup").isSet && !isGroup {
		return s, "the subject is not valid; correct it"
	}
	if account, ok := tenant.ServiceAccountNamespace(name); ok && kind == rbacv1.UserKind {
		return t.serviceAccount(account, accountName(account, name))
	}
	switch {
	case name == "" || len(name) > maxNameLength || !tenant.IsWellFormed(name):
		return s, "the name is not valid; correct it"
	case kind == rbacv1.ServiceAccountKind && group == "" && len(validation.IsDNS1123Subdomain(name)) == 0:
		return t.serviceAccount(namespace, name)
	case kind != rbacv1.UserKind && kind != rbacv1.GroupKind, namespace != "", group != "" && group != rbacv1.GroupName:
		return s, "the subject is not a user, a group or a service account; correct it"
	}
	if kind == rbacv1.UserKind {
		problem = reservedUser(name)
	} else {
		problem = t.reservedGroup(name)
	}
	return v1alpha1.Subject{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}, problem
}

// serviceAccount returns the subject for a service account, or the reason why it is not allowed:
// its namespace may not belong to the tenant.
func (t *capsuleTenant) serviceAccount(namespace, name string) (v1alpha1.Subject, string) {
	if !slices.Contains(t.namespaces, namespace) {
		return v1alpha1.Subject{}, fmt.Sprintf("it is unknown whether namespace %s belongs to the tenant; "+
			"use a service account from a namespace of the tenant", namespace)
	}
	return v1alpha1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}, ""
}

// systemNames returns the names that the default configuration reserves for the system tenant.
func systemNames() *tenant.SystemNames {
	s := &configv1alpha1.Settings{}
	configv1alpha1.Default(s)
	return s.Authorization.SystemSubjects.Names()
}

func reservedUser(name string) string {
	if systemNames().ReservedUser(name) {
		return "the user name is reserved for the cluster; use a user of the tenant"
	}
	return ""
}

func (t *capsuleTenant) reservedGroup(name string) string {
	accounts, isAccounts := strings.CutPrefix(name, serviceaccount.ServiceAccountGroupPrefix)
	switch {
	case name == t.id.Group(), isAccounts && slices.Contains(t.namespaces, accounts):
		return ""
	case isAccounts:
		return "the group contains service accounts outside the tenant's namespaces; use service accounts of the tenant"
	case name == capsuleGroup || name == capsuleDomain:
		return "the group contains the Capsule users of all tenants; use a group of the tenant"
	case systemNames().ReservedGroup(name):
		return "the group is reserved; use a group of the tenant"
	}
	return ""
}

// beforeAdoption returns a copy of the Tenant without service accounts, because the server
// rejects them until their namespaces are adopted. If the Tenant has no service accounts,
// beforeAdoption returns the Tenant itself.
func (t *capsuleTenant) beforeAdoption() *v1alpha1.Tenant {
	isAccount := func(s v1alpha1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind ||
			s.Kind == rbacv1.GroupKind && strings.HasPrefix(s.Name, serviceaccount.ServiceAccountGroupPrefix)
	}
	early := *t.object
	early.Spec.Admins = slices.DeleteFunc(slices.Clone(early.Spec.Admins), isAccount)
	changed := len(early.Spec.Admins) < len(t.object.Spec.Admins)
	early.Spec.Bindings = nil
	for _, b := range t.object.Spec.Bindings {
		subjects := slices.DeleteFunc(slices.Clone(b.Subjects), isAccount)
		changed = changed || len(subjects) < len(b.Subjects)
		if len(subjects) > 0 {
			b.Subjects = subjects
			early.Spec.Bindings = append(early.Spec.Bindings, b)
		}
	}
	if !changed {
		return t.object
	}
	return &early
}
