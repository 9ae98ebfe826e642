// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

// ErrConflictingTenants reports that an identity names two different tenants.
var ErrConflictingTenants = errors.New("conflicting tenants")

// ErrUndated reports that an identity may belong to a deleted tenant of the same name, because its
// credential does not contain the time of issue.
var ErrUndated = errors.New("the credential has no time of issue")

// certificateCredential is the prefix of the credential-id of identities from client certificates
// (k8s.io/apiserver pkg/authentication/request/x509, v0.37.1).
const certificateCredential = "X509SHA256=" // #nosec G101 -- the beginning of an identifier

// Subjects determines the tenant of an authenticated identity. It must not be changed after its
// first use. It is then safe for concurrent use.
type Subjects struct {
	// Names are the user and group names that identify callers of the system tenant.
	Names *tenant.SystemNames
	// SystemNamespaces are the namespaces whose service accounts belong to the system tenant,
	// regardless of the namespace's label.
	SystemNamespaces []string
	// FromGroups specifies that the group tenant:<id> of a certificate's identity determines the
	// tenant, if the identity has only one such group.
	FromGroups bool
	// Owners looks up the owner of a service account's namespace.
	Owners *Owners
	// Lineage returns the current and the earlier tenants of a name. With FromGroups, the
	// certificates of a name that had an earlier tenant are rejected, because they contain no time
	// of issue, unless the tenant accepts undated credentials. Lineage MUST return quickly and be
	// safe for concurrent use. If nil, no name had an earlier tenant.
	Lineage func(tenant.ID) tenant.Lineage
}

// TenantOf returns the tenant of u. The first rule that applies determines it:
//
//  1. The extra [tenant.ExtraKey].
//  2. The owner of a service account's namespace. If rule 1 applies too, both must agree.
//  3. With FromGroups, the only group tenant:<id> of a certificate's identity.
//  4. A user or group name of the system tenant.
//
// If no rule applies, the error wraps [tenant.ErrUnbound]. If a rule applies but does not lead to
// one tenant, the error wraps [tenant.ErrAmbiguous], [tenant.ErrInvalid], [ErrConflictingTenants]
// or [ErrUndated]. Any other error reports that a lookup failed. With an error, the ID is zero.
//
// Security: u MUST be the authenticated caller, or a user for which the server has checked that a
// caller of the system tenant may impersonate it.
func (s *Subjects) TenantOf(ctx context.Context, u user.Info) (tenant.ID, error) {
	id, _, err := s.TenantWithRule(ctx, u)
	return id, err
}

// A SubjectRule is the rule that determined the tenant of an identity.
type SubjectRule string

// The rules of [Subjects.TenantOf], in their order.
const (
	SubjectRuleExtra          SubjectRule = "the extra " + tenant.ExtraKey
	SubjectRuleServiceAccount SubjectRule = "the owner of the service account's namespace"
	SubjectRuleGroup          SubjectRule = "the only group " + tenant.GroupPrefix + "<id> of a certificate"
	SubjectRuleSystemName     SubjectRule = "a name of the system tenant"
)

// TenantWithRule returns the same tenant as [Subjects.TenantOf], and the rule that determined the
// tenant. With an error, the rule is empty.
func (s *Subjects) TenantWithRule(ctx context.Context, u user.Info) (tenant.ID, SubjectRule, error) {
	id, err := s.statedTenant(ctx, u)
	switch {
	case err == nil && tenant.IsServiceAccountName(u.GetName()):
		return id, SubjectRuleServiceAccount, nil
	case err == nil:
		return id, SubjectRuleExtra, nil
	case !errors.Is(err, tenant.ErrUnbound) || u == nil:
		return id, "", err
	}
	if s.FromGroups && isCertificate(u) {
		id, err := fromGroups(u)
		if err == nil && !id.IsSystem() && s.hasReservedName(u) {
			return tenant.ID{}, "", fmt.Errorf("%w: a reserved name in a tenant's certificate", tenant.ErrInvalid)
		}
		if err == nil && s.Lineage != nil {
			if lineage := s.Lineage(id); !lineage.HasEnded() && !lineage.Accepts(time.Time{}) {
				return tenant.ID{}, "", ErrUndated
			}
		}
		if err == nil {
			return id, SubjectRuleGroup, nil
		}
		if !errors.Is(err, tenant.ErrUnbound) {
			return id, "", err
		}
	}
	if !s.Names.Has(u) {
		return tenant.ID{}, "", tenant.ErrUnbound
	}
	if id, err := fromGroups(u); !errors.Is(err, tenant.ErrUnbound) && !id.IsSystem() {
		return tenant.ID{}, "", fmt.Errorf(
			"%w: a name of the system tenant and a group of another tenant",
			ErrConflictingTenants,
		)
	}
	return tenant.System(), SubjectRuleSystemName, nil
}

// hasReservedName reports whether u, a tenant's caller, has a reserved user name or group. It
// ignores groups that begin with "tenant:", and groups that begin with "system:". The server adds
// some of the latter itself, and the boundary checks them ([inForeignSystemGroup]).
func (s *Subjects) hasReservedName(u user.Info) bool {
	return s.Names.ReservedUser(u.GetName()) || slices.ContainsFunc(u.GetGroups(), func(group string) bool {
		return s.Names.ReservedGroup(group) && !strings.HasPrefix(group, "system:") &&
			!strings.HasPrefix(group, tenant.GroupPrefix)
	})
}

