// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Resources returns the namespaced resources that support all the verbs, in the version that the
// server prefers. It omits events.k8s.io, because the core group contains the same Events, and
// metrics.k8s.io, because its objects are not stored.
func Resources(d discovery.DiscoveryInterface, verbs ...string) ([]schema.GroupVersionResource, error) {
	lists, err := d.ServerPreferredNamespacedResources()
	if err != nil {
		return nil, err // an undiscovered resource may have objects
	}
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: verbs}, lists)
	found, err := discovery.GroupVersionResources(lists)
	if err != nil {
		return nil, err
	}
	var all []schema.GroupVersionResource
	for r := range found {
		if r.Group == "events.k8s.io" || r.Group == "metrics.k8s.io" {
			continue
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b schema.GroupVersionResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return all, nil
}
