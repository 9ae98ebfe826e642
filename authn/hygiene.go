package authn

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

// Why hygiene refuses an identity; to be tested with [errors.Is]. Beside these it returns the
// errors of [tenant.Of].
var (
	ErrNotMinted     = errors.New("tenant that the source may not mint")
	ErrReservedUser  = errors.New("reserved user name")
	ErrReservedGroup = errors.New("reserved group")
	ErrReservedExtra = errors.New("reserved extra key")
	ErrNameless      = errors.New("no user name")
)

// Hygiene is what the identities of one source are held to. The zero value refuses everything,
// since it may mint no tenant.
type Hygiene struct {
	// Source is the configured name: in the extra tenant.SourceKey, in errors and audit events.
	Source string
	// Tenants that the source may mint.
	Tenants tenant.Set
	// UsernamePrefix and GroupsPrefix are put before names, once, before the names are judged.
	UsernamePrefix, GroupsPrefix string
	// Reserved are the names that only the system tenant's callers may bear.
	Reserved *tenant.SystemNames
	// QualifyNames makes alice of tenant a "a:alice" and her groups "a:<group>".
	QualifyNames bool
}

// Check refuses a tenant that the source may not mint, and names that are reserved for a caller
// of that tenant, before prefixes are put to them. File sources call it at load, so that a file
// holds nothing that would be refused later.
func (h *Hygiene) Check(name string, groups []string, id tenant.ID) error {
	switch {
	case !h.Tenants.Has(id):
		return ErrNotMinted
	case name == "":
		return ErrNameless
	}
	qualifier := h.qualifier(id)
	if name = h.UsernamePrefix + name; tenant.IsServiceAccountName(name) ||
		!id.IsSystem() && (h.Reserved.ReservedUser(name) || h.Reserved.ReservedUser(qualifier+name)) {
		return ErrReservedUser
	}
	for _, group := range groups {
		group = h.GroupsPrefix + group
		if tenant.IsServiceAccountName(group) || strings.HasPrefix(group, tenant.GroupPrefix) ||
			!id.IsSystem() && (h.Reserved.ReservedGroup(group) || h.Reserved.ReservedGroup(qualifier+group)) {
			return ErrReservedGroup
		}
	}
	return nil
}

// qualifier is what names of tenant id begin with when they leave the chain. A tenant "kubeadm" could
// make "kubeadm:cluster-admins" of a harmless group, so names are judged with it too.
func (h *Hygiene) qualifier(id tenant.ID) string {
	if !h.QualifyNames || id.IsSystem() {
		return ""
	}
	return id.String() + ":"
}

// refusal is an error that names the source that claimed the credential.
type refusal struct {
	source string
	err    error
}

func (r *refusal) Error() string { return fmt.Sprintf("source %q: %v", r.source, r.err) }
func (r *refusal) Unwrap() error { return r.err }

func refusalIn(err error) *refusal {
	var r *refusal
	errors.As(err, &r)
	return r
}

// apply takes the three results of the source's authenticator and returns them cleaned.
func (h *Hygiene) apply(resp *authenticator.Response, ok bool, err error) (*authenticator.Response, bool, error) {
	if err != nil {
		return nil, false, &refusal{h.Source, err}
	}
	if !ok {
		return nil, false, nil
	}
	clean, err := h.clean(resp.User)
	if err != nil {
		return nil, false, &refusal{h.Source, err}
	}
	return &authenticator.Response{User: clean, Audiences: resp.Audiences}, true, nil
}

// clean returns the identity that leaves the chain, or why none does.
func (h *Hygiene) clean(u user.Info) (user.Info, error) {
	id, err := tenant.Of(u)
	if err != nil {
		return nil, err
	}
	if err := h.Check(u.GetName(), u.GetGroups(), id); err != nil {
		return nil, err
	}
	extra := maps.Clone(u.GetExtra())
	for key := range extra {
		if isOwnKey(key) && key != tenant.ExtraKey && key != tenant.SourceKey {
			return nil, ErrReservedExtra
		}
	}
	extra[tenant.SourceKey] = []string{h.Source}

	qualifier := h.qualifier(id)
	groups := make([]string, 0, len(u.GetGroups())+2)
	for _, group := range u.GetGroups() {
		groups = append(groups, qualifier+h.GroupsPrefix+group)
	}
	return &user.DefaultInfo{
		Name:   qualifier + h.UsernamePrefix + u.GetName(),
		UID:    u.GetUID(),
		Groups: append(groups, id.Group(), user.AllAuthenticated),
		Extra:  extra,
	}, nil
}

// isOwnKey reports whether an extra key is of our domain, in any spelling of case.
func isOwnKey(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && strings.EqualFold(domain, tenant.Domain)
}

// cleanBuiltIn refuses identities of the server's own chain that speak with our words: no
// credential that we did not check may name a tenant.
func cleanBuiltIn(next authenticator.Request) authenticator.Request {
	const source = "built-in"
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		resp, ok, err := next.AuthenticateRequest(req)
		if err != nil || !ok {
			return resp, ok, err
		}
		for _, group := range resp.User.GetGroups() {
			if strings.HasPrefix(group, tenant.GroupPrefix) {
				return nil, false, &refusal{source, ErrReservedGroup}
			}
		}
		for key := range resp.User.GetExtra() {
			if isOwnKey(key) {
				return nil, false, &refusal{source, ErrReservedExtra}
			}
		}
		return resp, ok, nil
	})
}