// statedTenant applies rules 1 and 2 of [Subjects.TenantOf]. If the namespace of a service account
// is unowned, the error is not ErrUnbound, because no later rule may apply.
func (s *Subjects) statedTenant(ctx context.Context, u user.Info) (tenant.ID, error) {
	id, err := tenant.Of(u)
	if err != nil && !errors.Is(err, tenant.ErrUnbound) || u == nil || !tenant.IsServiceAccountName(u.GetName()) {
		return id, err
	}
	if isCertificate(u) && errors.Is(err, tenant.ErrUnbound) {
		// Service accounts authenticate by token. A kube-apiserver that verifies certificates
		// itself also accepts the name of a service account in a certificate.
		return tenant.ID{}, fmt.Errorf("%w: a service account's name in a certificate", tenant.ErrInvalid)
	}
	namespace, ok := tenant.ServiceAccountNamespace(u.GetName())
	if !ok {
		return tenant.ID{}, fmt.Errorf("%w: malformed service account name", tenant.ErrInvalid)
	}
	owner, ownerErr := s.ServiceAccountTenant(ctx, namespace)
	switch {
	case ownerErr != nil:
		return tenant.ID{}, ownerErr
	case err == nil && id != owner:
		return tenant.ID{}, fmt.Errorf("%w: service account and its namespace", ErrConflictingTenants)
	}
	return owner, nil
}

// ServiceAccountTenant returns the tenant of the service accounts of a namespace. In
// SystemNamespaces, it is the system tenant. In any other namespace, it is the tenant in the
// namespace's label. If the namespace is missing or has no valid label, the error wraps
// [tenant.ErrInvalid]. Any other error reports that the lookup failed.
func (s *Subjects) ServiceAccountTenant(ctx context.Context, namespace string) (tenant.ID, error) {
	result := s.Owners.find(ctx, requester{}, namespace)
	if result.err != nil {
		return tenant.ID{}, result.err
	}
	if result.ns != nil {
		if slices.Contains(s.SystemNamespaces, namespace) {
			return tenant.System(), nil
		}
		if label, ok := result.ns.Labels[tenant.Label]; ok {
			return tenant.Parse(label)
		}
	}
	return tenant.ID{}, fmt.Errorf("%w: the namespace of the service account has no owner", tenant.ErrInvalid)
}

func isCertificate(u user.Info) bool {
	ids := u.GetExtra()[user.CredentialIDKey]
	return len(ids) == 1 && strings.HasPrefix(ids[0], certificateCredential)
}

// fromGroups returns the tenant of the only group tenant:<id>. Without such a group, the error is
// ErrUnbound.
func fromGroups(u user.Info) (tenant.ID, error) {
	found := ""
	for _, group := range u.GetGroups() {
		name, ok := strings.CutPrefix(group, tenant.GroupPrefix)
		if !ok {
			continue
		}
		if found != "" {
			return tenant.ID{}, fmt.Errorf("%w: groups", tenant.ErrAmbiguous)
		}
		if name == "" {
			return tenant.ID{}, fmt.Errorf("%w: group without a tenant", tenant.ErrInvalid)
		}
		found = name
	}
	if found == "" {
		return tenant.ID{}, tenant.ErrUnbound
	}
	return tenant.Parse(found)
}

// impersonatedTenant returns the tenant of user u. The impersonator of u belongs to the tenant
// impersonatorTenant.
func (s *Subjects) impersonatedTenant(
	ctx context.Context,
	impersonatorTenant tenant.ID,
	u user.Info,
) (tenant.ID, error) {
	group, groupErr := fromGroups(u)
	if groupErr != nil && !errors.Is(groupErr, tenant.ErrUnbound) {
		return tenant.ID{}, groupErr
	}
	var id tenant.ID
	var err error
	if impersonatorTenant.IsSystem() {
		id, err = s.TenantOf(ctx, u)
		if errors.Is(err, tenant.ErrUnbound) {
			id, err = group, groupErr
		}
	} else {
		id, err = s.statedTenant(ctx, u)
		if errors.Is(err, tenant.ErrUnbound) {
			id = impersonatorTenant
			err = nil
		}
		if err == nil && id != impersonatorTenant {
			return tenant.ID{}, fmt.Errorf("%w: impersonated user and impersonator", ErrConflictingTenants)
		}
	}
	if err == nil && groupErr == nil && group != id {
		return tenant.ID{}, fmt.Errorf("%w: impersonated user and group", ErrConflictingTenants)
	}
	return id, err
}

// inForeignSystemGroup reports whether u, a caller outside the system tenant, is in a group with
// the prefix "system:" that its tenant must not have. Only system:authenticated and, for a
// service account, its own two groups are permitted.
func inForeignSystemGroup(u user.Info) bool {
	for _, group := range u.GetGroups() {
		if !strings.HasPrefix(group, "system:") || group == user.AllAuthenticated {
			continue
		}
		if !tenant.IsServiceAccountName(group) || !ownServiceAccountGroup(u.GetName(), group) {
			return true
		}
	}
	return false
}

func ownServiceAccountGroup(name, group string) bool {
	namespace, ok := tenant.ServiceAccountNamespace(name)
	return ok &&
		(group == serviceaccount.AllServiceAccountsGroup || group == serviceaccount.MakeNamespaceGroupName(namespace))
}
