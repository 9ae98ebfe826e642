// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// nameHash is the number of bytes of the hash in a name.
const nameHash = 4

// NameFor returns the name of the Publication that the server or "kubectl tenant publish" creates
// for an object. The name consists of the object's kind, its namespace and a hash. It is a valid
// object name of at most 63 characters. It does not depend on the object's API version.
func NameFor(source Source) string {
	sum := sha256.Sum256([]byte(strings.Join(
		[]string{source.Kind.Group, source.Kind.Kind, source.Namespace, source.Name}, "/")))
	hash := hex.EncodeToString(sum[:nameHash])
	prefix := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return -1
	}, strings.ToLower(source.Kind.Kind+"-"+source.Namespace))
	if limit := validation.LabelValueMaxLength - len(hash) - 1; len(prefix) > limit {
		prefix = prefix[:limit]
	}
	if prefix = strings.Trim(prefix, "-"); prefix == "" {
		return hash
	}
	return prefix + "-" + hash
}
