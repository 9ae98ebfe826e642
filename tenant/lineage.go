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

// maxBackdating is the maximum time between the issue of a credential and the later creation of its
// Tenant object. The signer of kube-controller-manager backdates certificates by the same time
// (k8s.io/kubernetes pkg/controller/certificates/signer, v1.37.1).
const maxBackdating = 5 * time.Minute

// Lineage describes the current Tenant object of a name and the deleted Tenant objects of the same
// name. The zero value describes a name that has, and had, no Tenant object.
type Lineage struct {
	// UID is the UID of the current Tenant object. It is empty if none exists.
	UID string
	// Created is the creation time of the Tenant object. Terminating reports that the object is
	// being deleted, but not together with its CustomResourceDefinition.
	Created     time.Time
	Terminating bool
	// AcceptUndated specifies that credentials without a time of issue are accepted.
	AcceptUndated bool
	// Retired lists the deleted Tenant objects of the name, sorted by the end of their deletion. It
	// MUST NOT be changed.
	Retired []Retired
}

// Retired is a deleted Tenant object.
type Retired struct {
	// UID is the UID of the Tenant object.
	UID string
	// DeletionBegan is when the deletion began. DeletionEnded is when it ended, or zero if it has
	// not ended yet.
	DeletionBegan, DeletionEnded time.Time
	// Namespaces lists the namespaces of the deleted tenant.
	Namespaces []string
}

// HasEnded reports whether the name belongs to no current tenant. Its Tenant object is being
// deleted, or was deleted and has no successor.
func (l *Lineage) HasEnded() bool { return l.Terminating || l.UID == "" && len(l.Retired) > 0 }

// Accepts reports whether a credential is accepted for the current tenant of the name. A
// credential from before the current tenant may belong to an earlier tenant of the same name. If
// there was no earlier tenant, every credential is accepted. issued is the time of issue, or
// zero if that is unknown.
func (l *Lineage) Accepts(issued time.Time) bool {
	switch {
	case len(l.Retired) == 0:
		return true
	case issued.IsZero():
		return l.AcceptUndated
	}
	return !issued.Before(l.Created.Add(-maxBackdating))
}

// AcceptsSeal reports whether a record with the given seal is about the current tenant of the
// name, see [Seal]. If [Lineage.HasEnded] is true, it returns false. Otherwise, if there was no
// earlier tenant of the name, it returns true for every record.
func (l *Lineage) AcceptsSeal(seal string) bool {
	return !l.HasEnded() && (len(l.Retired) == 0 || IsSealOf(seal, l.UID))
}

// Seal returns a salted hash of the UID of a Tenant object, for records that other tenants can
// read. The seal reveals neither the UID nor whether the UID is empty.
func Seal(uid string) string {
	if uid == "" {
		uid = rand.Text()
	}
	return saltedHash(rand.Text(), uid)
}

// IsSealOf reports whether seal is a seal of the given UID. It returns false for an empty UID.
func IsSealOf(seal, uid string) bool {
	salt, _, ok := strings.Cut(seal, ".")
	return ok && uid != "" && seal == saltedHash(salt, uid)
}

func saltedHash(salt, uid string) string {
	sum := sha256.Sum256([]byte(salt + "." + uid))
	return salt + "." + hex.EncodeToString(sum[:])
}

// LastRetired returns the Tenant object of the name that was deleted last. It returns false if none
// was deleted.
func (l *Lineage) LastRetired() (Retired, bool) {
	if len(l.Retired) == 0 {
		return Retired{}, false
	}
	return l.Retired[len(l.Retired)-1], true
}

// SortByDeletionEnd returns the deleted Tenant objects of a name, sorted by the end of their
// deletion. Objects whose deletion has not ended are last.
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
