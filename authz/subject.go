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

// ErrDisagree says that an identity names one tenant in one place and another in another.
var ErrDisagree = errors.New("conflicting tenants")

// ErrUndated says that an identity may be one of a deleted tenant's that had the name before:
// nobody says when its credential was issued.
var ErrUndated = errors.New("the credential has no time of issue")

// certificateCredential begins the credential-id of identities from client certificates
// (k8s.io/apiserver pkg/authentication/request/x509, v0.37.1).
const certificateCredential = "X509SHA256=" // #nosec G101 -- the beginning of an identifier

// Subjects tells the tenant of an identity that was authenticated. It must not be changed once it
// is in use, and is then safe for concurrent use.
type Subjects struct {
	// Names are the identities of the system tenant that carry no tenant.
	Names *tenant.SystemNames
	// SystemNamespaces are the namespaces whose service accounts belong to the system tenant, whatever
	// label the namespace has.
	SystemNamespaces []string
	// FromGroups takes the tenant of a certificate's identity from its one group tenant:<id>.
	FromGroups bool
	// Owners of the service accounts' namespaces.
	Owners *Owners
	// Lineage tells who had a tenant's name before, whose certificates FromGroups must not take for
	// the tenant's. It MUST be quick and safe for concurrent use. Nil for nobody.
	Lineage func(tenant.ID) tenant.Lineage
}

// Of returns the tenant of u, by the first rule that applies: (1) the extra tenant.ExtraKey; (2)
// the owner of a service account's namespace, with which (1) must agree; (3) with FromGroups, the
// one group tenant:<id> of a certificate's identity; (4) the names of the system tenant.
//
// The error wraps [tenant.ErrUnbound] where no rule applies, [tenant.ErrAmbiguous],
// [tenant.ErrInvalid], [ErrDisagree] or [ErrUndated] where one applies and does not lead to one
// tenant, or says that a lookup failed. With an error the ID is zero.
//
// Security: u MUST be the real caller's or have been checked as impersonated by a caller of the
// system tenant.
func (s *Subjects) Of(ctx context.Context, u user.Info) (tenant.ID, error) {
	id, _, err := s.ByRule(ctx, u)
	return id, err
}

// A SubjectRule is the rule by which an identity got its tenant.
type SubjectRule string

// The rules of [Subjects.Of], in their order.
const (
	SubjectRuleExtra          SubjectRule = "the extra " + tenant.ExtraKey
	SubjectRuleServiceAccount SubjectRule = "the owner of the service account's namespace"
	SubjectRuleGroup          SubjectRule = "the only group " + tenant.GroupPrefix + "<id> of a certificate"
	SubjectRuleSystemName     SubjectRule = "a name of the system tenant"
)

// ByRule is [Subjects.Of], and says which rule applied; none where the tenant is not known.
func (s *Subjects) ByRule(ctx context.Context, u user.Info) (tenant.ID, SubjectRule, error) {
	id, err := s.stated(ctx, u)
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
			if lineage := s.Lineage(id); !lineage.IsOver() && !lineage.Accepts(time.Time{}) {
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
		return tenant.ID{}, "", fmt.Errorf("%w: a name of the system tenant and a group of another tenant", ErrDisagree)
	}
	return tenant.System(), SubjectRuleSystemName, nil
}

// hasReservedName reports whether u, of a tenant, has a name or group that is reserved. Groups that
// begin system: are the boundary's to judge: the server adds some itself.
func (s *Subjects) hasReservedName(u user.Info) bool {
	return s.Names.ReservedUser(u.GetName()) || slices.ContainsFunc(u.GetGroups(), func(group string) bool {
		return s.Names.ReservedGroup(group) && !strings.HasPrefix(group, "system:") &&
			!strings.HasPrefix(group, tenant.GroupPrefix)
	})
}

