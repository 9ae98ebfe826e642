// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rolebinding

import (
	"context"
	"errors"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/kubetenant/kubetenant/tenant"
)

var (
	errForeign   = errors.New("names callers of another tenant")
	errReserved  = errors.New("is a reserved name")
	errForeignSA = errors.New("names a service account in a namespace that the tenant does not own")
)

// Subjects checks which subjects a tenant may bind in its namespaces.
type Subjects struct {
	// ReferencedOwner returns the tenant that owns a namespace. by is the tenant whose object names
	// the namespace. The namespace may not exist yet. Required.
	ReferencedOwner func(ctx context.Context, by tenant.ID, namespace string) (tenant.ID, error)
	// Names are the reserved names. If nil, only the names that are always reserved are known.
	Names *tenant.SystemNames
	// QualifiedNames reports whether the names of a tenant's callers begin with the tenant and a
	// colon.
	QualifiedNames bool
}

// Check returns an error if a tenant may not bind a subject. If a lookup fails, it returns the
// error of ReferencedOwner.
func (c *Subjects) Check(ctx context.Context, own tenant.ID, s rbacv1.Subject) error {
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		return c.checkNamespace(ctx, own, s.Namespace)
	case rbacv1.UserKind:
		if namespace, _, err := serviceaccount.SplitUsername(s.Name); err == nil {
			return c.checkNamespace(ctx, own, namespace)
		}
		if c.Names.ReservedUser(s.Name) {
			return errReserved
		}
	case rbacv1.GroupKind:
		if s.Name == own.Group() {
			return nil
		}
		if namespace, ok := strings.CutPrefix(s.Name, serviceaccount.ServiceAccountGroupPrefix); ok {
			return c.checkNamespace(ctx, own, namespace)
		}
		if strings.HasPrefix(s.Name, tenant.GroupPrefix) {
			return errForeign
		}
		if c.Names.ReservedGroup(s.Name) {
			return errReserved
		}
	default:
		return errReserved // RBAC does not know this kind
	}
	if prefix, _, qualified := strings.Cut(s.Name, ":"); c.QualifiedNames && qualified && prefix != own.String() {
		return errForeign
	}
	return nil
}

func (c *Subjects) checkNamespace(ctx context.Context, own tenant.ID, namespace string) error {
	owner, err := c.ReferencedOwner(ctx, own, namespace)
	switch {
	case err != nil:
		return err
	case owner != own:
		return errForeignSA
	}
	return nil
}
