// Package explain says how a decision came about: it asks the server's own code, over the objects of a
// cluster or a scenario, and tells what each part of it said.
package explain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant"
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/abac"
	"github.com/kubetenant/kubetenant/authz/rbac"
	"github.com/kubetenant/kubetenant/cmd/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Query is what is explained. It is not safe for concurrent use.
type Query struct {
	// User is who asks, as authentication left it.
	User user.Info
	// Said is where the identity comes from, as the first step.
	Said string
	// Request is what is asked for; its user is not looked at.
	Request authorizer.AttributesRecord
	// Write is what is written, where that is known; nil else.
	Write    *Write
	Config   *v1alpha1.Settings
	Snapshot *simulator.Snapshot
	// Delegate is asked where RBAC has no opinion. Nil for nothing.
	Delegate authorizer.Authorizer

	asked *asked // of Config, Snapshot and Delegate, once it was asked
}

// asked is a stack with what it said last.
type asked struct {
	*kubetenant.Stack
	outcome authz.Outcome
}

// Step is what one part of the stack said.
type Step struct {
	Name string `json:"step"`
	Said string `json:"said"`
}

// Explanation is the whole way of one request.
type Explanation struct {
	Steps    []Step `json:"steps"`
	Decision string `json:"decision"`
	Reason   string `json:"reason,omitempty"`
	// Admission says what becomes of a write that is allowed.
	Admission Admission `json:"admission,omitempty"`
	// Remedy is the smallest that would allow it; nil where it is allowed.
	Remedy *Remedy `json:"remedy,omitempty"`
}

// Allowed reports whether the server would allow it.
func (e *Explanation) Allowed() bool { return e.Decision == "allow" }

// answer is what the stack says to one question.
type answer struct {
	outcome  authz.Outcome
	decision authorizer.Decision
	reason   string
	err      error
	stack    *kubetenant.Stack
}

// stack returns the stack of a configuration over a snapshot, until ctx ends.
func (q *Query) stack(ctx context.Context, config *v1alpha1.Settings, snapshot *simulator.Snapshot) (*asked, error) {
	s := &asked{}
	var err error
	s.Stack, err = simulator.New(ctx, config, snapshot, q.Delegate, func(_ context.Context, o authz.Outcome) { s.outcome = o })
	return s, err
}

// ask asks a stack.
func (q *Query) ask(ctx context.Context, s *asked) *answer {
	record := q.Request
	record.User = q.User
	a := &answer{stack: s.Stack}
	a.decision, a.reason, a.err = s.Authorizer.Authorize(simulator.Asked(ctx), &record)
	a.outcome = s.outcome
	return a
}

// Explain asks the stack and says what each of its parts said. Asked again, with another user, request or write, the question
// keeps its stack: until the ctx of the first time ends.
func Explain(ctx context.Context, q *Query) (*Explanation, error) {
	if q.asked == nil {
		s, err := q.stack(ctx, q.Config, q.Snapshot)
		if err != nil {
			return nil, err
		}
		q.asked = s
	}
	a := q.ask(ctx, q.asked)
	policy, err := policyOf(q.Config)
	if err != nil {
		return nil, err
	}
	e := &Explanation{Decision: "deny", Reason: a.reason}
	if a.decision == authorizer.DecisionAllow {
		e.Decision = "allow"
	}
	add := func(name, format string, args ...any) {
		e.Steps = append(e.Steps, Step{name, fmt.Sprintf(format, args...)})
	}
	add("source", "%s", q.Said)
	add("user", "%s; groups %s", q.User.GetName(), strings.Join(q.User.GetGroups(), ", "))
	add("tenant", "%s", q.tenantSaid(ctx, a))
	add("request", "%s", RequestText(&q.Request))
	add("owner", "%s", ownerSaid(q, a))
	boundary := "delegates, by the row " + string(a.outcome.Rule)
	switch a.outcome.Verdict {
	case authz.Denied:
		boundary = "denies: " + string(a.outcome.Reason)
	case authz.ShadowDenied:
		boundary = "would deny, but only watches (mode: Shadow): " + string(a.outcome.Reason)
	case authz.Excepted:
		boundary = "an exception allows it: " + string(a.outcome.Reason)
	}
	add("boundary", "%s", boundary)
	add("grants", "%s", q.grantsSaid(a))
	add("policy file", "%s", q.policySaid(policy, a))
	add("rbac", "%s", q.rbacSaid(ctx, a))
	said, verdict := q.admission(ctx, a)
	if !e.Allowed() {
		if verdict != "" {
			said = "is not reached; it would say: " + said
		}
		add("admission", "%s", said)
		if e.Reason == "" {
			e.Reason = "nothing allows it"
		}
		e.Remedy, err = q.remedy(ctx, a)
		return e, err
	}
	add("admission", "%s", said)
	if e.Admission = verdict; verdict == Refused {
		e.Decision, e.Reason = "deny", strings.TrimPrefix(said, "refuses: ")
	}
	return e, nil
}

