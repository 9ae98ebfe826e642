// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rolebinding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// maxChecks is the maximum number of rights that one write of TenantMembers may add. It is also
	// the maximum number of checks in all namespaces together. Each check calls the authorizer. In
	// the webhook service, the authorizer sends the check to kube-apiserver.
	maxChecks = 2000
	// maxTenantChecks is maxChecks for a tenant's caller, which could repeat its writes in a loop.
	// It suffices to add 5 verbs for 5 resources in 20 namespaces.
	maxTenantChecks = 500
	// parallelChecks is the number of namespaces that are checked in parallel, and the number of
	// parallel checks in one of them.
	parallelChecks = 4
	// reservedRolePrefix is the prefix of the names of Roles that a tenant may not define.
	reservedRolePrefix = "kubetenant:"
)

var (
	errRoleName    = errors.New("must not begin with " + reservedRolePrefix + ", which is reserved for the server")
	errRule        = errors.New("must have at least one verb, API group and resource, and no nonResourceURLs")
	errNoNamespace = errors.New("spec.roles: the tenant has no namespace in which the caller could have these rights: " +
		"create a namespace first")
	errNamespaces = errors.New("spec.roles: the namespaces of the tenant are not known")
)

// errManyRights returns the error for a write that adds too many rights.
func errManyRights(limit int) error {
	return fmt.Errorf("spec.roles: adds more than %d combinations of verb, API group, resource and name: "+
		"add the rules in several updates", limit)
}

// errManyChecks returns the error for a write that adds too many rights for the number of
// namespaces.
func errManyChecks(namespaces, limit int) error {
	if namespaces > limit {
		return fmt.Errorf("spec.roles: the tenant has more than %d namespaces: let a caller with these rights in "+
			"the whole cluster write the rules", limit)
	}
	return fmt.Errorf("spec.roles: the added rules need more than %d checks in %d namespaces. In one update, add at most "+
		"%d combinations of verb, API group, resource and name, to at most %[3]d Roles. Or let a caller with these rights "+
		"in the whole cluster write the rules", limit, namespaces, limit/namespaces)
}

// DefinedRole is a Role that TenantMembers define. Path is the path of the Role's field.
type DefinedRole struct {
	Path, Name string
	Rules      []rbacv1.PolicyRule
}

// CheckRole returns an error if no tenant may define the Role, regardless of the rights of its
// author. A Role without rules is valid.
func CheckRole(role *DefinedRole) error {
	var errs plugins.Errors
	if strings.HasPrefix(role.Name, reservedRolePrefix) {
		errs.Add(fmt.Errorf("%s.name: %w", role.Path, errRoleName))
	}
	for i := range role.Rules {
		r := &role.Rules[i]
		if len(r.Verbs) == 0 || len(r.APIGroups) == 0 || len(r.Resources) == 0 || len(r.NonResourceURLs) > 0 {
			errs.Add(fmt.Errorf("%s.rules[%d]: %w", role.Path, i, errRule))
		}
	}
	return errs.Err()
}

// requiredRight is a right, and the rules that grant it.
type requiredRight struct {
	right
	rules []ruleRef
}

// ruleRef is a rule of a Role. path is the path of its field.
type ruleRef struct {
	role, path string
}

// right is the smallest part of a rule, such as one verb for one resource. Its fields are literal,
// so only a rule with "*" grants a right with "*". If anyName is set, the right applies to every
// name.
type right struct {
	verb, group, resource, subresource, name string
	anyName                                  bool
}

// checkDefined returns an error unless the writer has the rights of each rule that it adds to a
// Role. kube-apiserver requires the same of the author of a Role. The writer must have the rights
// in the whole cluster or in every namespace of the tenant. If it lacks a right, the permission
// to escalate the Role suffices.
func (p *plugin) checkDefined(ctx context.Context, writer user.Info, old, obj *Bindings) error {
	var errs plugins.Errors
	for i := range obj.DefinedRoles {
		errs.Add(CheckRole(&obj.DefinedRoles[i]))
	}
	if err := errs.Err(); err != nil {
		return err
	}
	c := rightsCheck{
		authz:           p.Authorizer,
		writer:          writer,
		limit:           maxTenantChecks,
		unguessableName: plugins.UnguessableName(),
	}
	if p.Subject.IsSystem(ctx, writer) {
		c.limit = maxChecks
	}
	rights, err := addedRights(old, obj, c.limit)
	if err != nil {
		return err
	}
	missing, err := c.missingInCluster(ctx, rights)
	if err != nil || len(missing) == 0 {
		return err
	}
	if p.Namespaces == nil {
		return errNamespaces
	}
	namespaces, err := p.Namespaces(obj.Tenant)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errNamespaces, err)
	case len(namespaces) == 0:
		return errNoNamespace
	}
	return c.checkNamespaces(ctx, namespaces, missing)
}

