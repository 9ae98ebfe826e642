// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/simulate/explain"
	"github.com/kubetenant/kubetenant/internal/simulate/scenario"
	"github.com/kubetenant/kubetenant/tenant"
)

// offline explains the decision of a case or a request in a scenario.
func (o *explainOptions) offline(ctx context.Context, args []string) (*explain.Explanation, error) {
	all, err := scenario.LoadScenarios(o.scenario)
	if err != nil {
		return nil, err
	}
	s, c, err := o.pick(all)
	if err != nil {
		return nil, err
	}
	w, err := scenario.NewFixture(s, nil)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	q := &explain.Query{Said: "none: --as names the caller"}
	if q.Config, err = settings(w.ConfigFile); err != nil {
		return nil, err
	}
	if q.Snapshot, q.Delegate, err = scenario.Snapshot(s); err != nil {
		return nil, err
	}
	if c == nil {
		if o.as == "" {
			return nil, errors.New("no caller given: set --as and --tenant, or name a case with --case")
		}
		if q.User, err = o.identity(q.Snapshot); err != nil {
			return nil, err
		}
		if id, err := tenant.Parse(o.tenant); err == nil && !q.Snapshot.HasTenant(id) {
			return nil, fmt.Errorf("--tenant %s: the scenario has no Tenant object and no namespace of this tenant", id)
		}
		if err := o.offlineRequest(q, args); err != nil {
			return nil, err
		}
		return explain.Explain(ctx, q)
	}
	if c.Request == nil && c.Admit == nil {
		return nil, fmt.Errorf("case %q has neither a request nor a write, so there is no decision to explain", c.Name)
	}
	session, err := scenario.Library{}.Open(ctx, w)
	if session != nil {
		defer session.Close()
	}
	if err != nil {
		return nil, err
	}
	identity, err := session.Authenticate(ctx, &c.Credential)
	if err != nil {
		return nil, err
	}
	if identity.User == nil {
		return &explain.Explanation{
			Decision: "deny",
			Reason:   "authentication rejects the credential",
			Steps:    []explain.Step{{Name: "source", Result: identity.String()}},
		}, nil
	}
	u := &user.DefaultInfo{
		Name:   identity.User.Name,
		UID:    identity.User.UID,
		Groups: identity.User.Groups,
		Extra:  identity.User.Extra,
	}
	q.User, q.Said = u, "the credential of the case; source "+orNone(strings.Join(u.Extra[tenant.SourceKey], ", "))
	if c.Request != nil {
		q.Request = scenario.Attributes(nil, c.Request)
	} else if err := q.Writes(c.Admit); err != nil {
		return nil, err
	}
	return explain.Explain(ctx, q)
}

func (o *explainOptions) completeCases(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, err := scenario.LoadScenarios(o.scenario)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, s := range all {
		for i := range s.Cases {
			names = append(names, s.Cases[i].Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// pick returns the scenario and the case that --case selects.
func (o *explainOptions) pick(all []*scenario.Scenario) (*scenario.Scenario, *scenario.Case, error) {
	if o.of == "" {
		if len(all) != 1 {
			return nil, nil, fmt.Errorf("%s contains %d scenarios: name a case with --case", o.scenario, len(all))
		}
		return all[0], nil, nil
	}
	for _, s := range all {
		if i := slices.IndexFunc(s.Cases, func(c scenario.Case) bool { return c.Name == o.of }); i >= 0 {
			return s, &s.Cases[i], nil
		}
	}
	return nil, nil, fmt.Errorf("%s has no case named %q", o.scenario, o.of)
}

// offlineRequest sets the request of a query from the arguments. TYPE must be the full plural name.
// The resource of an object is derived from its kind, as in a scenario.
func (o *explainOptions) offlineRequest(q *explain.Query, args []string) error {
	r := authorizer.AttributesRecord{Verb: args[0], APIVersion: "*", ResourceRequest: true}
	if o.object != nil {
		raw, err := o.object.MarshalJSON()
		if err != nil {
			return err
		}
		write := &scenario.Admit{Object: &runtime.RawExtension{Raw: raw}, Namespace: o.flags.Namespace()}
		if err := q.Writes(write); err != nil {
			return err
		}
		r.APIGroup, r.Resource, r.Namespace = q.Request.APIGroup, q.Request.Resource, q.Request.Namespace
		if args[0] != "create" {
			return errors.New("only create can be explained with an object and a scenario: a scenario has no stored object to " +
				"change")
		}
	}
	r.Subresource = o.requestFlags.subresource
	if len(args) == 1 {
		q.Request = r
		return nil
	}
	t, err := parseTarget(args[1:], o.requestFlags.subresource)
	switch {
	case err != nil:
		return err
	case t.path != "" && o.object != nil:
		return errObjectWithPath
	case t.path != "":
		q.Request = authorizer.AttributesRecord{Verb: args[0], Path: t.path}
		return nil
	}
	gr := schema.ParseGroupResource(t.resource)
	scope := authz.Scopes{Custom: q.Snapshot.CustomScope}.Of(gr)
	if o.object != nil && (gr != schema.GroupResource{Group: r.APIGroup, Resource: r.Resource}) {
		return fmt.Errorf("the object in the file is one of %s, but TYPE is %s",
			schema.GroupResource{Group: r.APIGroup, Resource: r.Resource}, gr)
	}
	if o.object == nil && !o.requestFlags.everywhere && scope != authz.ScopeCluster {
		r.Namespace = o.flags.Namespace()
		if r.Namespace == "" && scope == authz.ScopeNamespaced {
			return fmt.Errorf("%s are namespaced, and a scenario has no current namespace: set -n or -A", gr)
		}
	}
	r.APIGroup, r.Resource, r.Name = gr.Group, gr.Resource, t.name
	q.Request = r
	return nil
}
