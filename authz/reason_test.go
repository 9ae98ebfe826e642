// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/authz"
)

// TestReasonsAreComplete checks that Reasons returns as many reasons as reason.go declares.
func TestReasonsAreComplete(t *testing.T) {
	source, err := os.ReadFile("reason.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^\tReason\w+$`).FindAllString(string(source), -1)
	if all := authz.Reasons(); len(declared) == 0 || len(all) != len(declared) {
		t.Errorf("Reasons returns %d reasons, reason.go declares %d", len(all), len(declared))
	}
}

// TestReasonCodesAreStable checks the codes, which alerts and dashboards match. Add a row for a new
// reason. Do not change a row.
func TestReasonCodesAreStable(t *testing.T) {
	want := map[authz.Reason]string{
		authz.ReasonNoTenant:       "NoTenant",
		authz.ReasonBadTenant:      "AmbiguousTenant",
		authz.ReasonSystemGroup:    "SystemGroup",
		authz.ReasonMalformed:      "MalformedIdentity",
		authz.ReasonRevoked:        "CallerRevoked",
		authz.ReasonNoTenantObject: "TenantNotFound",
		authz.ReasonRetired:        "TenantDeleted",
		authz.ReasonUndated:        "CredentialUndated",
		authz.ReasonImpersonation:  "ImpersonationOutsideTenant",
		authz.ReasonNotOwned:       "NamespaceNotOwned",
		authz.ReasonNotLimited:     "NotLimitedToTenant",
		authz.ReasonNotNamed:       "NotLimitedToOwnObject",
		authz.ReasonNotLabeled:     "ObjectsNotLabeled",
		authz.ReasonCluster:        "ClusterScopedResource",
		authz.ReasonNamespaceVerb:  "NamespaceRequest",
		authz.ReasonWildcard:       "Wildcard",
		authz.ReasonReview:         "ReviewOfOthers",
		authz.ReasonRules:          "RulesReview",
		authz.ReasonPath:           "Path",
		authz.ReasonTenantPath:     "OtherTenantPath",
		authz.ReasonTenantPathAll:  "AllTenantsPath",
		authz.ReasonTenantPathOnly: "NotOwnedByPathTenant",
		authz.ReasonOwnerUnknown:   "OwnerUnknown",
		authz.ReasonStale:          "StateOutdated",
		authz.ReasonClosed:         "TenantClosed",
		authz.ReasonReadOnly:       "TenantReadOnly",
		authz.ReasonGrant:          "AccessGrant",
		authz.ReasonAnnounced:      "AnnouncedGrants",
		authz.ReasonABAC:           "PolicyFile",
		authz.ReasonException:      "Exception",
	}
	for r, code := range want {
		t.Run(code, func(t *testing.T) {
			if r.Code() != code {
				t.Errorf("the code of %q is %s", r, r.Code())
			}
		})
	}
	if code := authz.ReasonNone.Code(); code != "" {
		t.Errorf("ReasonNone has the code %s", code)
	}
	if all := authz.Reasons(); len(all) != len(want) {
		t.Errorf("the test lists %d codes, the code has %d reasons", len(want), len(all))
	}
}

// TestReasonOf checks that ReasonOf returns a reason only for its exact text.
func TestReasonOf(t *testing.T) {
	for _, r := range authz.Reasons() {
		if got, ok := authz.ReasonOf(r.String()); !ok || got != r {
			t.Errorf("ReasonOf(%q) is %v, %v", r, got, ok)
		}
		for _, text := range []string{r.Code(), r.String() + " ", strings.ToUpper(r.String()), "tenant"} {
			if got, ok := authz.ReasonOf(text); ok || got != authz.ReasonNone {
				t.Errorf("ReasonOf(%q) is %v", text, got)
			}
		}
	}
	if got, ok := authz.ReasonOf(""); ok || got != authz.ReasonNone {
		t.Errorf("the empty text is the reason %v", got)
	}
	for _, r := range []int{-1, len(authz.Reasons()) + 1, math.MaxInt, math.MinInt} {
		if unknown := authz.Reason(r); unknown.String() != "" || unknown.Code() != "" {
			t.Errorf("reason %d has the text %q and the code %s", r, unknown, unknown.Code())
		}
	}
}

// TestReasonsAreDocumented checks that docs/reasons.md contains the codes and texts of the reasons.
func TestReasonsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.SplitSeq(string(page), "\n") {
		if strings.HasPrefix(line, "| `tenant ") {
			rows++
		}
	}
	code := regexp.MustCompile(`^[A-Z][A-Za-z]*$`)
	text := regexp.MustCompile(`^tenant [a-z]+: (?:[^A-Z]|TENANT)+$`)
	var seen []string
	for _, r := range authz.Reasons() {
		if !strings.Contains(string(page), "\n| `"+r.String()+"` | `"+r.Code()+"` | ") {
			t.Errorf("docs/reasons.md has no row with the text %q and the code %s", r, r.Code())
		}
		if !code.MatchString(r.Code()) || !text.MatchString(r.String()) {
			t.Errorf("%q with the code %s does not have the form \"tenant area: fact\" and CamelCase", r, r.Code())
		}
		if slices.Contains(seen, r.Code()) || slices.Contains(seen, r.String()) {
			t.Errorf("two reasons have the text %q or the code %s", r, r.Code())
		}
		seen = append(seen, r.Code(), r.String())
	}
	if rows != len(authz.Reasons()) {
		t.Errorf("docs/reasons.md has %d rows, the code %d reasons", rows, len(authz.Reasons()))
	}
}
