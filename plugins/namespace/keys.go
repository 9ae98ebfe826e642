// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

// injectionLabels enable or disable webhooks that may be installed later. They are the label of
// Istio's injection and the label that excludes the control plane from webhooks (Gatekeeper, OPA).
var injectionLabels = []string{"istio-injection", "control-plane"}

// maxKeys is the maximum number of keys in one error.
const maxKeys = 16

// The reasons why tenants may not write a key. Each reason is the end of an error message.
const (
	// reasonUnlisted is the reason for a key that an administrator can add to a list.
	reasonUnlisted        = ": the key is not listed"
	reasonReserved        = ": keys of the domain " + tenant.Domain + " are reserved"
	reasonTenantLabel     = ": the Tenant sets this label"
	reasonClusterValue    = ": the cluster sets its value"
	reasonNeedsExactEntry = " without an exact entry in admission.namespace.allowedLabels or clusterLabels: "
)

// labelReason returns why tenants may not write a label, or "" if they may. labels contains the
// labels that the Tenant sets on each namespace of the tenant. Tenants may not write these labels.
func (p *plugin) labelReason(key string, labels map[string]string) string {
	if _, ok := labels[key]; ok {
		return reasonTenantLabel
	}
	if _, ok := p.ClusterLabels[key]; ok {
		return reasonClusterValue
	}
	if domain, _, _ := strings.Cut(key, "/"); domain == podSecurityDomain {
		if reason := podSecurityReason(key); reason != "" || p.SelectionReason == nil || p.SelectionReason(key) == "" {
			return reason
		}
		return ": " + p.SelectionReason(key)
	}
	switch {
	case slices.Contains(p.AllowedLabels, key):
		return ""
	case isReserved(key):
		return reasonReserved
	case slices.Contains(injectionLabels, key):
		return reasonNeedsExactEntry + "it enables or disables webhooks"
	}
	if p.SelectionReason != nil {
		if reason := p.SelectionReason(key); reason != "" {
			return reasonNeedsExactEntry + reason
		}
	}
	if !isAllowed(key, p.AllowedLabels) && !isToolLabel(key) {
		return reasonUnlisted
	}
	return ""
}

// annotationReason returns why tenants may not write an annotation, or "" if they may. It returns
// "" for annotations that another plugin writes and protects.
func (p *plugin) annotationReason(key string) string {
	if _, ok := p.ClusterAnnotations[key]; ok {
		return reasonClusterValue
	}
	switch {
	case isAllowed(key, p.AllowedAnnotations) || isToolAnnotation(key) || slices.Contains(p.ProtectedAnnotations, key):
		return ""
	case isReserved(key):
		return reasonReserved
	}
	return reasonUnlisted
}

func isReserved(key string) bool {
	domain, _, hasDomain := strings.Cut(key, "/")
	return hasDomain && domain == tenant.Domain
}

func isAllowed(key string, allowed []string) bool {
	return !strings.Contains(key, "/") || slices.ContainsFunc(allowed, func(entry string) bool {
		return entry == key || plugins.MatchesDomain(entry, key)
	})
}

// keys are the labels or annotations of a write, and the rules that apply to them.
type keys struct {
	kind string
	// allowSetting and clusterSetting are the names of the settings that can allow a key.
	allowSetting, clusterSetting string
	old, current                 map[string]string
	// sent contains the keys that the client sent. It is empty if isKnown is false.
	sent    map[string]string
	isKnown bool
	// reason returns why tenants may not write a key, or "" if they may.
	reason func(key string) string
	// exactValues are the only values that a tenant may set for some keys.
	exactValues map[string]string
}

// check denies a write that adds, changes or removes keys that tenants may not write. The error
// names these keys in order. It names at most maxKeys unlisted keys.
func (k *keys) check(errs *plugins.Errors) {
	all := maps.Clone(k.old)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, k.current)
	var list []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		old, oldOK := k.old[key]
		value, ok := k.current[key]
		want, isExact := k.exactValues[key]
		if oldOK == ok && old == value || ok && isExact && value == want {
			continue
		}
		reason := k.reason(key)
		if k.isSetByCluster(key, reason) {
			continue
		}
		switch reason {
		case "":
		case reasonUnlisted:
			list = append(list, fmt.Sprintf("%q", key))
		case reasonClusterValue:
			errs.Add(fmt.Errorf("tenants may not set or remove the %s %q: %s specifies the value %q",
				k.kind, key, k.clusterSetting, want))
		default:
			errs.Add(fmt.Errorf("tenants may not set or remove the %s %q%s", k.kind, key, reason))
		}
	}
	errs.Add(k.unlistedError(list))
}

// isSetByCluster reports whether the cluster's admission changed a key that the client did not
// change. It returns false for keys that kubetenant protects, and for the PodSecurity level.
func (k *keys) isSetByCluster(key, reason string) bool {
	if !k.isKnown || reason == reasonReserved || reason == reasonTenantLabel || key == EnforceLabel ||
		key == corev1.LabelMetadataName {
		return false
	}
	value, sent := k.sent[key]
	if _, stored := k.current[key]; !stored {
		return sent // the cluster removed the key
	}
	old, ok := k.old[key]
	return !sent || ok && value == old
}

// unlistedError returns an error for keys that the configuration does not list, or nil if quoted is
// empty.
func (k *keys) unlistedError(quoted []string) error {
	switch {
	case len(quoted) == 0:
		return nil
	case len(quoted) == 1:
		return fmt.Errorf("tenants may not set or remove the %s %s: %s can allow it, or %s if the cluster sets it",
			k.kind, quoted[0], k.allowSetting, k.clusterSetting)
	case len(quoted) > maxKeys:
		quoted = append(quoted[:maxKeys:maxKeys], fmt.Sprintf("and %d more", len(quoted)-maxKeys))
	}
	return fmt.Errorf("tenants may not set or remove the %ss %s: %s can allow them, or %s if the cluster sets them",
		k.kind, strings.Join(quoted, ", "), k.allowSetting, k.clusterSetting)
}
