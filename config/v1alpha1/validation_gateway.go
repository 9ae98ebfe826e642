// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubetenant/kubetenant/tenant"
)

// mostGoaways is the upper bound of goawayPerMillion. It equals the upper bound of --goaway-chance,
// 0.02 (k8s.io/apiserver pkg/server/options/server_run_options.go, v0.37.1).
const mostGoaways = 20_000

// mostConcurrent and mostQueued are the upper bounds of concurrent and queued. A kube-apiserver
// handles 600 requests at the same time by default (k8s.io/apiserver pkg/server/config.go, v0.37.1:
// MaxRequestsInFlight, MaxMutatingRequestsInFlight).
const (
	mostConcurrent = 10_000
	mostQueued     = 100_000
)

func defaultGateway(g *Gateway) {
	if g == nil {
		return
	}
	defaultValue(&g.Limits.BodyBytes, 16<<20)
	defaultDuration(&g.Limits.Timeout, time.Minute)
	defaultValue(&g.Limits.Concurrent, 200)
	defaultValue(&g.Limits.Queued, 1000)
	defaultValue(&g.Limits.GoawayPerMillion, 1000)
	defaultAudit(g.Audit)
	for i := range g.Clusters {
		c := &g.Clusters[i]
		defaultText(&c.Impersonator.Mode, ImpersonationLegacy)
		defaultText(&c.ServiceAccounts.Tokens, TokensDeny)
		defaultText(&c.Admission, GatewayAdmissionRequired)
		defaultText(&c.Namespace, "kubetenant-system")
		defaultText(&c.Identity.Unmapped, UnmappedKeep)
		defaultValue(&c.Identity.WithUser, true)
		defaultValue(&c.Identity.GroupPattern, `(?s).*`)
	}
}

func defaultAudit(a *GatewayAudit) {
	if a == nil {
		return
	}
	defaultText(&a.OnFailure, AuditFailureDeny)
	if a.LogPath != LogPathStdout {
		defaultValue(&a.MaxSizeMegabytes, 100)
		defaultValue(&a.MaxBackups, 10)
		defaultValue(&a.MaxAgeDays, 0)
	}
}

// paths returns pointers to the paths of the kubeconfigs and of the audit files in g. It omits
// "-", which selects standard output.
func (g *Gateway) paths() (all []*string) {
	if g == nil {
		return nil
	}
	for i := range g.Clusters {
		all = append(all, &g.Clusters[i].Reader.KubeConfigFile, &g.Clusters[i].Impersonator.KubeConfigFile)
	}
	if g.Audit != nil {
		all = append(all, &g.Audit.PolicyFile)
		if g.Audit.LogPath != LogPathStdout {
			all = append(all, &g.Audit.LogPath)
		}
	}
	return all
}

func validateGateway(g *Gateway, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(g.Clusters) == 0 {
		errs = append(errs, field.Required(path.Child("clusters"), "must list at least one cluster"))
	}
	names := sets.New[string]()
	root := false
	for i := range g.Clusters {
		c := &g.Clusters[i]
		p := path.Child("clusters").Index(i)
		switch {
		case len(validation.IsDNS1123Label(c.Name)) > 0:
			errs = append(errs, field.Invalid(p.Child("name"), c.Name, "must be a lower-case DNS label"))
		case names.Has(c.Name):
			errs = append(errs, field.Duplicate(p.Child("name"), c.Name))
		}
		names.Insert(c.Name)
		if c.Root && root {
			errs = append(errs, field.Duplicate(p.Child("root"), true))
		}
		root = root || c.Root
		errs = append(errs, c.validate(p)...)
	}
	errs = append(errs, validateObjectViews(g.Views.Objects, path.Child("views", "objects"))...)
	limits := path.Child("limits")
	if n := *g.Limits.BodyBytes; n < 1 {
		errs = append(errs, field.Invalid(limits.Child("bodyBytes"), n, "must be 1 or more"))
	}
	if g.Limits.Timeout.Duration <= 0 {
		errs = append(errs, field.Invalid(limits.Child("timeout"), g.Limits.Timeout.Duration.String(), "must be positive"))
	}
	for _, limit := range []struct {
		name        string
		n           int
		least, most int
	}{
		{"concurrent", *g.Limits.Concurrent, 1, mostConcurrent},
		{"queued", *g.Limits.Queued, 0, mostQueued},
		{"goawayPerMillion", *g.Limits.GoawayPerMillion, 0, mostGoaways},
	} {
		if limit.n < limit.least || limit.n > limit.most {
			errs = append(errs, field.Invalid(limits.Child(limit.name), limit.n,
				fmt.Sprintf("must be between %d and %d", limit.least, limit.most)))
		}
	}
	return append(errs, g.Audit.validate(path.Child("audit"))...)
}

// maxAuditSize is the upper bound of maxSizeMegabytes and maxTotalMegabytes: 1 TiB. Without a
// bound, the number of bytes could overflow.
const maxAuditSize = 1 << 20

