// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubetenant/kubetenant/tenant"
)

// placementEntry returns the problem of an entry in the list of the placement rule with the given
// name, or "" if the entry is valid. Only lists of keys may contain an entry "domain/*".
func placementEntry(name, entry string) (problem string) {
	domain, isFamily := strings.CutSuffix(entry, "/*")
	hasKeys := slices.Contains([]string{"nodeSelector", "nodeAffinity", "tolerations", "topologySpread"}, name)
	switch {
	case isFamily && hasKeys && domain == tenant.Domain:
		return "keys of this domain may not be allowed"
	case isFamily && hasKeys && len(validation.IsDNS1123Subdomain(domain)) == 0:
		return ""
	case hasKeys && (entry == "" || strings.HasPrefix(entry, "=") || strings.Contains(entry, "*")):
		return "must be a key, key=value or domain/*"
	case entry == "" || strings.HasPrefix(entry, "=") || strings.Contains(entry, "*"):
		return "must be a name, without wildcards"
	}
	return ""
}

// warnings returns a warning for each nodeSelector or nodeAffinity list with the entry
// kubernetes.io/*, which allows tenants to select individual nodes.
func (p *Placement) warnings() []string {
	path := field.NewPath("admission", "placement")
	warnings := p.familyWarnings(path)
	for i := range p.Tenants {
		warnings = append(warnings, p.Tenants[i].familyWarnings(path.Child("tenants").Index(i))...)
	}
	return warnings
}

func (r *PlacementRules) familyWarnings(path *field.Path) []string {
	var warnings []string
	rules := r.fields()
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		if name != "nodeSelector" && name != "nodeAffinity" || rules[name] == nil {
			continue
		}
		for i, entry := range rules[name].Allowed {
			if entry == "kubernetes.io/*" {
				warnings = append(warnings, path.Child(name, "allowed").Index(i).String()+
					": kubernetes.io/* includes kubernetes.io/hostname, with which tenants choose single nodes")
			}
		}
	}
	return warnings
}
