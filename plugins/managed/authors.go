// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package managed

import (
	"context"
	"errors"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/plugins"
)

// maxRuleChecks is the maximum number of authorization requests for the rules of one role.
const maxRuleChecks = 1000

// errManyRules reports a role with too many rules.
var errManyRules = errors.New("has more rules than the server checks one by one")

// author is the writer of a Publication or of its source.
type author struct {
	*plugin
	user user.Info
	// path is the path of the field in error messages.
	path string
}

// mayWrite returns an error if the author may not get a source, or may not write objects of its
// resource in all namespaces.
func (w *author) mayWrite(ctx context.Context, of *Publication) error {
	get := authorizer.AttributesRecord{
		Verb:       "get",
		Namespace:  of.Namespace,
		Name:       nameOrEvery(of.Name),
		APIGroup:   of.Resource.Group,
		APIVersion: of.Resource.Version,
		Resource:   of.Resource.Resource,
	}
	switch may, err := w.may(ctx, &get); {
	case err != nil:
		return err
	case !may:
		return fmt.Errorf("%s: the caller may not get %s %s/%s", w.path, of.Resource.GroupResource(), of.Namespace, of.Name)
	}
	verbs := []string{"create", "update"}
	if of.Replace {
		verbs = append(verbs, "delete")
	}
	every := plugins.UnguessedName()
	for _, verb := range verbs {
		switch may, err := w.may(ctx, &authorizer.AttributesRecord{
			Verb:       verb,
			APIGroup:   of.Resource.Group,
			APIVersion: of.Resource.Version,
			Resource:   of.Resource.Resource,
			Name:       every,
		}); {
		case err != nil:
			return err
		case !may:
			return fmt.Errorf("%s: the caller may not %s %s in all namespaces", w.path, verb, of.Resource.GroupResource())
		}
	}
	return nil
}

// nameOrEvery returns name. If name is empty, it returns a random name that requires the permission
// for every name.
func nameOrEvery(name string) string {
	if name == "" {
		return plugins.UnguessedName()
	}
	return name
}

// mayGive returns an error if the author may not grant the rules of a Role or of a RoleBinding in
// all namespaces. Upstream applies the same rule to authors of these objects.
func (w *author) mayGive(ctx context.Context, of *Content) error {
	if of.Ref == nil && len(of.Rules) == 0 {
		return nil
	}
	special := authorizer.AttributesRecord{
		Verb:       "escalate",
		APIGroup:   rbacv1.GroupName,
		APIVersion: rbacv1.SchemeGroupVersion.Version,
		Resource:   "roles",
		Name:       plugins.UnguessedName(),
	}
	if of.Ref != nil {
		special.Verb, special.Name = "bind", nameOrEvery(of.Ref.Name)
		if of.Ref.Kind == "ClusterRole" {
			special.Resource = "clusterroles"
		}
	}
	may, err := w.may(ctx, &special)
	if err != nil || may {
		return err
	}
	if !of.UnknownRules {
		switch may, err := w.has(ctx, of.Rules); {
		case errors.Is(err, errManyRules):
			return fmt.Errorf("%s: the role %w: the caller needs the right to %s %s",
				w.path, err, special.Verb, special.Resource)
		case err != nil:
			return err
		case may:
			return nil
		}
	}
	return fmt.Errorf("%s: the caller does not have all rules of the role in the whole cluster and may not %s %s",
		w.path, special.Verb, special.Resource)
}

// has reports whether the author has all rules in the whole cluster. A wildcard in a rule is sent
// as a wildcard in the request, so only a rule with a wildcard allows it.
func (w *author) has(ctx context.Context, rules []rbacv1.PolicyRule) (bool, error) {
	checks := 0
	for i := range rules {
		if checks += ruleChecks(&rules[i]); checks > maxRuleChecks {
			return false, errManyRules
		}
	}
	for i := range rules {
		for _, verb := range rules[i].Verbs {
			if may, err := w.hasRule(ctx, verb, &rules[i]); err != nil || !may {
				return false, err
			}
		}
	}
	return true, nil
}

// ruleChecks returns the number of authorization requests that one rule needs. If the number
// exceeds maxRuleChecks, it returns a larger number than maxRuleChecks. The product for a large
// role would overflow an int.
func ruleChecks(r *rbacv1.PolicyRule) int {
	product := func(counts ...int) int {
		total := 1
		for _, n := range counts {
			total = min(total*n, maxRuleChecks+1)
		}
		return total
	}
	resources := product(len(r.APIGroups), len(r.Resources), max(1, len(r.ResourceNames)), len(r.Verbs))
	return resources + product(len(r.NonResourceURLs), len(r.Verbs))
}

// hasRule reports whether the author has a verb of a rule in the whole cluster.
func (w *author) hasRule(ctx context.Context, verb string, r *rbacv1.PolicyRule) (bool, error) {
	names := r.ResourceNames
	if len(names) == 0 {
		names = []string{plugins.UnguessedName()}
	}
	for _, group := range r.APIGroups {
		for _, path := range r.Resources {
			resource, subresource, _ := strings.Cut(path, "/")
			for _, name := range names {
				may, err := w.may(ctx, &authorizer.AttributesRecord{
					Verb:        verb,
					APIGroup:    group,
					APIVersion:  "*",
					Resource:    resource,
					Subresource: subresource,
					Name:        name,
				})
				if err != nil || !may {
					return false, err
				}
			}
		}
	}
	for _, url := range r.NonResourceURLs {
		may, _, err := w.Authorizer.Authorize(ctx, authorizer.AttributesRecord{User: w.user, Verb: verb, Path: url})
		if err != nil {
			return false, w.unknown(err)
		}
		if may != authorizer.DecisionAllow {
			return false, nil
		}
	}
	return true, nil
}

// may reports whether the author may make a resource request.
func (w *author) may(ctx context.Context, a *authorizer.AttributesRecord) (bool, error) {
	a.User, a.ResourceRequest = w.user, true
	decision, _, err := w.Authorizer.Authorize(ctx, a)
	if err != nil {
		return false, w.unknown(err)
	}
	return decision == authorizer.DecisionAllow, nil
}

func (w *author) unknown(err error) error {
	return fmt.Errorf("%s: cannot check now what the caller may do: %w", w.path, err)
}
