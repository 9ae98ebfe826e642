package rolebinding

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// mostQuestions bounds the calls of the authorizer for the rules of one write of TenantMembers. The
	// webhook service sends each call to kube-apiserver.
	mostQuestions = 2000
	// parallelQuestions is the number of namespaces that are checked at the same time, and of
	// questions about one of them.
	parallelQuestions = 4
	// reservedRoles begins names of Roles that a tenant may not define.
	reservedRoles = "kubetenant:"
)

var (
	errRoleName = errors.New("must not begin with " + reservedRoles + ", which is reserved for the server")
	errRule     = errors.New("must have at least one verb, API group and resource, and no nonResourceURLs")
	errManyAsks = fmt.Errorf("spec.roles: adds more than %d combinations of verb, API group, resource and name: "+
		"add the rules in several updates", mostQuestions)
	errManySpaces = fmt.Errorf("spec.roles: the rules and the namespaces of the tenant need more than %d checks. "+
		"Add fewer rules at once, or let a caller write them that has these rights in the whole cluster",
		mostQuestions)
	errNoSpace = errors.New("spec.roles: the tenant has no namespace in which the caller could have these rights: " +
		"create a namespace first")
	errSpaces = errors.New("spec.roles: the namespaces of the tenant are not known")
)

// DefinedRole is a Role that TenantMembers define. Path is its field.
type DefinedRole struct {
	Path, Name string
	Rules      []rbacv1.PolicyRule
}

// CheckRole returns what is wrong with a Role, or nil if a tenant may define one of this form. A Role
// without rules has no rights.
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

// question is one right that a rule gives. role and path are where the rule is.
type question struct {
	right
	role, path string
}

// right is the smallest part of a rule. Each part is literal: only a rule with "*" gives a right with
// "*". If anyName is set, the right applies to every name.
type right struct {
	verb, group, resource, subresource, name string
	anyName                                  bool
}

// checkDefined requires that the writer has each rule that it adds to a Role. kube-apiserver requires
// the same for a Role. The writer has the rule in the whole cluster, or in every namespace of the
// tenant. The right to escalate the Role there suffices.
func (p *plugin) checkDefined(ctx context.Context, writer user.Info, was, is *Spread) error {
	var refused plugins.Refusals
	for i := range is.Defined {
		refused.Add(CheckRole(&is.Defined[i]))
	}
	if err := refused.Err(); err != nil {
		return err
	}
	asked, err := added(was, is)
	if err != nil || len(asked) == 0 {
		return err
	}
	c := rightsCheck{may: p.Authorizer, writer: writer, unguessed: strings.ToLower(rand.Text())}
	missing, err := c.missing(ctx, "", asked)
	if err != nil || len(missing) == 0 {
		return err
	}
	if escalates, err := c.escalates(ctx, "", missing); err != nil || escalates {
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

// added returns the rights of the rules that an update adds. A rule that a Role of the same name had
// is not added.
func added(was, is *Spread) ([]question, error) {
	var all []question
	known := map[right]bool{}
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
				if known[of] {
					continue
				}
				if known[of] = true; len(all) == mostQuestions {
					return nil, errManyAsks
				}
				all = append(all, question{right: of, role: role.Name, path: fmt.Sprintf("%s.rules[%d]", role.Path, i)})
			}
		}
	}
	return all, nil
}

// rightsOf yields the rights that a rule gives.
func rightsOf(rule *rbacv1.PolicyRule) func(yield func(right) bool) {
	return func(yield func(right) bool) {
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				for _, full := range rule.Resources {
					resource, subresource, _ := strings.Cut(full, "/")
					of := right{
						verb:        verb,
						group:       group,
						resource:    resource,
						subresource: subresource,
					}
					names := rule.ResourceNames
					if len(names) == 0 {
						of.anyName, names = true, []string{""}
					}
					for _, of.name = range names {
						if !yield(of) {
							return
						}
					}
				}
			}
		}
	}
}

// rightsCheck calls the server's authorizer for the rights of a writer.
type rightsCheck struct {
	may    authorizer.Authorizer
	writer user.Info
	// unguessed is a random name that no rule has.
	unguessed string
}

// inEach returns an error unless the writer has the rights in each namespace, or may escalate the
// Roles there.
func (c *rightsCheck) inEach(ctx context.Context, namespaces []string, asked []question) error {
	if len(rolesIn(asked))*len(namespaces) > mostQuestions {
		return errManySpaces
	}
	in := c.in
	if len(asked)*len(namespaces) > mostQuestions {
		in = c.inByEscalation
	}
	failed := make([]error, len(namespaces))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelQuestions)
	for i, namespace := range namespaces {
		group.Go(func() error {
			failed[i] = in(ctx, namespace, asked)
			return nil
		})
	}
	_ = group.Wait() // no function fails
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// in is [rightsCheck.inEach] for one namespace.
func (c *rightsCheck) in(ctx context.Context, namespace string, asked []question) error {
	missing, err := c.missing(ctx, namespace, asked)
	if err != nil || len(missing) == 0 {
		return err
	}
	if escalates, err := c.escalates(ctx, namespace, missing); err != nil || escalates {
		return err
	}
	return lacks(namespace, missing)
}

// inByEscalation is [rightsCheck.in] for rights that are too many to check. It checks only the right to
// escalate the Roles.
func (c *rightsCheck) inByEscalation(ctx context.Context, namespace string, asked []question) error {
	if escalates, err := c.escalates(ctx, namespace, asked); err != nil || escalates {
		return err
	}
	return errManySpaces
}

// lacks returns an error that names the rights that the writer lacks in a namespace.
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
		refused.Add(fmt.Errorf("%s: the caller may not %s %s in namespace %s", q.path, q.verb, resource, namespace))
	}
	return refused.Err()
}

// missing returns the rights that the writer does not have in a namespace, or in the whole cluster if
// namespace is empty.
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

// has reports whether the writer has a right. For a right to every name, it checks a name that no rule
// can have. A rule for some names does not allow that request, not even one for the name "".
func (c *rightsCheck) has(ctx context.Context, namespace string, of *right) (bool, error) {
	name := of.name
	switch {
	case !of.anyName:
	case namespace != "" && of.group == "" && of.resource == "namespaces":
		name = namespace // a Role gives rights to no other Namespace
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

// escalates reports whether the writer may escalate the Roles of rights in a namespace, or in the
// whole cluster if namespace is empty.
func (c *rightsCheck) escalates(ctx context.Context, namespace string, of []question) (bool, error) {
	for _, role := range rolesIn(of) {
		allowed, err := c.asks(ctx, &authorizer.AttributesRecord{
			User:            c.writer,
			Verb:            "escalate",
			ResourceRequest: true,
			APIGroup:        rbacv1.GroupName,
			APIVersion:      "*",
			Resource:        "roles",
			Namespace:       namespace,
			Name:            role,
		})
		if err != nil || !allowed {
			return false, err
		}
	}
	return true, nil
}

// rolesIn returns the names of the Roles of rights.
func rolesIn(of []question) (names []string) {
	for _, q := range of {
		names = append(names, q.role)
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

// sameTenant reports whether two versions of TenantMembers were written for the same Tenant. The
// Roles of an earlier tenant were not in force.
func sameTenant(was, is map[string]string) bool {
	return was[tenant.TenantUIDAnnotation] == is[tenant.TenantUIDAnnotation]
}