// RequestText returns a request in one line.
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

// tenantSaid says whose the caller is, and by which rule.
func (q *Query) tenantSaid(ctx context.Context, a *answer) string {
	id, rule, err := a.stack.Subject(ctx, q.User)
	switch {
	case errors.Is(err, tenant.ErrUnbound):
		return "none: no source gave one"
	case err != nil:
		return "none: " + err.Error()
	}
	return id.String() + ", by " + string(rule)
}

func ownerSaid(q *Query, a *answer) string {
	switch {
	case !q.Request.ResourceRequest:
		return "a path is nobody's"
	case !a.outcome.Owner.IsZero():
		return "tenant " + a.outcome.Owner.String()
	case q.Request.Namespace != "" && a.outcome.Verdict == authz.Denied:
		return "nobody, or not looked up"
	case q.Request.Namespace == "":
		return "not in a namespace"
	}
	return "not looked up: it does not matter for this caller"
}

func (q *Query) grantsSaid(a *answer) string {
	switch {
	case a.outcome.Reason == authz.ReasonGrant:
		return "one of the namespace allows it"
	case q.Config.Authorization.Grants.Enabled != nil && !*q.Config.Authorization.Grants.Enabled:
		return "switched off"
	case a.outcome.Caller.IsSystem(), a.outcome.Caller == a.outcome.Owner:
		return "not needed"
	}
	return "none allows it"
}

// policyOf returns the policy file of a configuration; nil for none.
func policyOf(config *v1alpha1.Settings) (*abac.Policy, error) {
	if config.Authorization.ABAC == nil {
		return nil, nil
	}
	data, err := os.ReadFile(config.Authorization.ABAC.Path)
	if err != nil {
		return nil, err
	}
	return abac.Parse(data)
}

func (q *Query) policySaid(policy *abac.Policy, a *answer) string {
	if policy == nil {
		return "none is configured"
	}
	record := q.Request
	record.User = q.User
	for _, space := range []authz.Space{{ID: a.outcome.Owner}, {ID: tenant.System()}, {ID: a.outcome.Caller}, {All: true}} {
		if line := policy.Line(a.outcome.Caller, space, &record); line > 0 && a.decision == authorizer.DecisionAllow && strings.Contains(a.reason, string(authz.ReasonABAC)) {
			return fmt.Sprintf("line %d allows it", line)
		}
	}
	return "no line allows it"
}

func (q *Query) rbacSaid(ctx context.Context, a *answer) string {
	record := q.Request
	record.User = q.User
	owner := a.outcome.Owner
	if owner.IsZero() && !a.outcome.Caller.IsZero() && record.Namespace == "" {
		owner = tenant.System()
	}
	evaluator := rbac.New(q.Snapshot.Index(), rbac.Options{
		Subject: func(context.Context, user.Info) (tenant.ID, error) { return a.outcome.Caller, nil },
		Space:   func(context.Context, authorizer.Attributes) (tenant.ID, error) { return owner, nil },
		Derive:  q.Snapshot.Rights(q.Config),
	})
	decision, reason, err := evaluator.Authorize(ctx, &record)
	text := "no role that is bound to the caller allows it"
	switch {
	case err != nil:
		text = err.Error()
	case decision == authorizer.DecisionAllow:
		text = strings.TrimPrefix(reason, "RBAC: ")
	case reason != "":
		text += "; " + reason
	}
	if a.outcome.Verdict == authz.Denied || a.outcome.Verdict == authz.Excepted {
		return "is not asked; it would say: " + text
	}
	return text
}
