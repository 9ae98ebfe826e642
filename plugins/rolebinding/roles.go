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
	// mostQuestions is the maximum number of rights that one write of TenantMembers may add. It is
	// also the maximum number of checks in all namespaces together. A check calls the authorizer,
	// and the webhook service sends it to kube-apiserver.
	mostQuestions = 2000
	// mostOfTenant is mostQuestions for a tenant's caller, which could repeat its writes in a loop.
	// It suffices to add 5 verbs for 5 resources in 20 namespaces.
	mostOfTenant = 500
	// parallelQuestions is the number of namespaces that are checked in parallel, and the number of
	// parallel checks in one of them.
	parallelQuestions = 4
	// reservedRoles is the prefix of the names of Roles that a tenant may not define.
	reservedRoles = "kubetenant:"
)

var (
	errRoleName = errors.New("must not begin with " + reservedRoles + ", which is reserved for the server")
	errRule     = errors.New("must have at least one verb, API group and resource, and no nonResourceURLs")
	errNoSpace  = errors.New("spec.roles: the tenant has no namespace in which the caller could have these rights: " +
		"create a namespace first")
	errSpaces = errors.New("spec.roles: the namespaces of the tenant are not known")
)

// errManyRights returns the error for a write that adds too many rights.
func errManyRights(most int) error {
	return fmt.Errorf("spec.roles: adds more than %d combinations of verb, API group, resource and name: "+
		"add the rules in several updates", most)
}

// errManyChecks returns the error for a write that adds too many rights for the number of
// namespaces.
func errManyChecks(namespaces, most int) error {
	if namespaces > most {
		return fmt.Errorf("spec.roles: the tenant has more than %d namespaces: let a caller with these rights in "+
			"the whole cluster write the rules", most)
	}
	return fmt.Errorf("spec.roles: the added rules need more than %d checks in %d namespaces. In one update, add at most "+
		"%d combinations of verb, API group, resource and name, to at most %[3]d Roles. Or let a caller with these rights "+
		"in the whole cluster write the rules", most, namespaces, most/namespaces)
}

// DefinedRole is a Role that TenantMembers define. Path is the path of its field.
type DefinedRole struct {
	Path, Name string
	Rules      []rbacv1.PolicyRule
}

// CheckRole returns an error if a tenant may not define a Role of this form. A Role without rules
// is valid.
func CheckRole(role *DefinedRole) error {
	var refused plugins.Refusals
	if strings.HasPrefix(role.Name, reservedRoles) {
		refused.Add(fmt.Errorf("%s.name: %w", role.Path, errRoleName))
	}
	for i := range role.Rules {
		r := &role.Rules[i]
		if len(r.Verbs) == 0 || len(r.APIGroups) == 0 || len(r.Resources) == 0 || len(r.NonResourceURLs) > 0 {
			refused.Add(fmt.Errorf("%s.rules[%d]: %w", role.Path, i, errRule))
		}
	}
	return refused.Err()
}

// question is a right, and the rules that grant it.
type question struct {
	right
	at []place
}

// place is a rule of a Role. path is the path of its field.
type place struct {
	role, path string
}

// right is the smallest part of a rule. Its fields are literal, so only a rule with "*" grants a
// right with "*". If anyName is set, the right applies to every name.
type right struct {
	verb, group, resource, subresource, name string
	anyName                                  bool
}

// checkDefined returns an error unless the writer has each rule that it adds to a Role.
// kube-apiserver requires the same for a Role. The writer must have the rule in the whole cluster
// or in every namespace of the tenant. The permission to escalate the Role there suffices.
func (p *plugin) checkDefined(ctx context.Context, writer user.Info, was, is *Spread) error {
	var refused plugins.Refusals
	for i := range is.Defined {
		refused.Add(CheckRole(&is.Defined[i]))
	}
	if err := refused.Err(); err != nil {
		return err
	}
	c := rightsCheck{
		may:       p.Authorizer,
		writer:    writer,
		most:      mostOfTenant,
		unguessed: plugins.UnguessedName(),
	}
	if p.Subject.IsSystem(ctx, writer) {
		c.most = mostQuestions
	}
	asked, err := added(was, is, c.most)
	if err != nil {
		return err
	}
	missing, err := c.notInCluster(ctx, asked)
	if err != nil || len(missing) == 0 {
		return err
	}
	if p.Namespaces == nil {
		return errSpaces
	}
	namespaces, err := p.Namespaces(is.Tenant)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errSpaces, err)
	case len(namespaces) == 0:
		return errNoSpace
	}
	return c.inEach(ctx, namespaces, missing)
}

