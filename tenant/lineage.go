// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// maxBackdating is how long before the creation of its Tenant a credential may have been issued.
// kube-controller-manager's signer backdates certificates by this time (k8s.io/kubernetes
// pkg/controller/certificates/signer, v1.37.1).
const maxBackdating = 5 * time.Minute

// Lineage describes the Tenant of a tenant and the earlier Tenants of the same name. The zero value
// is a tenant without a Tenant, whose name no other tenant had before.
type Lineage struct {
	// UID is the UID of the Tenant. It is empty if there is none.
	UID string
	// Created is when the Tenant was created. Ending reports that it is being deleted.
	Created     time.Time
	Terminating bool
	// AcceptUndated accepts credentials that do not contain their time of issue.
	AcceptUndated bool
	// Retired are the deleted Tenants of the name, sorted by the end of their deletion. It must not be
	// changed.
	Retired []Retired
}

// Retired is a Tenant that was deleted.
type Retired struct {
	// UID is the UID of the Tenant.
	UID string
	// DeletionBegan is when the deletion began. At is when it ended, or zero if it has not ended yet.
	DeletionBegan, DeletionEnded time.Time
	// Namespaces are the namespaces of the Tenant.
	Namespaces []string
}

// HasEnded reports whether the name belongs to no tenant. Its Tenant is being deleted, or was deleted
// and has no successor.
func (l *Lineage) HasEnded() bool { return l.Terminating || l.UID == "" && len(l.Retired) > 0 }

// Accepts reports whether a credential can belong to this tenant and not to an earlier tenant of
// the same name. It was issued at a time that is zero if it is unknown.
func (l *Lineage) Accepts(issued time.Time) bool {
	switch {
	case len(l.Retired) == 0:
		return true
	case issued.IsZero():
		return l.AcceptUndated
	}
	return !issued.Before(l.Created.Add(-maxBackdating))
}

// AcceptsSeal reports whether a record with the [Seal] of a Tenant's UID is about the current tenant of
// the name. If no other tenant had the name before, every record is. If [Lineage.HasEnded] is true,
// none is.
func (l *Lineage) AcceptsSeal(seal string) bool {
	return !l.HasEnded() && (len(l.Retired) == 0 || IsSealOf(seal, l.UID))
}

// Seal returns a salted hash of a Tenant's UID, for records that other tenants can read. It reveals
// neither the UID nor whether there is one.
func Seal(uid string) string {
	if uid == "" {
		uid = rand.Text()
	}
	return saltedHash(rand.Text(), uid)
}

// IsSealOf reports whether a seal is a seal of a UID. It returns false for an empty UID.
func IsSealOf(seal, uid string) bool {
	salt, _, ok := strings.Cut(seal, ".")
	return ok && uid != "" && seal == saltedHash(salt, uid)
}

func saltedHash(salt, uid string) string {
	sum := sha256.Sum256([]byte(salt + "." + uid))
	return salt + "." + hex.EncodeToString(sum[:])
}

// LastRetired returns the Tenant of the name that was deleted last. It returns false if none was deleted.
func (l *Lineage) LastRetired() (Retired, bool) {
	if len(l.Retired) == 0 {
		return Retired{}, false
	}
	return l.Retired[len(l.Retired)-1], true
}

// SortByDeletionEnd returns the Tenants of a name, sorted by the end of their deletion. Tenants whose
// deletion has not ended are last.
func SortByDeletionEnd(all []Retired) []Retired {
	return slices.SortedFunc(slices.Values(all), func(a, b Retired) int {
		switch {
		case a.DeletionEnded.Equal(b.DeletionEnded):
			return cmp.Or(a.DeletionBegan.Compare(b.DeletionBegan), cmp.Compare(a.UID, b.UID))
		case a.DeletionEnded.IsZero():
			return 1
		case b.DeletionEnded.IsZero():
			return -1
		}
		return a.DeletionEnded.Compare(b.DeletionEnded)
	})
}
