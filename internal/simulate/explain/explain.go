// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package explain describes why a request is allowed or denied. It runs the server's own code with
// the objects of a cluster or a scenario, and reports the result of each step.
package explain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/abac"
	"github.com/kubetenant/kubetenant/authz/rbac"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
)

// Query is the request to explain. It is not safe for concurrent use.
type Query struct {
	// User is the authenticated caller.
	User user.Info
	// Said describes the source of the user's identity. It is the text of the first step.
	Said string
	// Request is the request to explain. Its user is ignored, because User is the caller.
	Request authorizer.AttributesRecord
	// Write describes the write (kind, new and old object, dry run) if the request is a write. It
	// is nil if the object is unknown.
	Write *Write
	// Stored is the metadata of the stored object that the request names. It is nil if unknown.
	Stored   *metav1.PartialObjectMetadata
	Config   *configv1alpha1.Settings
	Snapshot *simulator.Snapshot
	// Delegate authorizes the requests about which RBAC has no opinion. It may be nil.
	Delegate authorizer.Authorizer

	// Limited specifies that the snapshot may lack namespaces of other tenants. Explain then does
	// not report that a namespace is missing.
	Limited bool

	stackRun *stackRun // created by the first call, for Config, Snapshot and Delegate
}

// stackRun is a stack and the outcome of its last decision.
type stackRun struct {
	*stack.Stack
	outcome atomic.Pointer[authz.Outcome]
}

// Step is the result of one part of the stack.
type Step struct {
	Name   string `json:"step"`
	Result string `json:"said"`
}

// Explanation describes all steps of the decision about one request.
type Explanation struct {
	Steps    []Step `json:"steps"`
	Decision string `json:"decision"`
	Reason   string `json:"reason,omitempty"`
	// Admission is the result of admission for an allowed write.
	Admission Admission `json:"admission,omitempty"`
	// NotChecked contains the checks that may still reject an allowed write.
	NotChecked []string `json:"notChecked,omitempty"`
	// Remedy is a change that would allow the request, or the reason why there is none. It is nil
	// if the request is allowed. It is also nil if only admission denies it, unless the namespace
	// is missing.
	Remedy *Remedy `json:"remedy,omitempty"`
}

// Allowed reports whether every check that was made allows the request.
func (e *Explanation) Allowed() bool { return e.Decision == "allow" }

// answer is the result of the stack for one query.
type answer struct {
	outcome   authz.Outcome
	decision  authorizer.Decision
	reason    string
	admission admitted
	stack     *stack.Stack
}

// allows reports whether both authorization and admission allow the request.
func (a *answer) allows() bool {
	return a.decision == authorizer.DecisionAllow && a.admission.verdict != Refused
}

// evaluate runs the stack for the query. The first call creates the stack, which runs until ctx
// ends.
func (q *Query) evaluate(ctx context.Context) (*answer, error) {
	if q.stackRun == nil {
		s := &stackRun{}
		var err error
		s.Stack, err = simulator.New(ctx, q.Config, q.Snapshot, q.Delegate, func(_ context.Context, o authz.Outcome) {
			s.outcome.Store(&o) // admission plugins call the authorizer concurrently
		})
		if err != nil {
			return nil, err
		}
		q.stackRun = s
	}
	record := q.Request
	record.User = q.User
	a := &answer{stack: q.stackRun.Stack}
	a.decision, a.reason, _ = a.stack.Authorizer.Authorize(
		simulator.WithSelfReviewRequest(ctx),
		&record,
	) // the step rbac reports the error
	if outcome := q.stackRun.outcome.Load(); outcome != nil {
		a.outcome = *outcome
	}
	var err error
	a.admission, err = q.admission(ctx, a)
	return a, err
}

// with returns a copy of the query with another configuration and more objects.
func (q *Query) with(config *configv1alpha1.Settings, more ...runtime.Object) (*Query, error) {
	changed := *q
	changed.stackRun = nil
	changed.Config = config
	if q.Write != nil {
		write := *q.Write
		changed.Write = &write
		if write.Object != nil {
			changed.Write.Object = write.Object.DeepCopyObject()
		}
	}
	var err error
	changed.Snapshot, err = q.Snapshot.With(more...)
	return &changed, err
}

// Explain runs the stack for a query and reports the result of each step. If the query is used
// again with another user, request or write, the stack of the first call is used. This stack runs
// until the ctx of the first call ends.
func Explain(ctx context.Context, q *Query) (*Explanation, error) {
	a, err := q.evaluate(ctx)
	if err != nil {
		return nil, err
	}
	policy, err := policyOf(q.Config)
	if err != nil {
		return nil, err
	}
	e := &Explanation{Decision: "deny", Reason: a.reason}
	add := func(name, result string) { e.Steps = append(e.Steps, Step{name, result}) }
	add("source", q.Said)
	add("user", q.User.GetName()+"; groups "+strings.Join(q.User.GetGroups(), ", "))
	add("tenant", q.tenantResult(ctx, a))
	add("request", RequestText(&q.Request))
	add("owner", q.ownerResult(a))
	add("boundary", boundaryResult(a))
	add("grants", q.grantsResult(a))
	add("policy file", q.policyResult(policy, a))
	add("rbac", q.rbacResult(ctx, a))
	switch adm := a.admission; {
	case a.decision != authorizer.DecisionAllow && IsWrite(&q.Request) && adm.verdict != "":
		add("admission", "not reached; result would be: "+adm.step())
	default:
		add("admission", adm.step())
	}
	if violation := a.admission.pods; violation != "" {
		add("pods", "the server accepts the workload, but would refuse its Pods: "+violation)
	}
	switch {
	case a.allows():
		e.Decision, e.Admission, e.NotChecked = "allow", a.admission.verdict, q.unchecked(a.admission)
		return e, nil
	case a.decision == authorizer.DecisionAllow:
		e.Admission, e.Reason = Refused, a.admission.said
	case e.Reason == "":
		e.Reason = "no rule allows it"
	}
	e.Remedy, err = q.remedy(ctx, a)
	return e, err
}

