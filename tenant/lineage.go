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

// backdated is how much older than they are credentials may say to be: kube-controller-manager's
// signer dates certificates back by as much (k8s.io/kubernetes
// pkg/controller/certificates/signer, v1.37.1).
const backdated = 5 * time.Minute

// Lineage is what is known of a tenant beside its name: the Tenant that it has, and those that had
// the name before. The zero value is a tenant by name alone, whose name was never another's.
type Lineage struct {
	// UID of the Tenant; empty where there is none.
	UID string
	// Created is when the Tenant was made. Ending says that it is being deleted.
	Created time.Time
	Ending  bool
	// AcceptUndated lets credentials count that do not say when they were issued.
	AcceptUndated bool
	// Retired are the Tenants of the name that were deleted, in the order of their
	// end. It must not be changed.
	Retired []Retired
}

// Retired is a Tenant that was deleted.
type Retired struct {
	// UID of the Tenant that it was.
	UID string
	// Begun is when its end began, and At when it had ended; zero while it has not.
	Begun, At time.Time
	// Namespaces that it had.
	Namespaces []string
}

// IsOver reports whether the name is nobody's: its Tenant is being deleted, or
// was and has no successor.
func (l *Lineage) IsOver() bool { return l.Ending || l.UID == "" && len(l.Retired) > 0 }

// Accepts reports whether a credential that was issued at a time, zero where it does not say when,
// can be the tenant's own and not one of those that had the name before.
func (l *Lineage) Accepts(issued time.Time) bool {
	switch {
	case len(l.Retired) == 0:
		return true
	case issued.IsZero():
		return l.AcceptUndated
	}
	return !issued.Before(l.Created.Add(-backdated))
}

// Holds reports whether what was recorded of the tenant with the [Seal] of its Tenant's UID is
// about who has the name now: where nobody had it before, whatever was recorded.
func (l *Lineage) Holds(seal string) bool {
	return !l.IsOver() && (len(l.Retired) == 0 || IsSealOf(seal, l.UID))
}

// Seal returns what is recorded of a Tenant's UID where others may read it: it tells them neither
// the UID nor whether there is one.
func Seal(uid string) string {
	if uid == "" {
		uid = rand.Text()
	}
	return sealed(rand.Text(), uid)
}

// IsSealOf reports whether a seal is one of a UID, which must not be empty.
func IsSealOf(seal, uid string) bool {
	salt, _, is := strings.Cut(seal, ".")
	return is && uid != "" && seal == sealed(salt, uid)
}

func sealed(salt, uid string) string {
	sum := sha256.Sum256([]byte(salt + "." + uid))
	return salt + "." + hex.EncodeToString(sum[:])
}

// Last returns the Tenant of the name that was deleted last; false where none was.
func (l *Lineage) Last() (Retired, bool) {
	if len(l.Retired) == 0 {
		return Retired{}, false
	}
	return l.Retired[len(l.Retired)-1], true
}

// InOrderOfEnd returns Tenants of a name in the order of their end, those that have not ended last.
func InOrderOfEnd(all []Retired) []Retired {
	return slices.SortedFunc(slices.Values(all), func(a, b Retired) int {
		switch {
		case a.At.Equal(b.At):
			return cmp.Or(a.Begun.Compare(b.Begun), cmp.Compare(a.UID, b.UID))
		case a.At.IsZero():
			return 1
		case b.At.IsZero():
			return -1
		}
		return a.At.Compare(b.At)
	})
}
