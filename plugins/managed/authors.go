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

// author is the caller that writes a Publication or its source.
type author struct {
	*plugin
	user user.Info
	// path is the path of the field in error messages.
	path string
}

// mayWrite returns an error if the author may not get a source, or may not write objects of its
// resource in all namespaces. To write means to create and update, and also to delete if the
// Publication may replace objects.
func (w *author) mayWrite(ctx context.Context, publication *Publication) error {
	get := authorizer.AttributesRecord{
		Verb:       "get",
		Namespace:  publication.Namespace,
		Name:       nameOrEvery(publication.Name),
		APIGroup:   publication.Resource.Group,
		APIVersion: publication.Resource.Version,
		Resource:   publication.Resource.Resource,
	}
	switch may, err := w.isAllowed(ctx, &get); {
	case err != nil:
		return err
	case !may:
		return fmt.Errorf(
			"%s: the caller may not get %s %s/%s",
			w.path,
			publication.Resource.GroupResource(),
			publication.Namespace,
			publication.Name,
		)
	}
	verbs := []string{"create", "update"}
	if publication.Replace {
		verbs = append(verbs, "delete")
	}
	anyName := plugins.UnguessableName()
	for _, verb := range verbs {
		switch may, err := w.isAllowed(ctx, &authorizer.AttributesRecord{
			Verb:       verb,
			APIGroup:   publication.Resource.Group,
			APIVersion: publication.Resource.Version,
			Resource:   publication.Resource.Resource,
			Name:       anyName,
		}); {
		case err != nil:
			return err
		case !may:
			return fmt.Errorf(
				"%s: the caller may not %s %s in all namespaces",
				w.path,
				verb,
				publication.Resource.GroupResource(),
			)
		}
	}
	return nil
}

// nameOrEvery returns name. If name is empty, it returns a random name, so that the request needs
// the permission for every name.
func nameOrEvery(name string) string {
	if name == "" {
		return plugins.UnguessableName()
	}
	return name
}

// mayGrant returns an error if the author may not grant the rules of a Role or of a RoleBinding in
// all namespaces. kube-apiserver requires the same of the authors of Roles and RoleBindings.
func (w *author) mayGrant(ctx context.Context, content *Content) error {
	if content.Ref == nil && len(content.Rules) == 0 {
		return nil
	}
	special := authorizer.AttributesRecord{
		Verb:       "escalate",
		APIGroup:   rbacv1.GroupName,
		APIVersion: rbacv1.SchemeGroupVersion.Version,
		Resource:   "roles",
		Name:       plugins.UnguessableName(),
	}
	if content.Ref != nil {
		special.Verb, special.Name = "bind", nameOrEvery(content.Ref.Name)
		if content.Ref.Kind == "ClusterRole" {
			special.Resource = "clusterroles"
		}
	}
	may, err := w.isAllowed(ctx, &special)
	if err != nil || may {
		return err
	}
	if !content.UnknownRules {
		switch may, err := w.hasRules(ctx, content.Rules); {
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

// hasRules reports whether the author has all rules in the whole cluster. A wildcard in a rule is
// sent as a wildcard in the request, so only a rule with a wildcard allows that request.
func (w *author) hasRules(ctx context.Context, rules []rbacv1.PolicyRule) (bool, error) {
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

// ruleChecks returns the number of authorization requests that one rule needs. If this number is
// greater than maxRuleChecks, the result may be any number greater than maxRuleChecks. The exact
// number for a large role could overflow an int.
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
		names = []string{plugins.UnguessableName()}
	}
	for _, group := range r.APIGroups {
		for _, path := range r.Resources {
			resource, subresource, _ := strings.Cut(path, "/")
			for _, name := range names {
				may, err := w.isAllowed(ctx, &authorizer.AttributesRecord{
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
			return false, w.checkError(err)
		}
		if may != authorizer.DecisionAllow {
			return false, nil
		}
	}
	return true, nil
}

// isAllowed reports whether the author may make a resource request.
func (w *author) isAllowed(ctx context.Context, a *authorizer.AttributesRecord) (bool, error) {
	a.User = w.user
	a.ResourceRequest = true
	decision, _, err := w.Authorizer.Authorize(ctx, a)
	if err != nil {
		return false, w.checkError(err)
	}
	return decision == authorizer.DecisionAllow, nil
}

func (w *author) checkError(err error) error {
	return fmt.Errorf("%s: cannot check now what the caller may do: %w", w.path, err)
}
