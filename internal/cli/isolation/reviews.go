// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
)

// tryReviews sends self reviews for the requests of the matrix as each caller. The result of a
// review must equal the recorded authorization decision. tryReviews also checks the rules that the
// server lists for the caller.
func (m *matrix) tryReviews(ctx context.Context, served []resource) error {
	group, asking := errgroup.WithContext(ctx)
	group.SetLimit(m.Parallel)
	for c, answers := range m.answers {
		for q, want := range answers {
			group.Go(func() error {
				got, err := c.isAllowed(asking, &q)
				if err != nil {
					return m.unreviewed(asking, c, err)
				}
				if got != want {
					m.find(Contradicted, c.name, "", "self reviews and requests differ: "+named(&q),
						fmt.Sprintf("%q in %q: allowed by the review: %t; allowed for the request: %t", q.Name, q.Namespace, got, want))
				}
				return nil
			})
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, c := range m.fixture.callers {
		for _, namespace := range []string{
			m.fixture.namespace(0),
			m.fixture.namespace(1),
			systemNamespace,
			missingNamespace,
		} {
			if err := m.tryRules(ctx, c, namespace, served); err != nil {
				return err
			}
		}
	}
	return nil
}

// unreviewed records a review without a valid response as not tested. It returns an error if the
// run must stop.
func (m *matrix) unreviewed(ctx context.Context, c *caller, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.find(Untested, c.name, "", untestedReview, err.Error())
	var transport *url.Error
	if errors.As(err, &transport) {
		return m.countUnanswered(err)
	}
	return nil
}

// named returns the verb and the resource of a request as text.
func named(q *question) string {
	r := resource{GroupVersion: schema.GroupVersion{Group: q.Group}, name: q.Resource, subresource: q.Subresource}
	return q.Verb + " " + r.String()
}

// isAllowed sends a SelfSubjectAccessReview. It returns false if the caller may not create one.
func (c *caller) isAllowed(ctx context.Context, a *authorizationv1.ResourceAttributes) (bool, error) {
	review := authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: a},
	}
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
	object["apiVersion"] = "authorization.k8s.io/v1"
	object["kind"] = kind
	if data, err = json.Marshal(object); err != nil {
		return err
	}
	a, err := c.send(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/"+resource, data,
		http.Header{"Content-Type": {"application/json"}})
	switch {
	case err != nil:
		return err
	case a.deniedByAuthorization(), a.code == http.StatusUnauthorized && c.own < 0:
		return nil
	case a.code == http.StatusForbidden && a.message() != "" && resource == "selfsubjectrulesreviews":
		return nil // a gateway denies the rules review of other namespaces
	case a.code != http.StatusCreated:
		return fmt.Errorf("%s: %s: %d %s", c.name, resource, a.code, a.message())
	}
	var answered struct{ Status map[string]any }
	if err := json.Unmarshal(a.body, &answered); err != nil || len(answered.Status) == 0 {
		return fmt.Errorf("%s: %s: the response has no status", c.name, resource)
	}
	return json.Unmarshal(a.body, review)
}

// tryRules requests the rules of a caller in a namespace, and compares them with the results of
// individual self reviews.
func (m *matrix) tryRules(ctx context.Context, c *caller, namespace string, served []resource) error {
	review := authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}
	if err := c.review(ctx, "selfsubjectrulesreviews", "SelfSubjectRulesReview", &review); err != nil {
		return m.unreviewed(ctx, c, err)
	}
	own := c.own >= 0 && namespace == m.fixture.namespace(c.own)
	rules := review.Status.ResourceRules
	if !own && len(rules)+len(review.Status.NonResourceRules) > 0 {
		m.find(Contradicted, c.name, "", "rules for a namespace of another tenant",
			fmt.Sprintf("%d rules in %s", len(rules)+len(review.Status.NonResourceRules), namespace))
	}
	if own && len(rules) == 0 && m.fixture.mode != installation.Webhook { // a webhook denies these reviews
		m.find(Contradicted, c.name, "", "no rules for the caller's own namespace", namespace)
	}
	if m.fixture.mode == installation.Gateway {
		return nil // the cluster lists the rules of the caller's roles, without the boundary
	}
	return m.tryListed(ctx, c, namespace, rules, served)
}

// tryListed sends a self review for each action that the rules allow. The review must allow it,
// too.
func (m *matrix) tryListed(ctx context.Context, c *caller, namespace string,
	rules []authorizationv1.ResourceRule, served []resource,
) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(m.Parallel)
	for _, rule := range rules {
		if slices.Contains(rule.Verbs, "*") || slices.Contains(rule.APIGroups, "*") || slices.Contains(rule.Resources, "*") {
			m.find(Contradicted, c.name, "", "rules with a wildcard",
				fmt.Sprintf("%v %v %v in %s", rule.Verbs, rule.APIGroups, rule.Resources, namespace))
			continue
		}
		for _, a := range actions(&rule, namespace) {
			if slices.ContainsFunc(served, func(r resource) bool { return r.matches(a.Group, a.Resource) && !r.namespaced }) {
				a.Namespace = "" // rules for cluster-scoped resources are listed in each namespace
			}
			group.Go(func() error {
				ok, err := c.isAllowed(ctx, &a)
				if err != nil {
					return m.unreviewed(ctx, c, err)
				}
				if !ok {
					m.find(Contradicted, c.name, "", "rules and self reviews differ: "+named(&a),
						fmt.Sprintf("%q in %q", a.Name, namespace))
				}
				return nil
			})
		}
	}
	return group.Wait()
}

// actions returns the attributes of every request that a rule allows.
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
					all = append(all, authorizationv1.ResourceAttributes{
						Namespace:   namespace,
						Verb:        verb,
						Group:       group,
						Resource:    resource,
						Subresource: sub,
						Name:        name,
					})
				}
			}
		}
	}
	return all
}
