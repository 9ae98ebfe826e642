// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
)

// The labels of PodSecurity admission (k8s.io/pod-security-admission api, v0.37.1). EnforceLabel
// and enforceVersionLabel restrict Pods. The other labels only cause warnings and audit
// annotations, so a tenant may set them to any level and version.
const (
	podSecurityDomain   = "pod-security.kubernetes.io"
	enforceVersionLabel = EnforceLabel + "-version"
	warnLabel           = podSecurityDomain + "/warn"
	warnVersionLabel    = warnLabel + "-version"
	auditLabel          = podSecurityDomain + "/audit"
	auditVersionLabel   = auditLabel + "-version"

	latestVersion = "latest"
)

// reasonStricterOnly is the reason why a tenant may not remove or weaken the labels that restrict
// Pods.
const reasonStricterOnly = ": a tenant can only set a stricter level"

// levels are the levels of PodSecurity, from the least to the most strict.
var levels = []string{"privileged", "baseline", "restricted"}

// podSecurityVersion matches the versions that PodSecurity accepts.
var podSecurityVersion = regexp.MustCompile(`\A(latest|v1\.(0|[1-9][0-9]*))\z`)

// IsStricter reports whether a level of PodSecurity is stricter than another. It returns false if
// one of them is not a level.
func IsStricter(level, than string) bool {
	i, k := slices.Index(levels, level), slices.Index(levels, than)
	return k >= 0 && i > k
}

// minimumLevel returns the stricter of floor and the old level. If the old label is not a level,
// PodSecurity enforces its strictest level, so this function uses that level.
func minimumLevel(floor string, oldLabels map[string]string) string {
	old, ok := oldLabels[EnforceLabel]
	if ok && !slices.Contains(levels, old) {
		old = levels[len(levels)-1]
	}
	if floor == "" || IsStricter(old, floor) {
		return old
	}
	return floor
}

// podSecurityReason returns why tenants may not write a label of PodSecurity, or "" if tenants may
// set any level.
func podSecurityReason(key string) string {
	switch key {
	case warnLabel, warnVersionLabel, auditLabel, auditVersionLabel:
		return ""
	case EnforceLabel, enforceVersionLabel:
		return reasonStricterOnly
	}
	return ": keys of the domain " + podSecurityDomain + " are reserved"
}

// checkPodSecurity checks the labels of PodSecurity that a tenant's caller sets. The level must be
// at least as strict as floor and as the old level. The version of the level may only be set to
// latest, because other versions can allow more, and only if there is no version yet. The checked
// labels are added to exact. [keys.check] checks labels that the Tenant sets and labels that an
// update removes.
func (p *plugin) checkPodSecurity(
	operation admission.Operation, oldLabels, labels map[string]string, rules *Rules, exact map[string]string,
	errs *plugins.Errors,
) {
	floor := minimumLevel(cmp.Or(rules.PodSecurity, p.PodSecurity), oldLabels)
	if _, ok := labels[EnforceLabel]; !ok && operation == admission.Create && floor != "" {
		errs.Add(checkLevel("", floor))
	}
	for _, key := range []string{
		auditLabel, auditVersionLabel, EnforceLabel, enforceVersionLabel, warnLabel, warnVersionLabel,
	} {
		value, ok := labels[key]
		old, oldOK := oldLabels[key]
		_, isTenantLabel := rules.Labels[key]
		_, isClusterLabel := p.ClusterLabels[key]
		if isTenantLabel || isClusterLabel && key != EnforceLabel || !ok || oldOK && old == value {
			continue
		}
		exact[key] = value // an invalid value is denied below
		if err := checkPodSecurityLabel(key, value, oldLabels, floor); err != nil {
			errs.Add(err)
		} else if p.SelectionReason != nil && (key != EnforceLabel || value != floor) {
			if reason := p.SelectionReason(key); reason != "" {
				errs.Add(fmt.Errorf("tenants may not set or remove the label %q: %s", key, reason))
			}
		}
	}
}

// checkLevel returns an error if a level is not at least as strict as floor.
func checkLevel(value, floor string) error {
	switch {
	case slices.Contains(levels, value) && (value == floor || floor == "" || IsStricter(value, floor)):
		return nil
	case floor == "":
		return fmt.Errorf("the label %s must be one of %s", EnforceLabel, strings.Join(levels, ", "))
	case floor == levels[len(levels)-1]:
		return fmt.Errorf("the label %s must be %q", EnforceLabel, floor)
	}
	return fmt.Errorf("the label %s must be %q or stricter", EnforceLabel, floor)
}

func checkPodSecurityLabel(key, value string, oldLabels map[string]string, floor string) error {
	switch _, ok := oldLabels[key]; key {
	case EnforceLabel:
		return checkLevel(value, floor)
	case enforceVersionLabel:
		if value != latestVersion || ok {
			return fmt.Errorf("tenants may not set or remove the label %q: only %s is allowed, and only if there is "+
				"no version yet", key, latestVersion)
		}
	case warnVersionLabel, auditVersionLabel:
		if !podSecurityVersion.MatchString(value) {
			return fmt.Errorf("the label %s must be %s or a version such as v1.37", key, latestVersion)
		}
	default:
		if !slices.Contains(levels, value) {
			return fmt.Errorf("the label %s must be one of %s", key, strings.Join(levels, ", "))
		}
	}
	return nil
}