// addedRights returns the rights of the rules that an update adds, without duplicates. A rule is
// not added if a Role with the same name already had it.
func addedRights(old, obj *Bindings, limit int) ([]requiredRight, error) {
	var all []requiredRight
	known := map[right]int{} // the index in all
	for _, role := range obj.DefinedRoles {
		var before []rbacv1.PolicyRule
		if i := slices.IndexFunc(old.DefinedRoles, func(r DefinedRole) bool { return r.Name == role.Name }); i >= 0 {
			before = old.DefinedRoles[i].Rules
		}
		for i, rule := range role.Rules {
			if slices.ContainsFunc(before, func(r rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(r, rule) }) {
				continue
			}
			for r := range rightsOf(&rule) {
				k, ok := known[r]
				if !ok {
					if len(all) == limit {
						return nil, errManyRights(limit)
					}
					k = len(all)
					known[r] = k
					all = append(all, requiredRight{right: r})
				}
				ref := ruleRef{role: role.Name, path: fmt.Sprintf("%s.rules[%d]", role.Path, i)}
				if n := len(all[k].rules); n == 0 || all[k].rules[n-1].role != role.Name {
					all[k].rules = append(all[k].rules, ref)
				}
			}
		}
	}
	return all, nil
}

// rightsOf yields the rights that a rule grants, without duplicates.
func rightsOf(rule *rbacv1.PolicyRule) func(yield func(right) bool) {
	verbs, groups, resources := distinct(rule.Verbs), distinct(rule.APIGroups), distinct(rule.Resources)
	names := distinct(rule.ResourceNames)
	anyName := len(names) == 0
	if anyName {
		names = []string{""}
	}
	return func(yield func(right) bool) {
		for _, verb := range verbs {
			for _, group := range groups {
				for _, path := range resources {
					resource, subresource, _ := strings.Cut(path, "/")
					for _, name := range names {
						if !yield(right{
							verb:        verb,
							group:       group,
							resource:    resource,
							subresource: subresource,
							name:        name,
							anyName:     anyName,
						}) {
							return
						}
					}
				}
			}
		}
	}
}

// distinct returns the values of a list in order, without duplicates.
func distinct(all []string) (out []string) {
	known := map[string]bool{}
	for _, value := range all {
		if !known[value] {
			known[value] = true
			out = append(out, value)
		}
	}
	return out
}

// rightsCheck checks the rights of a writer with the server's authorizer.
type rightsCheck struct {
	authz  authorizer.Authorizer
	writer user.Info
	// limit is the maximum number of checks in all namespaces.
	limit int
	// unguessableName is a random name that no rule lists.
	unguessableName string
}

// missingInCluster returns the rights that the server must check in each namespace. It stops if the
// writer lacks a right in the whole cluster and may not escalate the Role there. It then returns
// the remaining rights unchecked.
func (c *rightsCheck) missingInCluster(ctx context.Context, rights []requiredRight) ([]requiredRight, error) {
	escalates := map[string]bool{}
	for from := 0; from < len(rights); from += parallelChecks {
		to := min(from+parallelChecks, len(rights))
		missing, err := c.missing(ctx, "", rights[from:to])
		if err != nil {
			return nil, err
		}
		switch refused, err := c.withoutEscalation(ctx, "", missing, escalates); {
		case err != nil:
			return nil, err
		case len(refused) > 0:
			return slices.Concat(missing, rights[to:]), nil
		}
	}
	return nil, nil
}

