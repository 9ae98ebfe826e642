// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubetenant/kubetenant/tenant"
)

// idInName is the number of characters of a project's ID in the name of its namespace.
const idInName = 8

// namespaceName returns the name of a project's namespace, in the form <tenant>--<name>-<first 8
// characters of the project ID>. The project name is reduced to lower-case letters, digits and
// hyphens, and is omitted if no characters remain. namespaceName returns "" if the tenant's ID
// cannot be a prefix or is too long, or if the project ID has no letters and digits.
func namespaceName(id tenant.ID, project, name string) string {
	prefix := id.NamespacePrefix()
	end := slug(project)
	end = strings.Trim(end[:min(len(end), idInName)], "-")
	room := validation.DNS1123LabelMaxLength - len(prefix) - len(end)
	if prefix == "" || end == "" || room < 0 {
		return ""
	}
	middle := slug(name)
	middle = strings.Trim(middle[:min(len(middle), max(0, room-1))], "-")
	if middle == "" {
		return prefix + end
	}
	return prefix + middle + "-" + end
}

// slug returns the ASCII letters and digits of a text in lower case. A hyphen replaces each
// sequence of other characters.
func slug(text string) string {
	var out strings.Builder
	for _, r := range strings.ToLower(text) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			_, _ = out.WriteRune(r)
		} else if s := out.String(); s != "" && s[len(s)-1] != '-' {
			_ = out.WriteByte('-')
		}
	}
	return strings.Trim(out.String(), "-")
}
