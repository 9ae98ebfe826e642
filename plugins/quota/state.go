// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	upstream "k8s.io/apiserver/pkg/quota/v1"
)

// State is the current state of a quota.
type State struct {
	// Name is the name of the quota. Version is its resource version.
	Name, Version string
	// Hard are the limits.
	Hard corev1.ResourceList
	// Used is at least the usage of the tenant's objects, including admitted writes that are not
	// stored yet. If a name is missing, its objects have not been counted yet.
	Used corev1.ResourceList
	// Reserved are the reservations that have not expired and whose writes were not counted yet.
	Reserved []Reservation
}

// Reservation is the usage of an admitted write that may not be stored yet.
type Reservation struct {
	UID types.UID
	// Key is the resource, the namespace and the name of a creation. A retry replaces the
	// reservation of the earlier attempt, because at most one of them is stored. Key is empty for
	// an update.
	Key     string
	Expires time.Time
	Usage   corev1.ResourceList
	// After is the resource version of the object before an update. An object with the same or an
	// older version does not include the update. After is empty for a creation.
	After string
}

// isIncluded reports whether a stored object includes the admitted write.
func (r *Reservation) isIncluded(o *CountedObject, usage corev1.ResourceList) bool {
	if r.After != "" {
		if newer, err := resourceversion.CompareResourceVersion(o.Version, r.After); err != nil || newer <= 0 {
			return false
		}
	}
	fits, _ := upstream.LessThanOrEqual(r.Usage, usage)
	return fits
}

// request is a write to be charged.
type request struct {
	uid             types.UID
	key             string
	after           string
	expires         time.Time
	oldUsage, usage corev1.ResourceList
	checkRequired   func(hard []corev1.ResourceName) error
	limitNames      func(hard corev1.ResourceList) []corev1.ResourceName
	dryRun          bool // the state is not stored
}

// charge returns a state that includes the usage of a write. It returns s itself if the write
// does not increase the usage and has no earlier reservation. It returns an error if the usage
// would exceed a limit, or if the current usage is unknown.
func (s *State) charge(r *request) (*State, error) {
	governed := r.limitNames(s.Hard)
	if len(governed) == 0 {
		return s, nil
	}
	if err := r.checkRequired(governed); err != nil {
		return nil, fmt.Errorf("failed quota: %s: %w", s.Name, err)
	}
	usage := upstream.Mask(r.usage, governed)
	charged := upstream.Mask(r.oldUsage, governed)
	if existing := s.reserved(r); existing != nil {
		charged = upstream.Max(charged, upstream.Mask(existing.Usage, governed))
	}
	delta := upstream.RemoveZeros(upstream.SubtractWithNonNegativeResult(usage, charged))
	if len(delta) == 0 && s.reserved(r) == nil {
		return s, nil
	}
	if negative := upstream.IsNegative(r.usage); len(negative) > 0 {
		return nil, fmt.Errorf("quota usage is negative for resource(s): %s", joinNames(negative))
	}
	increased := upstream.ResourceNames(delta)
	for _, name := range increased {
		if _, counted := s.Used[name]; !counted {
			return nil, fmt.Errorf("%w: %s, resources: %s", ErrUnknown, s.Name, name)
		}
	}
	used := upstream.Add(s.Used, delta)
	if fits, exceeded := upstream.LessThanOrEqual(upstream.Mask(used, increased), s.Hard); !fits {
		return nil, fmt.Errorf(
			"exceeded quota: %s, requested: %s, used: %s, limited: %s",
			s.Name,
			formatList(
				upstream.Mask(delta, exceeded),
			),
			formatList(upstream.Mask(s.Used, exceeded)),
			formatList(upstream.Mask(s.Hard, exceeded)),
		)
	}
	out := *s
	out.Used = used
	out.Reserved = slices.Clone(s.Reserved)
	next := Reservation{
		UID:     r.uid,
		Key:     r.key,
		Expires: r.expires,
		Usage:   usage,
		After:   r.after,
	}
	if existing := out.reserved(r); existing != nil {
		next.Usage = upstream.Max(existing.Usage, usage)
		*existing = next
		return &out, nil
	}
	if len(out.Reserved) >= maxReserved {
		return nil, errBusy
	}
	out.Reserved = append(out.Reserved, next)
	return &out, nil
}

// maxReserved is the maximum number of reservations. Each charge stores all of them. A tenant
// normally reaches the maximum only if many admitted writes fail afterwards.
const maxReserved = 500

var errBusy = errors.New("too many admitted writes of this tenant are not stored yet")

// reserved returns the reservation of an earlier attempt, or of an earlier update of the object.
func (s *State) reserved(r *request) *Reservation {
	for i := range s.Reserved {
		if s.Reserved[i].UID == r.uid || r.key != "" && s.Reserved[i].Key == r.key {
			return &s.Reserved[i]
		}
	}
	return nil
}

// CountedObject is a stored object with its usage.
type CountedObject struct {
	UID       types.UID
	Namespace string
	Version   string
	Usage     corev1.ResourceList
}

// Recount returns the state after a count of all objects of the tenant, and the usage of each
// namespace. counted contains the limit names that were counted. The usage of all other names does
// not change. gone reports whether an object was seen and has been deleted.
//
// A reservation remains until the object is seen with the reserved usage, the object is gone, or
// the reservation expires. Until then, the admitted write may still be stored.
func (s *State) Recount(
	objects []CountedObject, gone func(types.UID) bool, counted []corev1.ResourceName, now time.Time,
) (*State, map[string]corev1.ResourceList) {
	reserved := map[types.UID]Reservation{}
	for _, r := range s.Reserved {
		if now.Before(r.Expires) && !gone(r.UID) {
			reserved[r.UID] = r
		}
	}
	used := zero(counted)
	namespaces := map[string]corev1.ResourceList{}
	for _, o := range objects {
		usage := upstream.Mask(o.Usage, counted)
		namespaces[o.Namespace] = upstream.Add(namespaces[o.Namespace], usage)
		if r, ok := reserved[o.UID]; ok {
			if r.isIncluded(&o, usage) {
				delete(reserved, o.UID)
			} else {
				usage = upstream.Max(usage, upstream.Mask(r.Usage, counted))
				r.Usage = nil // already added to used
				reserved[o.UID] = r
			}
		}
		used = upstream.Add(used, usage)
	}
	out := &State{Name: s.Name, Version: s.Version, Hard: s.Hard}
	for _, r := range s.Reserved {
		if left, still := reserved[r.UID]; still {
			out.Reserved = append(out.Reserved, r)
			used = upstream.Add(used, upstream.Mask(left.Usage, counted))
		}
	}
	for name, quantity := range s.Used {
		if !slices.Contains(counted, name) {
			used[name] = quantity // these objects cannot be counted at the moment
		}
	}
	out.Used = upstream.Mask(used, upstream.ResourceNames(s.Hard))
	return out, namespaces
}

func zero(names []corev1.ResourceName) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, name := range names {
		quantity := one.DeepCopy()
		quantity.Set(0)
		out[name] = quantity
	}
	return out
}

func joinNames(names []corev1.ResourceName) string {
	out := make([]string, 0, len(names))
	for _, name := range names {
		out = append(out, string(name))
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

func formatList(l corev1.ResourceList) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		quantity := l[name]
		out = append(out, string(name)+"="+quantity.String())
	}
	return strings.Join(out, ",")
}