// added returns the rights of the rules that an update adds, without duplicates. A rule is not
// added if a Role with the same name already had it.
func added(was, is *Spread, most int) ([]question, error) {
	var all []question
	known := map[right]int{} // the index in all
	for _, role := range is.Defined {
		var before []rbacv1.PolicyRule
		if i := slices.IndexFunc(was.Defined, func(r DefinedRole) bool { return r.Name == role.Name }); i >= 0 {
			before = was.Defined[i].Rules
		}
		for i, rule := range role.Rules {
			if slices.ContainsFunc(before, func(r rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(r, rule) }) {
				continue
			}
			for of := range rightsOf(&rule) {
				k, has := known[of]
				if !has {
					if len(all) == most {
						return nil, errManyRights(most)
					}
					k = len(all)
					known[of], all = k, append(all, question{right: of})
				}
				at := place{role: role.Name, path: fmt.Sprintf("%s.rules[%d]", role.Path, i)}
				if n := len(all[k].at); n == 0 || all[k].at[n-1].role != role.Name {
					all[k].at = append(all[k].at, at)
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
				for _, full := range resources {
					resource, subresource, _ := strings.Cut(full, "/")
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

// rightsCheck calls the server's authorizer for the rights of a writer.
type rightsCheck struct {
	may    authorizer.Authorizer
	writer user.Info
	// most is the maximum number of checks in all namespaces.
	most int
	// unguessed is a random name that no rule lists.
	unguessed string
}

// notInCluster returns the rights that the server must check in each namespace. It stops when the
// writer lacks a right in the whole cluster, and returns the remaining rights unchecked.
func (c *rightsCheck) notInCluster(ctx context.Context, asked []question) ([]question, error) {
	escalates := map[string]bool{}
	for from := 0; from < len(asked); from += parallelQuestions {
		to := min(from+parallelQuestions, len(asked))
		missing, err := c.missing(ctx, "", asked[from:to])
		if err != nil {
			return nil, err
		}
		switch refused, err := c.notEscalated(ctx, "", missing, escalates); {
		case err != nil:
			return nil, err
		case len(refused) > 0:
			return slices.Concat(missing, asked[to:]), nil
		}
	}
	return nil, nil
}

// inEach returns an error unless the writer has the rights, or may escalate the Roles, in each
// namespace. After the first failure, it starts no check of another namespace.
func (c *rightsCheck) inEach(ctx context.Context, namespaces []string, asked []question) error {
	if len(rolesIn(asked))*len(namespaces) > c.most {
		return errManyChecks(len(namespaces), c.most)
	}
	in := c.in
	if len(asked)*len(namespaces) > c.most {
		in = func(ctx context.Context, namespace string, asked []question) error {
			return c.inByEscalation(ctx, namespace, asked, len(namespaces))
		}
	}
	failed := make([]error, len(namespaces))
	var stopped atomic.Bool
	var group errgroup.Group
	group.SetLimit(parallelQuestions)
	for i, namespace := range namespaces {
		if stopped.Load() {
			break
		}
		group.Go(func() error {
			if failed[i] = in(ctx, namespace, asked); failed[i] != nil {
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

// in does the check of [rightsCheck.inEach] in one namespace.
func (c *rightsCheck) in(ctx context.Context, namespace string, asked []question) error {
	missing, err := c.missing(ctx, namespace, asked)
	if err != nil {
		return err
	}
	refused, err := c.notEscalated(ctx, namespace, missing, map[string]bool{})
	if err != nil {
		return err
	}
	return lacks(namespace, refused)
}

// inByEscalation replaces [rightsCheck.in] if there are too many rights to check. It checks only
// whether the writer may escalate the Roles.
func (c *rightsCheck) inByEscalation(ctx context.Context, namespace string, asked []question, namespaces int) error {
	refused, err := c.notEscalated(ctx, namespace, asked, map[string]bool{})
	if err != nil {
		return err
	}
	if len(refused) > 0 {
		return errManyChecks(namespaces, c.most)
	}
	return nil
}

// lacks returns an error that names the rights that the writer lacks in a namespace, or nil if
// there are none.
func lacks(namespace string, missing []question) error {
	var refused plugins.Refusals
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
		refused.Add(fmt.Errorf("%s: the caller may not %s %s in namespace %s", q.at[0].path, q.verb, resource, namespace))
	}
	return refused.Err()
}

// missing returns the rights that the writer does not have in a namespace. If namespace is empty,
// it returns the rights that the writer does not have in the whole cluster.
func (c *rightsCheck) missing(ctx context.Context, namespace string, asked []question) ([]question, error) {
	allowed := make([]bool, len(asked))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelQuestions)
	for i := range asked {
		group.Go(func() (err error) {
			allowed[i], err = c.has(ctx, namespace, &asked[i].right)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var missing []question
	for i, q := range asked {
		if !allowed[i] {
			missing = append(missing, q)
		}
	}
	return missing, nil
}

// has reports whether the writer has a right. For a right to every name, it sends a name that no
// rule lists. A rule with names does not allow that request, and neither does a rule for the name
// "".
func (c *rightsCheck) has(ctx context.Context, namespace string, of *right) (bool, error) {
	name := of.name
	switch {
	case !of.anyName:
	case namespace != "" && of.group == "" && of.resource == "namespaces":
		name = namespace // a Role grants rights to its own Namespace only
	default:
		name = c.unguessed
	}
	return c.asks(ctx, &authorizer.AttributesRecord{
		User:            c.writer,
		Verb:            of.verb,
		ResourceRequest: true,
		APIGroup:        of.group,
		APIVersion:      "*",
		Resource:        of.resource,
		Subresource:     of.subresource,
		Namespace:       namespace,
		Name:            name,
	})
}

// notEscalated returns the rights of Roles that the writer may not escalate in a namespace, or in
// the whole cluster if namespace is empty. Each result has one such Role. escalates caches the
// decisions by Role.
func (c *rightsCheck) notEscalated(
	ctx context.Context, namespace string, of []question, escalates map[string]bool,
) (refused []question, err error) {
	for _, q := range of {
		for _, at := range q.at {
			may, known := escalates[at.role]
			if !known {
				if may, err = c.escalates(ctx, namespace, at.role); err != nil {
					return nil, err
				}
				escalates[at.role] = may
			}
			if !may {
				refused = append(refused, question{q.right, []place{at}})
				break
			}
		}
	}
	return refused, nil
}

// escalates reports whether the writer may escalate a Role.
func (c *rightsCheck) escalates(ctx context.Context, namespace, role string) (bool, error) {
	return c.asks(ctx, &authorizer.AttributesRecord{
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
func rolesIn(of []question) (names []string) {
	for _, q := range of {
		for _, at := range q.at {
			names = append(names, at.role)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (c *rightsCheck) asks(ctx context.Context, a *authorizer.AttributesRecord) (bool, error) {
	decision, _, err := c.may.Authorize(ctx, a)
	if err != nil {
		return false, fmt.Errorf("spec.roles: cannot check now whether the caller has these rights: %w", err)
	}
	return decision == authorizer.DecisionAllow, nil
}

// sameTenant reports whether two versions of TenantMembers belong to the same Tenant object. The
// Roles of an earlier Tenant had no effect.
func sameTenant(was, is map[string]string) bool {
	return was[tenant.TenantUIDAnnotation] == is[tenant.TenantUIDAnnotation]
}
