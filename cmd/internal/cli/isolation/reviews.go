package isolation

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// tryReviews asks each caller's self reviews about the requests of the matrix: they must say what the
// requests were answered. The rules that a caller is told of must be true.
func (m *matrix) tryReviews(ctx context.Context, served []resource) error {
	group, asking := errgroup.WithContext(ctx)
	group.SetLimit(m.Parallel)
	for c, answers := range m.answers {
		for q, want := range answers {
			group.Go(func() error {
				got, err := c.may(asking, &q)
				if err == nil && got != want {
					m.problem("%s: a self review of %s %s.%s/%s %q in %q says %t, the request %t", c.name, q.Verb, q.Resource, q.Group, q.Subresource, q.Name, q.Namespace, got, want)
				}
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, c := range m.world.callers {
		for _, namespace := range []string{m.world.namespace(0), m.world.namespace(1), systemNamespace, missingNamespace} {
			if err := m.tryRules(ctx, c, namespace, served); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *matrix) problem(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report.Problems = append(m.report.Problems, fmt.Sprintf(format, args...))
}

// may asks a self review. Who may not even ask may nothing.
func (c *caller) may(ctx context.Context, a *authorizationv1.ResourceAttributes) (bool, error) {
	review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: a}}
	err := c.review(ctx, "selfsubjectaccessreviews", "SelfSubjectAccessReview", &review)
	return review.Status.Allowed, err
}

func (c *caller) review(ctx context.Context, resource, kind string, review any) error {
	data, err := json.Marshal(review)
	if err != nil {
		return err
	}
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		return err
	}
	object["apiVersion"], object["kind"] = "authorization.k8s.io/v1", kind
	if data, err = json.Marshal(object); err != nil {
		return err
	}
	a, err := c.send(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/"+resource, data, http.Header{"Content-Type": {"application/json"}})
	switch {
	case err != nil:
		return err
	case a.code == http.StatusUnauthorized || a.code == http.StatusForbidden:
		return nil
	case a.code != http.StatusCreated:
		return fmt.Errorf("%s: %s: %d %s", c.name, resource, a.code, a.message())
	}
	return json.Unmarshal(a.body, review)
}

// tryRules holds the rules that a caller is told of in a namespace against single questions.
func (m *matrix) tryRules(ctx context.Context, c *caller, namespace string, served []resource) error {
	review := authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	if err := c.review(ctx, "selfsubjectrulesreviews", "SelfSubjectRulesReview", &review); err != nil {
		return err
	}
	own := c.own >= 0 && namespace == m.world.namespace(c.own)
	rules := review.Status.ResourceRules
	if !own && len(rules)+len(review.Status.NonResourceRules) > 0 {
		m.problem("%s is told of %d rules in %s", c.name, len(rules)+len(review.Status.NonResourceRules), namespace)
	}
	if own && len(rules) == 0 && m.world.shape != Webhook { // a webhook cannot limit them: they are denied
		m.problem("%s is told of no rules in its own namespace", c.name)
	}
	if m.world.shape == Gateway {
		return nil // the cluster lists what its roles give there, and knows nothing of the boundary
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(m.Parallel)
	for _, rule := range rules {
		if slices.Contains(rule.Verbs, "*") || slices.Contains(rule.APIGroups, "*") || slices.Contains(rule.Resources, "*") {
			m.problem("%s is told of a wildcard in %s: %v %v %v", c.name, namespace, rule.Verbs, rule.APIGroups, rule.Resources)
			continue
		}
		for _, a := range actions(&rule, namespace) {
			if slices.ContainsFunc(served, func(r resource) bool { return r.is(a.Group, a.Resource) && !r.namespaced }) {
				a.Namespace = "" // what lives in no namespace is told of in each
			}
			group.Go(func() error {
				ok, err := c.may(ctx, &a)
				if err == nil && !ok {
					m.problem("%s is told that it may %s %s.%s %s in %s, which is not so", c.name, a.Verb, a.Resource, a.Group, a.Subresource, namespace)
				}
				return err
			})
		}
	}
	return group.Wait()
}

// actions returns all that a rule says.
func actions(rule *authorizationv1.ResourceRule, namespace string) []authorizationv1.ResourceAttributes {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var all []authorizationv1.ResourceAttributes
	for _, verb := range rule.Verbs {
		for _, group := range rule.APIGroups {
			for _, full := range rule.Resources {
				resource, sub := splitResource(full)
				for _, name := range names {
					all = append(all, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: sub, Name: name})
				}
			}
		}
	}
	return all
}