// maxAuditDays is the upper bound of maxAgeDays: about a hundred years. Without a bound, the number
// of nanoseconds could overflow.
const maxAuditDays = 36_500

func (a *GatewayAudit) validate(path *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	errs := requireAll(path, map[string]string{"policyFile": a.PolicyFile, "logPath": a.LogPath})
	if !slices.Contains([]AuditFailure{AuditFailureDeny, AuditFailureIgnore}, a.OnFailure) {
		errs = append(errs,
			field.NotSupported(path.Child("onFailure"), a.OnFailure, []AuditFailure{AuditFailureDeny, AuditFailureIgnore}))
	}
	ranges := []numberRange{
		{"maxSizeMegabytes", a.MaxSizeMegabytes, 0, maxAuditSize},
		{"maxBackups", a.MaxBackups, 0, math.MaxInt32},
		{"maxAgeDays", a.MaxAgeDays, 0, maxAuditDays},
	}
	if a.LogPath != LogPathStdout {
		return append(errs, validateRanges(path, ranges...)...)
	}
	for _, r := range ranges {
		if r.n != nil {
			errs = append(errs, field.Invalid(path.Child(r.name), *r.n, "must be unset if logPath is \"-\""))
		}
	}
	return errs
}

// numberRange is the value of a field and its valid range. A nil value is valid.
type numberRange struct {
	name        string
	n           *int
	least, most int
}

func validateRanges(path *field.Path, all ...numberRange) (errs field.ErrorList) {
	for _, r := range all {
		if r.n != nil && (*r.n < r.least || *r.n > r.most) {
			errs = append(errs, field.Invalid(path.Child(r.name), *r.n,
				fmt.Sprintf("must be between %d and %d", r.least, r.most)))
		}
	}
	return errs
}

// requireAll returns an error for each empty value. The keys of values are field names.
func requireAll(path *field.Path, values map[string]string) (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if values[name] == "" {
			errs = append(errs, field.Required(path.Child(name), ""))
		}
	}
	return errs
}

func (c *GatewayCluster) validate(path *field.Path) field.ErrorList {
	errs := validateMayUse(c.Tenants, path.Child("tenants"))
	errs = append(errs, requireAll(path.Child("reader"), map[string]string{"kubeConfigFile": c.Reader.KubeConfigFile})...)
	errs = append(errs,
		requireAll(path.Child("impersonator"), map[string]string{"kubeConfigFile": c.Impersonator.KubeConfigFile})...)
	errs = append(errs,
		oneOfThese(path.Child("impersonator", "mode"), c.Impersonator.Mode, ImpersonationLegacy, ImpersonationConstrained)...)
	errs = append(errs,
		oneOfThese(path.Child("admission"), c.Admission, GatewayAdmissionRequired, GatewayAdmissionUnchecked)...)
	accounts := path.Child("serviceAccounts")
	errs = append(errs, oneOfThese(accounts.Child("tokens"), c.ServiceAccounts.Tokens, TokensDeny, TokensPass)...)
	if len(c.ServiceAccounts.Issuers) == 0 && c.ServiceAccounts.Tokens == TokensPass {
		errs = append(errs, field.Required(accounts.Child("issuers"),
			"must be set if tokens is Pass: only tokens of these issuers are sent to the cluster"))
	}
	for i, issuer := range c.ServiceAccounts.Issuers {
		if issuer == "" {
			errs = append(errs, field.Required(accounts.Child("issuers").Index(i), ""))
		}
	}
	if len(validation.IsDNS1123Label(c.Namespace)) > 0 {
		errs = append(errs, field.Invalid(path.Child("namespace"), c.Namespace, "must be the name of a namespace"))
	}
	errs = append(errs, metav1validation.ValidateLabels(c.Labels, path.Child("labels"))...)
	errs = append(errs, validateTenantMap(c.TenantMap, path.Child("tenantMap"))...)
	errs = append(errs, c.Identity.validate(path.Child("identity"))...)
	return append(errs, c.validateNamesakes(path.Child("identity", "users"))...)
}

func validateMayUse(names []string, path *field.Path) field.ErrorList {
	if len(names) == 0 {
		return field.ErrorList{field.Required(path, `must list tenant names, or "*" for every tenant except system`)}
	}
	var errs field.ErrorList
	for i, name := range names {
		if _, err := tenant.ParseSet([]string{name}); err != nil {
			errs = append(errs, field.Invalid(path.Index(i), name, `must be a tenant name or "*"`))
		}
	}
	return errs
}

func oneOfThese[T ~string](path *field.Path, is T, all ...T) field.ErrorList {
	if slices.Contains(all, is) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, is, all)}
}

// validateTenantMap checks that all names are valid and not system, and that no two tenants have
// the same name in the cluster.
func validateTenantMap(m map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := sets.New[string]()
	for _, from := range slices.Sorted(maps.Keys(m)) {
		to := m[from]
		for _, name := range []string{from, to} {
			if id, err := tenant.Parse(name); err != nil || id.IsSystem() {
				errs = append(errs, field.Invalid(path.Key(from), name, "must be the name of a tenant other than system"))
			}
		}
		if taken.Has(to) {
			errs = append(errs, field.Duplicate(path.Key(from), to))
		}
		taken.Insert(to)
	}
	return errs
}

