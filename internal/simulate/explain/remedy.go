// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/yamlfile"
	"github.com/kubetenant/kubetenant/tenant"
)

// maxChanges is the maximum number of changes in one remedy.
const maxChanges = 4

// noSetting is the text of the remedy for a request that no setting and no object can allow.
const noSetting = "No setting allows this to a tenant."

// Remedy is a change that would allow a request, possibly with further changes. The changes were
// tested by running the stack with them.
type Remedy struct {
	// Text describes the change and who may make it, or why there is no such change. It has one or
	// more lines.
	Text string `json:"text"`
	// Command is the command that makes the change. It is empty if the change is in YAML.
	Command string `json:"command,omitempty"`
	// YAML contains objects, a part of the configuration, or a line of the policy file.
	YAML string `json:"yaml,omitempty"`
	// Then is the next change that is required, or nil.
	Then *Remedy `json:"then,omitempty"`
}

// change is one change of a remedy. If after is nil, the change is only advice, and the stack was
// not run with it.
type change struct {
	Remedy
	after  *Query
	answer *answer // after the change
}

// advice returns a change that consists only of a text.
func advice(format string, args ...any) *change {
	return &change{Remedy: Remedy{Text: fmt.Sprintf(format, args...)}}
}

// remedy returns the changes that would allow the request. It returns nil if authorization already
// allows the request and its namespace exists.
func (q *Query) remedy(ctx context.Context, a *answer) (*Remedy, error) {
	if a.decision == authorizer.DecisionAllow && !q.isMissing(q.Request.Namespace) {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first := &Remedy{}
	for last := first; ; last = last.Then {
		next, err := q.propose(ctx, a)
		if err != nil {
			return nil, err
		}
		*last = next.Remedy
		switch {
		case next.Text == noSetting:
			return &next.Remedy, nil
		case next.after == nil, next.answer.allows():
			return first, nil
		case first.length() == maxChanges:
			return &Remedy{Text: noSetting}, nil
		}
		q = next.after
		a = next.answer
		last.Then = &Remedy{}
	}
}

func (r *Remedy) length() (n int) {
	for ; r != nil; r = r.Then {
		n++
	}
	return n
}

// propose returns the next change for a request that is not allowed.
func (q *Query) propose(ctx context.Context, a *answer) (*change, error) {
	switch {
	case a.decision == authorizer.DecisionAllow && q.isMissing(q.Request.Namespace):
		return q.proposeNamespace(ctx, a)
	case a.decision == authorizer.DecisionAllow:
		return advice("The server would still refuse it: %s", a.admission.said), nil
	case a.outcome.Verdict == authz.Denied:
		return q.proposeFor(ctx, a)
	}
	c, err := q.proposeBinding(ctx, a)
	if c == nil && err == nil {
		c = advice("No role can allow this: %s", a.reason)
	}
	return c, err
}

// try runs the stack with a change. It returns nil if the boundary still denies the request for the
// same reason.
func (q *Query) try(ctx context.Context, a *answer, remedy Remedy, after *Query) (*change, error) {
	next, err := after.evaluate(ctx)
	if err != nil {
		return nil, err
	}
	changed, original := next.outcome, a.outcome
	if changed.Verdict == authz.Denied && original.Verdict == authz.Denied && changed.Reason == original.Reason {
		return nil, nil
	}
	return &change{remedy, after, next}, nil
}

// tryObjects calls try with more objects in the cluster. The objects are the YAML of the remedy.
func (q *Query) tryObjects(ctx context.Context, a *answer, text string, objects ...runtime.Object) (*change, error) {
	after, err := q.with(q.Config, objects...)
	if err != nil {
		return nil, err
	}
	all := make([]any, len(objects))
	for i := range objects {
		all[i] = objects[i]
	}
	yaml, err := yamlfile.Marshal(all...)
	if err != nil {
		return nil, err
	}
	return q.try(ctx, a, Remedy{Text: text, YAML: yaml}, after)
}

// proposeFor returns the change for a request that the boundary denies, depending on the reason.
func (q *Query) proposeFor(ctx context.Context, a *answer) (*change, error) {
	var c *change
	var err error
	switch a.outcome.Reason {
	case authz.ReasonBadTenant:
		if namespace, isAccount := tenant.ServiceAccountNamespace(q.User.GetName()); isAccount && q.isMissing(namespace) {
			return advice("There is no namespace %s, so its service account has no tenant.", namespace), nil
		}
	case authz.ReasonNotOwned:
		c, err = q.proposeInForeign(ctx, a)
	case authz.ReasonCluster:
		c, err = q.proposeClusterScoped(ctx, a)
	case authz.ReasonReview:
		c, err = q.proposeReviews(ctx, a)
	case authz.ReasonPath, authz.ReasonNamespaceVerb:
		c, err = q.proposeLine(ctx, a, policyNamespaceOwner(a))
	case authz.ReasonNoTenantObject:
		c, err = q.proposeTenant(ctx, a)
	case authz.ReasonRetired:
		c, err = q.proposeSuccessor(ctx, a)
	case authz.ReasonUndated, authz.ReasonClosed, authz.ReasonReadOnly:
		c, err = q.proposeAccess(ctx, a)
	}
	if c == nil && err == nil {
		c = advice("%s", adviceFor(a.outcome.Reason, a.outcome.Caller))
	}
	return c, err
}

// policyNamespaceOwner returns the tenant for the field space in a line of the policy file.
func policyNamespaceOwner(a *answer) tenant.ID {
	if a.outcome.Owner.IsZero() {
		return tenant.System()
	}
	return a.outcome.Owner
}

// proposeInForeign returns a change for a namespace that does not belong to the caller's tenant.
func (q *Query) proposeInForeign(ctx context.Context, a *answer) (*change, error) {
	if strings.HasPrefix(q.Request.Verb, "impersonate") {
		return advice("%s", adviceFor(authz.ReasonImpersonation, a.outcome.Caller)), nil
	}
	if name := q.namespaceName(); name != "" && q.isMissing(name) {
		return q.proposeNamespace(ctx, a)
	}
	owner := a.outcome.Owner
	within := q.Request.Namespace != "" && q.Request.Resource != "namespaces"
	if within && !owner.IsZero() && !owner.IsSystem() {
		if c, err := q.proposeGrant(ctx, a); c != nil || err != nil {
			return c, err
		}
	}
	c, err := q.proposeLine(ctx, a, policyNamespaceOwner(a))
	if c == nil && err == nil && !q.Limited {
		c = advice(noSetting)
	}
	return c, err
}

// names returns the resource names for a rule, or nil if the request does not name an existing
// object.
func (q *Query) names() []string {
	if q.Request.Name == "" || q.Request.Verb == "create" && q.Request.Subresource == "" {
		return nil
	}
	return []string{q.Request.Name}
}

func (q *Query) resource() string {
	if q.Request.Subresource != "" {
		return q.Request.Resource + "/" + q.Request.Subresource
	}
	return q.Request.Resource
}

// name returns a name for the objects of a proposal.
func (q *Query) name() string {
	r := &q.Request
	words := []string{r.Verb, r.Resource, r.Subresource}
	if !r.ResourceRequest {
		words = []string{r.Verb, "path"}
	}
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
	return strings.ToLower(strings.NewReplacer(":", "-", "*", "any", "/", "-").Replace(strings.Join(words, "-")))
}

// noTenantPath returns a sentence about the server URLs for which grants and the policy file do not
// apply.
func noTenantPath(caller tenant.ID) string {
	return fmt.Sprintf("It does not apply to server URLs that end in /tenants/%s.", caller)
}

// configured returns a copy of the configuration to which change was applied.
func (q *Query) configured(change func(*configv1alpha1.Authorization)) *configv1alpha1.Settings {
	config := *q.Config
	change(&config.Authorization)
	return &config
}
