// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubetenant/kubetenant/tenant"
)

// Placeholder stands in an entry of a list for the name of the tenant. Only a name that is a DNS
// label takes its place: another may have dots, by which one tenant's hosts and paths would lie
// under another's, or differ by case alone.
const Placeholder = "{tenant}"

// expand returns an entry as it is for a tenant, false where it is none for it.
func expand(entry string, owner tenant.ID) (string, bool) {
	if !strings.Contains(entry, Placeholder) {
		return entry, true
	}
	if len(validation.IsDNS1123Label(owner.String())) > 0 {
		return "", false
	}
	return strings.ReplaceAll(entry, Placeholder, owner.String()), true
}

// matches reports whether an entry of the list of its field is about an item. What
// says nothing is on no list.
func (i item) matches(entry string, owner tenant.ID) bool {
	entry, is := expand(entry, owner)
	if !is || i.value == "" {
		return false
	}
	switch i.field {
	case ImageRegistries:
		return isUnder(i.value, entry)
	case Hosts:
		return isHost(i.value, entry)
	}
	return i.value == entry
}

// isUnder reports whether an image is of a registry, or of a repository there or beneath it. A
// name without a registry is Docker Hub's, as kubelets read it (k8s.io/kubernetes
// pkg/util/parsers, v1.37.1).
func isUnder(image, entry string) bool {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil || isID(named) {
		return false
	}
	repository := strings.ToLower(reference.Domain(named)) + "/" + reference.Path(named)
	return repository == entry || strings.HasPrefix(repository, entry+"/")
}

// isID reports whether what looks like a repository of Docker Hub's is the ID of an image that a
// node has, of whatever registry: runtimes try that first.
func isID(named reference.Named) bool {
	switch reference.Path(named) {
	case "library/sha256", "library/sha384", "library/sha512":
		return true
	}
	return false
}

// isHost reports whether a host, maybe a wildcard, is what an entry says, or beneath it
// where that is a wildcard.
func isHost(host, entry string) bool {
	host = strings.ToLower(host)
	if len(validation.IsDNS1123Subdomain(strings.TrimPrefix(host, "*."))) > 0 {
		return false
	}
	suffix, wild := strings.CutPrefix(entry, "*")
	return host == entry || wild && strings.HasSuffix(host, suffix)
}
