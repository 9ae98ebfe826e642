// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"errors"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// ReadRetired returns the tenant ID of a RetiredTenant and its content. r and err are the results
// of reading the RetiredTenant. The ID is zero if it is invalid. If the RetiredTenant does not
// decode, ReadRetired determines the ID from the object's name and spec.id, because the ID must
// remain reserved.
func ReadRetired(r *v1alpha1.RetiredTenant, err error) (tenant.ID, tenant.Retired, error) {
	var invalid *typed.Invalid
	if errors.As(err, &invalid) {
		id, out := readInvalidRetired(invalid)
		return id, out, nil
	}
	if err != nil {
		return tenant.ID{}, tenant.Retired{}, err
	}
	id, out := RetiredOf(r)
	return id, out, nil
}

// uidLength is the length of the UID of a stored object.
const uidLength = 36

func readInvalidRetired(r *typed.Invalid) (tenant.ID, tenant.Retired) {
	at := len(r.Name) - uidLength - 1
	if at <= 0 || r.Name[at] != '-' {
		return tenant.ID{}, tenant.Retired{}
	}
	id := IDOfName(r.Name[:at])
	if named, err := tenant.Parse(r.Tenant); err == nil && named.ObjectName() == r.Name[:at] {
		id = named
	}
	return id, tenant.Retired{UID: r.Name[at+1:], DeletionBegan: r.CreationTimestamp.Time}
}

// RetiredOf returns the tenant ID of a RetiredTenant and its content. The ID is zero if spec.id is
// invalid.
func RetiredOf(r *v1alpha1.RetiredTenant) (tenant.ID, tenant.Retired) {
	id, err := tenant.Parse(r.Spec.ID)
	if err != nil || id.IsSystem() {
		return tenant.ID{}, tenant.Retired{}
	}
	out := tenant.Retired{UID: r.Spec.UID, DeletionBegan: r.CreationTimestamp.Time, Namespaces: r.Spec.Namespaces}
	if r.Spec.RetiredAt != nil {
		out.DeletionEnded = r.Spec.RetiredAt.Time
	}
	return id, out
}

// TakenBackAccess returns the access that the tenant's callers have after its deletion was
// canceled. The second result is false if the RetiredTenant records a deleted tenant instead of a
// canceled deletion.
func TakenBackAccess(r *v1alpha1.RetiredTenant) (authz.Access, bool) {
	return accessOf(r.Spec.TakenBack), r.Spec.TakenBack != ""
}

// RetiredName returns the name of the RetiredTenant for the Tenant with the given name and UID.
func RetiredName(tenantName, uid string) string { return tenantName + "-" + uid }

// QuotaTenantField is the field of a TenantQuota that names its tenant. The
// CustomResourceDefinition allows it in field selectors.
const QuotaTenantField = "spec.tenant"

// QuotaSelector returns the field selector that selects the TenantQuotas of a tenant.
func QuotaSelector(id tenant.ID) string {
	return fields.OneTermEqualSelector(QuotaTenantField, id.String()).String()
}

// Labels converts the labels that a Tenant specifies for its namespaces to strings. It returns
// nil if of is nil.
func Labels(of map[string]v1alpha1.LabelValue) map[string]string {
	if of == nil {
		return nil
	}
	out := make(map[string]string, len(of))
	for key, value := range of {
		out[key] = string(value)
	}
	return out
}

// Subjects converts the subjects in a Tenant or in TenantMembers to RBAC subjects.
func Subjects(all []v1alpha1.Subject) []rbacv1.Subject {
	var out []rbacv1.Subject
	for _, s := range all {
		out = append(out, rbacv1.Subject(s))
	}
	return out
}