func (i *GatewayIdentity) validate(path *field.Path) field.ErrorList {
	errs := oneOfThese(path.Child("unmapped"), i.Unmapped, UnmappedKeep, UnmappedDeny)
	if _, err := regexp.Compile(*i.GroupPattern); err != nil {
		errs = append(errs, field.Invalid(path.Child("groupPattern"), *i.GroupPattern, err.Error()))
	}
	if strings.HasPrefix(i.DefaultUser, "system:") || i.DefaultUser != "" && !tenant.IsWellFormed(i.DefaultUser) {
		errs = append(errs,
			field.Invalid(path.Child("defaultUser"), i.DefaultUser,
				"must be a valid user name that does not begin with system:"))
	}
	if !*i.WithUser && i.DefaultUser == "" {
		errs = append(errs, field.Required(path.Child("defaultUser"), "must be set if withUser is false"))
	}
	for _, p := range []struct {
		name, is string
		not      []string
	}{
		{"usernamePrefix", i.UsernamePrefix, []string{"system:"}},
		{"groupsPrefix", i.GroupsPrefix, []string{"system:", tenant.GroupPrefix}},
	} {
		// A prefix of "system:" is invalid too. With the prefix "sys", a group "tem:masters"
		// would become "system:masters".
		if slices.ContainsFunc(p.not, func(not string) bool {
			return p.is != "" && (strings.HasPrefix(p.is, not) || strings.HasPrefix(not, p.is))
		}) {
			errs = append(errs, field.Invalid(path.Child(p.name), p.is, "would produce names that are reserved for the cluster"))
		}
	}
	for n, key := range i.Extras {
		domain, _, qualified := strings.Cut(key, "/")
		if !qualified || key != strings.ToLower(key) || len(validation.IsQualifiedName(key)) > 0 ||
			tenant.IsReservedExtraKey(key) || domain == tenant.Domain {
			errs = append(errs, field.Invalid(path.Child("extras").Index(n), key,
				"must be a lower-case key with a domain, except keys that only a server may set"))
		}
	}
	return append(errs, i.validateUsers(path.Child("users"))...)
}

// validateNamesakes rejects the names of mapped users that an unmapped caller could also have.
// Callers of the system tenant are never mapped.
func (c *GatewayCluster) validateNamesakes(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	system := slices.Contains(c.Tenants, tenant.System().String())
	for n, u := range c.Identity.Users {
		if !strings.HasPrefix(u.As, c.Identity.UsernamePrefix) {
			continue
		}
		switch {
		case c.Identity.Unmapped == UnmappedKeep:
			errs = append(errs, field.Invalid(path.Index(n).Child("as"), u.As,
				"an unmapped caller could have this name: set unmapped to Deny, "+
					"or use a usernamePrefix that the name does not begin with"))
		case system:
			errs = append(errs, field.Invalid(path.Index(n).Child("as"), u.As,
				"a caller of the system tenant could have this name: "+
					"use a usernamePrefix that the name does not begin with"))
		}
	}
	return errs
}

// validateUsers checks that each entry has a tenant other than system, a user name and a valid name
// in the cluster. It rejects two entries for the same user.
func (i *GatewayIdentity) validateUsers(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[GatewayUser]bool{}
	for n, u := range i.Users {
		p := path.Index(n)
		if id, err := tenant.Parse(u.Tenant); err != nil {
			errs = append(errs, field.Invalid(p.Child("tenant"), u.Tenant, "must be a tenant name"))
		} else if id.IsSystem() {
			errs = append(errs, field.Invalid(p.Child("tenant"), u.Tenant,
				"may not be system, because callers of the system tenant keep their names"))
		}
		if u.User == "" {
			errs = append(errs, field.Required(p.Child("user"), ""))
		}
		key := GatewayUser{Tenant: u.Tenant, User: u.User}
		if seen[key] {
			errs = append(errs, field.Duplicate(p, u.Tenant+"/"+u.User))
		}
		seen[key] = true
		if !tenant.IsWellFormed(u.As) || u.As == "" || strings.HasPrefix(u.As, "system:") {
			errs = append(errs, field.Invalid(p.Child("as"), u.As, "must be a valid user name that does not begin with system:"))
		}
	}
	if len(i.Users) > 0 && !*i.WithUser {
		errs = append(errs, field.Forbidden(path,
			"may not be set if withUser is false, because every caller is then the defaultUser"))
	}
	return errs
}

// validateGatewaySources rejects frontProxy sources, because a gateway does not trust the headers
// of a proxy.
func validateGatewaySources(sources []Source, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range sources {
		if sources[i].FrontProxy != nil {
			errs = append(errs, field.Forbidden(path.Index(i).Child("frontProxy"),
				"a gateway does not trust the headers of a proxy"))
		}
	}
	return errs
}