func boundaryResult(a *answer) string {
	switch a.outcome.Verdict {
	case authz.Denied:
		return "denies: " + a.outcome.Reason.String()
	case authz.ShadowDenied:
		return "would deny, but does not (mode: Shadow): " + a.outcome.Reason.String()
	case authz.Excepted:
		return "an exception allows it: " + a.outcome.Reason.String()
	}
	return "delegates, by rule " + string(a.outcome.Rule)
}

// RequestText returns the text of a request on one line.
func RequestText(r *authorizer.AttributesRecord) string {
	if !r.ResourceRequest {
		return r.Verb + " " + r.Path
	}
	text := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	if r.APIGroup != "" {
		text += " of " + r.APIGroup
	}
	if r.Name != "" {
		text += " " + r.Name
	}
	if r.Namespace != "" {
		text += " in namespace " + r.Namespace
	}
	return text
}

// tenantResult describes the caller's tenant and the rule that determined it.
func (q *Query) tenantResult(ctx context.Context, a *answer) string {
	id, rule, err := a.stack.Subject(ctx, q.User)
	switch {
	case errors.Is(err, tenant.ErrUnbound):
		return "none: no source set one"
	case err != nil:
		return "none: " + err.Error()
	}
	return id.String() + ", from " + string(rule)
}

func (q *Query) ownerResult(a *answer) string {
	name := q.namespaceName()
	switch {
	case !q.Request.ResourceRequest:
		return "a path has no owner"
	case name != "" && q.isMissing(name):
		return "there is no namespace " + name
	case !a.outcome.Owner.IsZero():
		return "tenant " + a.outcome.Owner.String()
	case name == "":
		return "not in a namespace"
	case a.outcome.Verdict == authz.Denied && q.Limited:
		return "unknown: the namespace does not exist or belongs to another tenant"
	case a.outcome.Verdict == authz.Denied:
		return "none, or not looked up"
	}
	return "not looked up: it does not matter for this caller"
}

// namespaceName returns the name of the namespace in which the request acts, or of the Namespace
// object of the request. It returns "" for a request that creates a Namespace.
func (q *Query) namespaceName() string {
	r := &q.Request
	switch {
	case r.Resource == "namespaces" && r.APIGroup == "" && r.Verb == "create" && r.Subresource == "":
		return ""
	case r.Resource == "namespaces" && r.APIGroup == "" && r.Name != "":
		return r.Name
	}
	return r.Namespace
}

func (q *Query) grantsResult(a *answer) string {
	switch {
	case a.outcome.Reason == authz.ReasonGrant:
		return "an AccessGrant in the namespace allows it"
	case q.Config.Authorization.Grants.Enabled != nil && !*q.Config.Authorization.Grants.Enabled:
		return "disabled"
	case a.outcome.Caller.IsSystem(), a.outcome.Caller == a.outcome.Owner:
		return "not needed"
	}
	return "no AccessGrant allows it"
}

// policyOf returns the policy file of a configuration, or nil if there is none.
func policyOf(config *configv1alpha1.Settings) (*abac.Policy, error) {
	if config.Authorization.ABAC == nil {
		return nil, nil
	}
	data, err := os.ReadFile(config.Authorization.ABAC.Path)
	if err != nil {
		return nil, err
	}
	return abac.Parse(data)
}

func (q *Query) policyResult(policy *abac.Policy, a *answer) string {
	if policy == nil {
		return "not configured"
	}
	record := q.Request
	record.User = q.User
	allowed := a.decision == authorizer.DecisionAllow && strings.Contains(a.reason, authz.ReasonABAC.String())
	owners := []authz.ObjectOwner{{ID: a.outcome.Owner}, {ID: tenant.System()}, {ID: a.outcome.Caller}, {All: true}}
	for _, owner := range owners {
		if line := policy.Line(a.outcome.Caller, owner, &record); line > 0 && allowed {
			return fmt.Sprintf("line %d allows it", line)
		}
	}
	return "no line allows it"
}

func (q *Query) rbacResult(ctx context.Context, a *answer) string {
	record := q.Request
	record.User = q.User
	owner := a.outcome.Owner
	if owner.IsZero() && !a.outcome.Caller.IsZero() && record.Namespace == "" {
		owner = tenant.System()
	}
	evaluator := rbac.New(q.Snapshot.Index(), rbac.Options{
		Subject:      func(context.Context, user.Info) (tenant.ID, error) { return a.outcome.Caller, nil },
		Owner:        func(context.Context, authorizer.Attributes) (tenant.ID, error) { return owner, nil },
		DerivedRoles: q.Snapshot.Rights(q.Config),
	})
	decision, reason, err := evaluator.Authorize(ctx, &record)
	text := "no role bound to the caller allows it"
	switch {
	case err != nil:
		text = err.Error()
	case decision == authorizer.DecisionAllow:
		text = strings.TrimPrefix(reason, "RBAC: ")
	case reason != "":
		text += "; " + reason
	case a.outcome.Verdict != authz.Excepted && a.decision == authorizer.DecisionAllow:
		text += "; the server allows it: " + a.reason
	}
	if a.outcome.Verdict == authz.Denied || a.outcome.Verdict == authz.Excepted {
		return "not reached; result would be: " + text
	}
	return text
}
