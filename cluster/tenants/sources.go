// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"github.com/kubetenant/kubetenant/cluster/publication"
)

// PublicationsFrom returns the Publications whose source object has the given namespace and name,
// for all kinds. The result is in no particular order. It omits invalid Publications and
// Publications that are being deleted. The second result is false if the Publications have not
// been read. Callers MUST NOT change the Publications.
func (s *Store) PublicationsFrom(namespace, name string) (naming []*publication.Publication, known bool) {
	if !s.isReady(publicationResource(), s.publications.registration) {
		return nil, false
	}
	s.publications.mu.RLock()
	defer s.publications.mu.RUnlock()
	for _, p := range s.publications.valid {
		if p.From.Namespace == namespace && p.From.Name == name && !p.Deleting {
			naming = append(naming, p)
		}
	}
	return naming, true
}