// checkNamespaces returns an error unless the writer has the rights, or may escalate the Roles, in
// each namespace. After the first failure, no further namespace is checked.
func (c *rightsCheck) checkNamespaces(ctx context.Context, namespaces []string, rights []requiredRight) error {
	if len(rolesIn(rights))*len(namespaces) > c.limit {
		return errManyChecks(len(namespaces), c.limit)
	}
	check := c.checkNamespace
	if len(rights)*len(namespaces) > c.limit {
		check = func(ctx context.Context, namespace string, rights []requiredRight) error {
			return c.checkEscalation(ctx, namespace, rights, len(namespaces))
		}
	}
	failed := make([]error, len(namespaces))
	var stopped atomic.Bool
	var group errgroup.Group
	group.SetLimit(parallelChecks)
	for i, namespace := range namespaces {
		if stopped.Load() {
			break
		}
		group.Go(func() error {
			if failed[i] = check(ctx, namespace, rights); failed[i] != nil {
				stopped.Store(true)
			}
			return nil
		})
	}
	_ = group.Wait() // the functions return nil
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkNamespace is the check of [rightsCheck.checkNamespaces] in one namespace.
func (c *rightsCheck) checkNamespace(ctx context.Context, namespace string, rights []requiredRight) error {
	missing, err := c.missing(ctx, namespace, rights)
	if err != nil {
		return err
	}
	refused, err := c.withoutEscalation(ctx, namespace, missing, map[string]bool{})
	if err != nil {
		return err
	}
	return missingError(namespace, refused)
}

// checkEscalation replaces [rightsCheck.checkNamespace] if there are too many rights to check. It
// checks only whether the writer may escalate the Roles.
func (c *rightsCheck) checkEscalation(
	ctx context.Context,
	namespace string,
	rights []requiredRight,
	namespaces int,
) error {
	refused, err := c.withoutEscalation(ctx, namespace, rights, map[string]bool{})
	if err != nil {
		return err
	}
	if len(refused) > 0 {
		return errManyChecks(namespaces, c.limit)
	}
	return nil
}

// missingError returns an error that names the rights that the writer lacks in a namespace, or nil
// if the writer lacks none.
func missingError(namespace string, missing []requiredRight) error {
	var errs plugins.Errors
	for _, q := range missing {
		resource := q.resource
		if q.group != "" {
			resource += "." + q.group
		}
		if q.subresource != "" {
			resource += "/" + q.subresource
		}
		if q.name != "" {
			resource += " " + q.name
		}
		errs.Add(fmt.Errorf("%s: the caller may not %s %s in namespace %s", q.rules[0].path, q.verb, resource, namespace))
	}
	return errs.Err()
}

// missing returns the rights that the writer does not have in a namespace. If namespace is empty,
// it returns the rights that the writer does not have in the whole cluster.
func (c *rightsCheck) missing(ctx context.Context, namespace string, rights []requiredRight) ([]requiredRight, error) {
	allowed := make([]bool, len(rights))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelChecks)
	for i := range rights {
		group.Go(func() (err error) {
			allowed[i], err = c.hasRight(ctx, namespace, &rights[i].right)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var missing []requiredRight
	for i, q := range rights {
		if !allowed[i] {
			missing = append(missing, q)
		}
	}
	return missing, nil
}

// hasRight reports whether the writer has a right. For a right to every name, the request has a
// name that no rule lists. Neither a rule with names nor a rule for the name "" allows that
// request. In a namespace, the request for every Namespace object has the name of that namespace.
func (c *rightsCheck) hasRight(ctx context.Context, namespace string, r *right) (bool, error) {
	name := r.name
	switch {
	case r.anyName && namespace != "" && r.group == "" && r.resource == "namespaces":
		name = namespace // a Role grants rights to its own Namespace only
	case r.anyName:
		name = c.unguessableName
	}
	return c.authorize(ctx, &authorizer.AttributesRecord{
		User:            c.writer,
		Verb:            r.verb,
		ResourceRequest: true,
		APIGroup:        r.group,
		APIVersion:      "*",
		Resource:        r.resource,
		Subresource:     r.subresource,
		Namespace:       namespace,
		Name:            name,
	})
}

// withoutEscalation returns the rights of Roles that the writer may not escalate in a namespace, or
// in the whole cluster if namespace is empty. Each result refers to one rule of such a Role.
// escalates caches the decisions by the name of the Role.
func (c *rightsCheck) withoutEscalation(
	ctx context.Context, namespace string, rights []requiredRight, escalates map[string]bool,
) (refused []requiredRight, err error) {
	for _, q := range rights {
		for _, rule := range q.rules {
			may, known := escalates[rule.role]
			if !known {
				if may, err = c.mayEscalate(ctx, namespace, rule.role); err != nil {
					return nil, err
				}
				escalates[rule.role] = may
			}
			if !may {
				refused = append(refused, requiredRight{q.right, []ruleRef{rule}})
				break
			}
		}
	}
	return refused, nil
}

// mayEscalate reports whether the writer may escalate a Role.
func (c *rightsCheck) mayEscalate(ctx context.Context, namespace, role string) (bool, error) {
	return c.authorize(ctx, &authorizer.AttributesRecord{
		User:            c.writer,
		Verb:            "escalate",
		ResourceRequest: true,
		APIGroup:        rbacv1.GroupName,
		APIVersion:      "*",
		Resource:        "roles",
		Namespace:       namespace,
		Name:            role,
	})
}

// rolesIn returns the names of the Roles of rights, sorted and without duplicates.
func rolesIn(rights []requiredRight) (names []string) {
	for _, q := range rights {
		for _, rule := range q.rules {
			names = append(names, rule.role)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (c *rightsCheck) authorize(ctx context.Context, a *authorizer.AttributesRecord) (bool, error) {
	decision, _, err := c.authz.Authorize(ctx, a)
	if err != nil {
		return false, fmt.Errorf("spec.roles: cannot check now whether the caller has these rights: %w", err)
	}
	return decision == authorizer.DecisionAllow, nil
}

// sameTenant reports whether two versions of TenantMembers belong to the same Tenant object. If
// they do not, the Roles of the old version had no effect.
func sameTenant(old, current map[string]string) bool {
	return old[tenant.TenantUIDAnnotation] == current[tenant.TenantUIDAnnotation]
}
