// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/kubetenant/kubetenant/authz"
)

// Outcome is the result of a request.
type Outcome int

// Outcomes of a request.
const (
	Denied       Outcome = iota // denied by the boundary
	Limited                     // the response contains only the caller's own objects
	Passed                      // a request for the caller's own objects, allowed
	Leaked                      // a request for other objects, allowed
	Refused                     // a request for the caller's own objects, denied
	Untested                    // the response does not show the boundary's decision
	Contradicted                // two responses to the same request differ
)

var outcomeNames = map[Outcome]string{
	Denied:       "DENIED",
	Limited:      "OWN ONLY",
	Passed:       "ALLOWED",
	Leaked:       "LEAKED",
	Refused:      "REFUSED",
	Untested:     "NOT TESTED",
	Contradicted: "CONTRADICTED",
}

func (o Outcome) String() string { return outcomeNames[o] }

// MarshalText returns the outcome as a word.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Reasons why a response does not show the boundary's decision. The report groups requests by
// reason.
const (
	untestedAuthentication = "the server did not accept the caller's credential (401)"
	untestedThrottled      = "the server throttled the request (429)"
	untestedServer         = "the server failed (%d)"
	untestedMethod         = "the server does not support the method (405)"
	untestedRedirect       = "the server redirected the request (%d)"
	untestedForeignAnswer  = "the response is not from a Kubernetes API server (%d without a Status)"
	untestedOtherDenial    = "another authorizer denied the request, so the decision of the boundary is unknown"
	untestedNoAnswer       = "the request got no response"
	untestedTruncated      = "the response is larger than 64 MiB"
	untestedNoList         = "the response is neither a list nor a watch"
	untestedSilent         = "a watch sent no event or ended before an object of the caller's tenant arrived"
	untestedNoObject       = "an object that the request needs could not be created (%d)"
	untestedReview         = "a self review got no response"
	untestedAdmission      = "another admission plugin refused the request, so the decision of kubetenant is unknown"
	untestedBeforeAdmitted = "the request failed before the admission plugins that should refuse it (%d)"
)

// authorizersForm matches the message of an authorizer's 403 response (k8s.io/apiserver
// pkg/endpoints/handlers/responsewriters, v0.37.1). An admission plugin's message has another
// form, but may quote an authorizer's message.
var authorizersForm = regexp.MustCompile(
	`^(?:\S+(?: "(?:[^"\\]|\\.)*")? is forbidden|forbidden): User "(?:[^"\\]|\\.)*" cannot \S+ (?:resource|path) "`)

// othersForm matches the error of an admission webhook or an admission policy, and captures the
// name of the webhook or policy.
var othersForm = regexp.MustCompile(`(?:admission webhook "|(?:Validating|Mutating)AdmissionPolicy ')([^"']*)["']`)

// noEndpoints is the prefix of the 503 message of the subresource proxy of a Service without
// Pods. This response means that authorization allowed the request (k8s.io/kubernetes
// pkg/registry/core/service/storage, v1.37.1).
const noEndpoints = "no endpoints available for service "

// deniedByAuthorization reports whether an authorizer denied the request.
func (a answer) deniedByAuthorization() bool {
	return a.code == http.StatusForbidden && authorizersForm.MatchString(a.message())
}

// deniedByBoundary reports whether an authorizer's message contains a reason of the boundary. It
// compares only the text before the colon, because another release may word the rest differently.
func (a answer) deniedByBoundary() bool {
	message := a.message()
	form := authorizersForm.FindStringIndex(message)
	return form != nil && slices.ContainsFunc(authz.Reasons(), func(r authz.Reason) bool {
		part, _, _ := strings.Cut(r.String(), ": ")
		return strings.Contains(message[form[1]:], ": "+part+": ")
	})
}

// refusedByAdmission reports whether an admission plugin or admission webhook of kubetenant, or an
// admission plugin of the server itself, rejected the request.
func (a answer) refusedByAdmission() bool {
	message := a.message()
	if a.code != http.StatusForbidden || message == "" || authorizersForm.MatchString(message) {
		return false
	}
	other := othersForm.FindStringSubmatch(message)
	return other == nil || strings.HasSuffix(other[1], "kubetenant.dev")
}

// untested returns why the response does not show an authorization decision, or "" if it shows one.
func (a answer) untested(c *caller) string {
	switch {
	case a.code == http.StatusUnauthorized && c.own >= 0:
		return untestedAuthentication
	case a.code == http.StatusUnauthorized:
		return "" // for a caller without a tenant, a 401 is a denial like a 403
	case a.code == http.StatusTooManyRequests:
		return untestedThrottled
	case a.code == http.StatusServiceUnavailable && strings.HasPrefix(a.message(), noEndpoints):
		return ""
	case a.code >= http.StatusInternalServerError, a.code == http.StatusRequestTimeout:
		return fmt.Sprintf(untestedServer, a.code)
	case a.code == http.StatusMethodNotAllowed:
		return untestedMethod
	case a.code >= http.StatusMultipleChoices && a.code < http.StatusBadRequest:
		return fmt.Sprintf(untestedRedirect, a.code)
	case a.truncated:
		return untestedTruncated
	case a.code >= http.StatusBadRequest && a.message() == "":
		return fmt.Sprintf(untestedForeignAnswer, a.code)
	}
	return ""
}

// judge returns the outcome of a request, and for [Untested] the reason.
func (p *probe) judge(c *caller, a answer) (Outcome, string) {
	if p.unserved && (a.code == http.StatusNotFound || a.code == http.StatusMethodNotAllowed) {
		return Limited, ""
	}
	if reason := a.untested(c); reason != "" {
		return Untested, reason
	}
	denied := a.deniedByAuthorization() || a.code == http.StatusUnauthorized
	switch {
	case p.own && denied:
		return Refused, ""
	case p.own:
		return Passed, ""
	case denied && c.own >= 0 && !a.deniedByBoundary(): // RBAC allows everything to callers of the two tenants
		return Untested, untestedOtherDenial
	case denied:
		return Denied, ""
	case p.limited != nil:
		return p.limited(a)
	}
	return Leaked, ""
}

// rejectedByAdmission returns the outcome of a write that authorization may allow and admission
// must reject. For [Untested], it also returns the reason.
func rejectedByAdmission(a answer) (Outcome, string) {
	switch {
	case a.code >= http.StatusOK && a.code < http.StatusMultipleChoices:
		return Leaked, ""
	case a.refusedByAdmission():
		return Denied, ""
	case a.code == http.StatusForbidden:
		return Untested, untestedAdmission
	}
	return Untested, fmt.Sprintf(untestedBeforeAdmitted, a.code)
}
