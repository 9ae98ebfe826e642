// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubetenant/kubetenant/tenant"
)

// Placeholder in an entry of a list is replaced with the name of the tenant. The entry applies only
// if the name is a DNS label. Other names may contain dots, so that hosts and paths of one tenant
// would be below those of another. Other names may also differ only in case.
const Placeholder = "{tenant}"

// expand returns an entry for a tenant, or false if the entry does not apply to the tenant.
func expand(entry string, owner tenant.ID) (string, bool) {
	if !strings.Contains(entry, Placeholder) {
		return entry, true
	}
	if len(validation.IsDNS1123Label(owner.String())) > 0 {
		return "", false
	}
	return strings.ReplaceAll(entry, Placeholder, owner.String()), true
}

// matches reports whether an entry in the list of its field allows an item. No list allows an empty
// value.
func (i item) matches(entry string, owner tenant.ID) bool {
	entry, ok := expand(entry, owner)
	if !ok || i.value == "" {
		return false
	}
	switch i.field {
	case ImageRegistries:
		return isInRepository(i.value, entry)
	case Hosts:
		return matchesHost(i.value, entry)
	}
	return i.value == entry
}

// isInRepository reports whether an image belongs to a registry, to a repository or to a repository
// below it. An image without a registry belongs to Docker Hub, as in the kubelet (k8s.io/kubernetes
// pkg/util/parsers, v1.37.1).
func isInRepository(image, entry string) bool {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil || isImageID(named) {
		return false
	}
	repository := strings.ToLower(reference.Domain(named)) + "/" + reference.Path(named)
	return repository == entry || strings.HasPrefix(repository, entry+"/")
}

// isImageID reports whether a name that looks like a repository of Docker Hub is the ID of an image
// on the node. Runtimes look for an ID first, and the image may come from any registry.
func isImageID(named reference.Named) bool {
	switch reference.Path(named) {
	case "library/sha256", "library/sha384", "library/sha512":
		return true
	}
	return false
}

// matchesHost reports whether a host or a wildcard equals an entry. If the entry is a wildcard, the
// host may also be below it.
func matchesHost(host, entry string) bool {
	host = strings.ToLower(host)
	if len(validation.IsDNS1123Subdomain(strings.TrimPrefix(host, "*."))) > 0 {
		return false
	}
	suffix, wild := strings.CutPrefix(entry, "*")
	return host == entry || wild && strings.HasSuffix(host, suffix)
}