// stated is rules 1 and 2: what the identity itself says. A service account whose namespace is
// nobody's is an error other than ErrUnbound, since no later rule may apply to it.
func (s *Subjects) stated(ctx context.Context, u user.Info) (tenant.ID, error) {
	id, err := tenant.Of(u)
	if err != nil && !errors.Is(err, tenant.ErrUnbound) || u == nil || !tenant.IsServiceAccountName(u.GetName()) {
		return id, err
	}
	if isCertificate(u) && errors.Is(err, tenant.ErrUnbound) {
		// Service accounts have tokens. Where kube-apiserver verifies certificates itself, nobody keeps
		// such a name out of them.
		return tenant.ID{}, fmt.Errorf("%w: a service account's name in a certificate", tenant.ErrInvalid)
	}
	namespace, ok := tenant.ServiceAccountNamespace(u.GetName())
	if !ok {
		return tenant.ID{}, fmt.Errorf("%w: malformed service account name", tenant.ErrInvalid)
	}
	owner, ownerErr := s.OfServiceAccounts(ctx, namespace)
	switch {
	case ownerErr != nil:
		return tenant.ID{}, ownerErr
	case err == nil && id != owner:
		return tenant.ID{}, fmt.Errorf("%w: service account and its namespace", ErrDisagree)
	}
	return owner, nil
}

// OfServiceAccounts returns the tenant of the service accounts of a namespace: the system
// tenant in SystemNamespaces, else the tenant of the label. In any other namespace without a
// label they have no tenant. The error wraps [tenant.ErrInvalid] where they are nobody's, or
// says that the lookup failed.
func (s *Subjects) OfServiceAccounts(ctx context.Context, namespace string) (tenant.ID, error) {
	is := s.Owners.find(ctx, requester{}, namespace)
	if is.err != nil {
		return tenant.ID{}, is.err
	}
	if is.ns != nil {
		if slices.Contains(s.SystemNamespaces, namespace) {
			return tenant.System(), nil
		}
		if label, labelled := is.ns.Labels[tenant.Label]; labelled {
			return tenant.Parse(label)
		}
	}
	return tenant.ID{}, fmt.Errorf("%w: the namespace of the service account has no owner", tenant.ErrInvalid)
}

func isCertificate(u user.Info) bool {
	ids := u.GetExtra()[user.CredentialIDKey]
	return len(ids) == 1 && strings.HasPrefix(ids[0], certificateCredential)
}

// fromGroups returns the tenant of the one group tenant:<id>.
func fromGroups(u user.Info) (tenant.ID, error) {
	found := ""
	for _, group := range u.GetGroups() {
		name, ok := strings.CutPrefix(group, tenant.GroupPrefix)
		switch {
		case !ok:
		case found != "":
			return tenant.ID{}, fmt.Errorf("%w: groups", tenant.ErrAmbiguous)
		case name == "":
			return tenant.ID{}, fmt.Errorf("%w: group without a tenant", tenant.ErrInvalid)
		default:
			found = name
		}
	}
	if found == "" {
		return tenant.ID{}, tenant.ErrUnbound
	}
	return tenant.Parse(found)
}

// impersonated returns the tenant of u, whom a caller of tenant real impersonates.
func (s *Subjects) impersonated(ctx context.Context, real tenant.ID, u user.Info) (tenant.ID, error) {
	group, groupErr := fromGroups(u)
	if groupErr != nil && !errors.Is(groupErr, tenant.ErrUnbound) {
		return tenant.ID{}, groupErr
	}
	var id tenant.ID
	var err error
	if real.IsSystem() {
		id, err = s.Of(ctx, u)
		if errors.Is(err, tenant.ErrUnbound) {
			id, err = group, groupErr
		}
	} else {
		id, err = s.stated(ctx, u)
		if errors.Is(err, tenant.ErrUnbound) {
			id, err = real, nil
		}
		if err == nil && id != real {
			return tenant.ID{}, fmt.Errorf("%w: impersonated user and impersonator", ErrDisagree)
		}
	}
	if err == nil && groupErr == nil && group != id {
		return tenant.ID{}, fmt.Errorf("%w: impersonated user and group", ErrDisagree)
	}
	return id, err
}

// inForeignSystemGroup reports whether u, who is not the system tenant's, is in a system group that
// its kind of caller is not always in.
func inForeignSystemGroup(u user.Info) bool {
	for _, group := range u.GetGroups() {
		switch {
		case !strings.HasPrefix(group, "system:"), group == user.AllAuthenticated:
		case !tenant.IsServiceAccountName(group) || !ownServiceAccountGroup(u.GetName(), group):
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
