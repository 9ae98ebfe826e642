// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Keystone is the content of [tenant.KeystoneAnnotation]. The zero value gives no rights.
type Keystone struct {
	// Domain is the ID of the Keystone domain.
	Domain string `json:"domain"`
	// Project is the ID of the Keystone project from which a Namespace was created. It is empty
	// on a Tenant.
	Project string `json:"project,omitempty"`
	// Roles are the roles for which the server creates RoleBindings, sorted by ID. It binds roles
	// in a project in the project's namespace, and roles in a domain in each namespace of the
	// tenant.
	Roles []KeystoneRole `json:"roles,omitempty"`
	// MissingSince is the time of the first read in which the project was missing. On a Tenant, it is
	// the time of the first read in which too many roles of the tenant were missing.
	MissingSince *metav1.Time `json:"missingSince,omitempty"`
}

// KeystoneRole is a role that a user or a group has in a Keystone project or domain.
type KeystoneRole struct {
	// ID is the ID of the role in Keystone.
	ID string `json:"id"`
	// Group is the group to which callers with the role belong. See package authn/keystone.
	Group string `json:"group"`
	// ClusterRole is the name of the ClusterRole that is bound to the group.
	ClusterRole string `json:"clusterRole"`
}

// maxKeystone is the maximum size of the annotation in bytes. The server limits the total size of
// an object's annotations to 256 KiB.
const maxKeystone = 64 << 10

// IsKeystoneID reports whether a text can be the ID of a domain, a project or a role in Keystone.
// It returns false for "domain" and "system", because group names contain these words for
// domain-scoped and system-scoped tokens.
func IsKeystoneID(id string) bool {
	return keystoneID.MatchString(id) && id != "domain" && id != "system"
}

var keystoneID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

var errKeystone = errors.New("the annotation " + tenant.KeystoneAnnotation + " is invalid")

// KeystoneOf decodes the annotation of a Tenant or a Namespace. It returns nil if the annotation
// is missing or empty. It fails if the annotation is invalid, or if its text differs from the
// result of [Keystone.String].
func KeystoneOf(object metav1.Object) (*Keystone, error) {
	text := object.GetAnnotations()[tenant.KeystoneAnnotation]
	if text == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	if len(text) > maxKeystone {
		return nil, errKeystone
	}
	out := &Keystone{}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(out); err != nil || out.String() != text {
		return nil, errKeystone
	}
	if _, ok := object.(*v1alpha1.Tenant); ok && out.Project != "" {
		return nil, fmt.Errorf("%w: a Tenant has no project", errKeystone)
	}
	if err := out.check(); err != nil {
		return nil, err
	}
	return out, nil
}

// check returns an error if an ID or a group is invalid, a ClusterRole is empty, or the roles are
// not sorted by ID.
func (k *Keystone) check() error {
	if !IsKeystoneID(k.Domain) || k.Project != "" && !IsKeystoneID(k.Project) {
		return fmt.Errorf("%w: an ID is invalid", errKeystone)
	}
	for i, role := range k.Roles {
		if !IsKeystoneID(role.ID) || role.ClusterRole == "" || !k.isGroup(&role) || i > 0 && k.Roles[i-1].ID >= role.ID {
			return fmt.Errorf("%w: its roles are invalid", errKeystone)
		}
	}
	return nil
}

// isGroup reports whether the group of a role has the form <prefix>role-id:<project>:<role>, or
// <prefix>role-id:domain:<domain>:<role> on a Tenant. The prefix must not begin with "system:" or
// "tenant:".
func (k *Keystone) isGroup(role *KeystoneRole) bool {
	scope := k.Project
	if scope == "" {
		scope = "domain:" + k.Domain
	}
	prefix, ok := strings.CutSuffix(role.Group, "role-id:"+scope+":"+role.ID)
	return ok && !strings.HasPrefix(prefix, "system:") && !strings.HasPrefix(prefix, tenant.GroupPrefix)
}

// String returns the text of the annotation. Equal values have the same text.
func (k *Keystone) String() string {
	text, err := json.Marshal(k)
	if err != nil {
		panic(err) // impossible, k contains only strings and a time
	}
	return string(text)
}

// Equal reports whether k and other have the same content. It returns false if other is nil.
func (k *Keystone) Equal(other *Keystone) bool {
	return other != nil && k.Domain == other.Domain && k.Project == other.Project &&
		slices.Equal(k.Roles, other.Roles) && k.MissingSince.Equal(other.MissingSince)
}
