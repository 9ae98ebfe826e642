// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"slices"
	"strings"
)

// This file contains a model of the boundary for TestModel. The model implements the table of
// docs/authorization.md row by row, with maps and loops. It knows the whole cluster, shares no code
// with the boundary, uses strings for names, and is slow.

// modelCluster is a generated cluster and a configuration.
type modelCluster struct {
	namespaces map[string]modelNamespace
	scopes     map[string]string // the scope of a group/resource: "namespaced" or "cluster"

	systemUsers, systemPrefixes, systemGroups, organizations map[string]bool
	systemNamespaces, paths, shared, selectable, unlabeled   map[string]bool
	unboundObjects                                           map[[5]string]bool // verb, namespace, name, group, resource
	revoked                                                  map[string]bool    // user names
	// The tenant that an object describes, keyed by group/resource/name.
	objects map[string]string
	// Resources (group/resource) whose objects can have any name. Lists of these objects are
	// limited by spec.tenant.
	freelyNamed map[string]bool
	// Resources (group/resource) in which a tenant may write the objects that describe the
	// tenant.
	writable map[string]bool
	// The access level of each tenant: "unknown", "none", "closed" or "reads". Any other value
	// means open.
	access map[string]string

	fromGroups, serviceAccountsInTenantGroup, qualified, prefixesReserved, rulesReviewsBypassBoundary, shadow, stale bool

	grants      []modelGrant
	policyLines []modelLine
}

// modelNamespace is the state of a namespace in the cache and on the server.
type modelNamespace struct {
	cached, live modelState
}

type modelState struct {
	exists, terminating, lookupFails, labeled bool
	label                                     string
}

type modelGrant struct {
	namespace, owner, tenant                   string
	users, groups                              []string
	verbs, apiGroups, resources, resourceNames []string
	expired, deleted                           bool // only the index still contains a deleted grant
}

type modelLine struct {
	tenant, owner, user, group          string // tenant and owner: a name or "*"
	readonly                            bool
	apiGroup, resource, namespace, path string
}

type modelUser struct {
	name   string
	groups []string
	extra  map[string][]string
}

// modelRequest is a request to the boundary.
type modelRequest struct {
	user, impersonator *modelUser // impersonator: the authenticated user if user is impersonated
	throughFilters     bool       // false for a review
	selfReview         bool       // the request of a SelfSubjectAccessReview
	path               string     // the tenant that the path names, or "all"

	isResource                                                        bool
	verb, group, version, resource, subresource, namespace, name, url string

	selector          []modelRequirement
	badSelector       bool   // the label selector does not parse
	duplicateSelector bool   // the label selector occurs twice
	fields            string // the field selector
	announced         string // the tenant whose announced grants fields selects, otherwise ""
}

type modelRequirement struct {
	key, operator string
	values        []string
}

// modelDecision is the decision of the model. The zero value is a denial.
type modelDecision struct {
	delegated, allowed bool
	by                 string // "grant", "announced" or "abac"
	impersonated       bool
	tenant             string // the tenant to which an impersonated user is bound
	group              string // the group that the boundary adds to the user
	limitedTo, object  string // set for limited lists
	fields             string // the field selector of a list of objects that describe the tenant
	namespace          string // the namespace that the delegate gets
	deniedInShadowMode bool   // denied in shadow mode too
}

func (q *modelRequest) kind() string { return q.group + "/" + q.resource }

func isModelTenant(name string) bool {
	if name == "" || len(name) > 63 {
		return false
	}
	for i, c := range name {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		inner := i > 0 && i < len(name)-1
		if !letter && (!inner || c != '-' && c != '_' && c != '.') {
			return false
		}
	}
	switch strings.ToLower(name) {
	case "all", "tenant":
		return false
	case "system":
		return name == "system"
	}
	return true
}

// lookUp finds a namespace in the cache. If the namespace is missing or terminating in the cache,
// lookUp finds it on the server.
func (w *modelCluster) lookUp(name string) modelState {
	n := w.namespaces[name]
	switch {
	case n.cached.lookupFails:
		return n.cached
	case n.cached.exists && !n.cached.terminating:
		return n.cached
	case name == "":
		return modelState{}
	}
	return n.live
}

// owner returns the name of the tenant that owns a namespace, or "" if the namespace is unowned. It
// returns false if the owner is unknown.
func (w *modelCluster) owner(namespace string) (string, bool) {
	switch n := w.lookUp(namespace); {
	case n.lookupFails:
		return "", false
	case !n.exists:
		return "", true
	case !n.labeled, w.systemNamespaces[namespace]:
		return "system", true
	case isModelTenant(n.label):
		return n.label, true
	}
	return "", true
}

const (
	noTenant      = ""
	invalidTenant = "!" // an identity with an invalid tenant
)

func (u *modelUser) tenantGroups() []string {
	var found []string
	for _, g := range u.groups {
		if strings.HasPrefix(g, "tenant:") {
			found = append(found, strings.TrimPrefix(g, "tenant:"))
		}
	}
	return found
}

// group returns the tenant of the only group tenant:<id>. Without such a group, it returns
// noTenant. With several such groups or an invalid tenant, it returns invalidTenant.
func (u *modelUser) group() string {
	switch found := u.tenantGroups(); {
	case len(found) == 0:
		return noTenant
	case len(found) == 1 && isModelTenant(found[0]):
		return found[0]
	}
	return invalidTenant
}

func (u *modelUser) isCertificate() bool {
	ids := u.extra["authentication.kubernetes.io/credential-id"]
	return len(ids) == 1 && strings.HasPrefix(ids[0], "X509SHA256=")
}

// parseServiceAccount returns the namespace of a service account. isAccount reports whether the
// name has the prefix of service accounts, and wellFormed whether the whole name is valid.
func parseServiceAccount(name string) (namespace string, isAccount, wellFormed bool) {
	if !strings.HasPrefix(name, "system:serviceaccount") {
		return "", false, false
	}
	parts := strings.Split(name, ":")
	if len(parts) != 4 || parts[1] != "serviceaccount" || !isModelName(parts[2], false) || !isModelName(parts[3], true) {
		return "", true, false
	}
	return parts[2], true, true
}

// isModelName reports whether s is a valid part of a service account's name.
func isModelName(s string, dots bool) bool {
	if s == "" || strings.HasPrefix(s, "-") || strings.HasSuffix(s, "-") || strings.HasPrefix(s, ".") ||
		strings.HasSuffix(s, ".") {
		return false
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && (c != '.' || !dots) {
			return false
		}
	}
	return true
}

// statedTenant returns the tenant that the extra or the namespace of an identity specifies.
func (w *modelCluster) statedTenant(u *modelUser) string {
	stated := noTenant
	for key, values := range u.extra {
		switch {
		case key == "kubetenant.dev/tenant" && len(values) == 1 && isModelTenant(values[0]):
			if stated == noTenant {
				stated = values[0]
			}
		case strings.EqualFold(key, "kubetenant.dev/tenant"):
			stated = invalidTenant
		}
	}
	namespace, isAccount, wellFormed := parseServiceAccount(u.name)
	switch {
	case stated == invalidTenant || !isAccount:
		return stated
	case stated == noTenant && u.isCertificate(), !wellFormed:
		return invalidTenant
	}
	n := w.lookUp(namespace)
	if n.lookupFails || !n.exists {
		return invalidTenant
	}
	owner := invalidTenant
	switch {
	case w.systemNamespaces[namespace]:
		owner = "system"
	case n.labeled && isModelTenant(n.label):
		owner = n.label
	}
	if stated != noTenant && stated != owner {
		return invalidTenant
	}
	return owner
}

func (w *modelCluster) isSystemName(name string) bool {
	if w.systemUsers[name] {
		return true
	}
	for p := range w.systemPrefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// tenantOf returns the tenant of an authenticated identity.
func (w *modelCluster) tenantOf(u *modelUser) string {
	if stated := w.statedTenant(u); stated != noTenant {
		return stated
	}
	group := u.group()
	if w.fromGroups && u.isCertificate() && group != noTenant {
		reserved := strings.HasPrefix(u.name, "system:") || w.isSystemName(u.name)
		for _, g := range u.groups {
			if !strings.HasPrefix(g, "system:") && (w.systemGroups[g] || w.organizations[g]) {
				reserved = true
			}
		}
		if reserved && group != "system" {
			return invalidTenant
		}
		return group
	}
	system := w.isSystemName(u.name)
	for _, g := range u.groups {
		system = system || w.systemGroups[g]
	}
	switch {
	case !system:
		return noTenant
	case group != noTenant && group != "system":
		return invalidTenant
	}
	return "system"
}

// impersonatedTenant returns the tenant of an impersonated user.
func (w *modelCluster) impersonatedTenant(impersonatorTenant string, u *modelUser) string {
	var id string
	group := u.group()
	if impersonatorTenant == "system" {
		if id = w.tenantOf(u); id == noTenant {
			id = group
		}
	} else {
		if id = w.statedTenant(u); id == noTenant {
			id = impersonatorTenant
		}
		if id != impersonatorTenant {
			return invalidTenant
		}
	}
	if group != noTenant && group != id {
		return invalidTenant
	}
	return id
}

func isImpersonation(q *modelRequest) bool {
	return strings.HasPrefix(q.verb, "impersonate-on:") || q.isResource && strings.HasPrefix(q.verb, "impersonate")
}

// decide returns the decision of the model.
func (w *modelCluster) decide(q modelRequest) modelDecision {
	if q.user == nil {
		return modelDecision{delegated: w.shadow}
	}
	caller, impersonated, impersonatorTenant := q.user, false, noTenant
	if q.throughFilters && q.impersonator != nil {
		if isImpersonation(&q) {
			caller = q.impersonator
		} else {
			impersonated, impersonatorTenant = true, w.tenantOf(q.impersonator)
		}
	}
	var id string
	switch {
	case !impersonated:
		id = w.tenantOf(caller)
	case impersonatorTenant == invalidTenant, impersonatorTenant == noTenant: // an impersonator needs a tenant
		return modelDecision{delegated: w.shadow}
	default:
		id = w.impersonatedTenant(impersonatorTenant, caller)
	}
	switch {
	case id == invalidTenant:
		return modelDecision{delegated: w.shadow}
	case id != noTenant && w.revoked[caller.name]:
		return modelDecision{}
	}
	if !q.throughFilters && id != "system" {
		w.normalizeReview(&q)
	}
	group, callerInGroup := "", *caller
	_, isAccount, _ := parseServiceAccount(caller.name)
	if id != noTenant && id != "system" && (!isAccount || w.serviceAccountsInTenantGroup) &&
		!slices.Contains(caller.groups, "tenant:"+id) &&
		(!impersonated || impersonatorTenant == "system" || slices.Contains(q.impersonator.groups, "tenant:"+id)) {
		group = "tenant:" + id
		callerInGroup.groups = append(slices.Clone(caller.groups), group)
	}
	out := w.decideFor(q, id, &callerInGroup)
	if level := w.access[id]; id != noTenant && id != "system" &&
		(level == "closed" && !isSelfReviewRequest(&q) ||
			level == "reads" && !isSelfReviewRequest(&q) && !allowedReadOnly(&q)) {
		out = modelDecision{deniedInShadowMode: true}
	}
	if !out.delegated && !out.allowed && !out.deniedInShadowMode && w.shadow {
		out.delegated = true
	}
	out.namespace, out.group, out.impersonated = q.namespace, group, impersonated
	if impersonated {
		out.tenant = id
	}
	return out
}

// decideFor decides about a request of a caller that belongs to tenant id.
func (w *modelCluster) decideFor(q modelRequest, id string, caller *modelUser) modelDecision {
	namespaceOf, isAccount, _ := parseServiceAccount(caller.name)
	if id != noTenant && id != "system" {
		for _, g := range caller.groups {
			own := isAccount && (g == "system:serviceaccounts" || g == "system:serviceaccounts:"+namespaceOf)
			if strings.HasPrefix(g, "system:") && g != "system:authenticated" && !own {
				return modelDecision{}
			}
		}
	}
	if w.stale && id != noTenant && (id != "system" || isAccount && !w.systemNamespaces[namespaceOf]) {
		return modelDecision{}
	}
	if id != noTenant && id != "system" {
		switch w.access[id] {
		case "unknown":
			return modelDecision{}
		case "none":
			return modelDecision{delegated: w.allowsUnbound(&q)}
		}
	}
	if by, opened := w.exceptionFor(q, id, caller); opened != nil {
		return modelDecision{allowed: true, by: by, limitedTo: *opened}
	}
	pass := modelDecision{delegated: true}
	switch {
	case isImpersonation(&q) &&
		(malformed[q.name] && q.resource != "userextras" || malformedValue[q.name] ||
			q.resource == "userextras" && malformed[q.subresource]):
		return modelDecision{}
	case id == noTenant:
		if w.allowsUnbound(&q) {
			return pass
		}
		return modelDecision{}
	case q.path != "" && !isImpersonation(&q):
		connects := isConnecting(q.subresource)
		reads := (q.verb == "get" || q.verb == "list" || q.verb == "watch") && !connects
		switch {
		case q.path == "all" && id == "system" && reads, id == "system" && q.path == "system":
			return pass
		case q.path == "all", id != "system" && id != q.path:
			return modelDecision{}
		case id == "system" && reads && (!q.isResource || q.kind() != "/namespaces" && w.scopes[q.kind()] == "cluster"):
			return pass
		case id == "system" && q.verb == "create" && q.isResource && q.kind() == "/namespaces":
			return modelDecision{}
		}
		return w.decideTenant(q, q.path)
	case id == "system":
		return pass
	}
	return w.decideTenant(q, id)
}

// allowsUnbound reports whether callers without a tenant may make the request.
func (w *modelCluster) allowsUnbound(q *modelRequest) bool {
	return !q.isResource && w.paths[q.url] ||
		q.isResource && q.subresource == "" && w.unboundObjects[[5]string{q.verb, q.namespace, q.name, q.group, q.resource}]
}

// isSelfReviewRequest reports whether the request is a self review. A closed tenant's callers may
// still create self reviews.
func isSelfReviewRequest(q *modelRequest) bool {
	self := map[string]bool{
		"authentication.k8s.io/selfsubjectreviews":      true,
		"authorization.k8s.io/selfsubjectaccessreviews": true,
		"authorization.k8s.io/selfsubjectrulesreviews":  true,
	}
	return q.isResource && q.verb == "create" && q.subresource == "" && self[q.kind()]
}

// allowedReadOnly reports whether callers of a read-only tenant may make the request.
func allowedReadOnly(q *modelRequest) bool {
	verb := q.verb
	if strings.HasPrefix(verb, "impersonate-on:") {
		parts := strings.SplitN(verb, ":", 3)
		if len(parts) < 3 || parts[1] != "user-info" && parts[1] != "serviceaccount" {
			return false
		}
		verb = parts[2]
	} else if isImpersonation(q) {
		return true
	}
	reads := map[string]bool{
		"get":   true,
		"list":  true,
		"watch": true,
		"head":  true,
	}
	plain := map[string]bool{
		"":       true,
		"status": true,
		"scale":  true,
		"log":    true,
	}
	return reads[verb] && plain[q.subresource] || verb == "delete" && q.subresource == ""
}

func isConnecting(subresource string) bool {
	return slices.Contains([]string{"proxy", "exec", "attach", "portforward"}, subresource)
}

// decideTenant decides about a request of a caller of tenant id, which is not the system tenant.
func (w *modelCluster) decideTenant(q modelRequest, id string) modelDecision {
	none, pass := modelDecision{}, modelDecision{delegated: true}
	if strings.HasPrefix(q.verb, "impersonate-on:") {
		parts := strings.SplitN(q.verb, ":", 3)
		if len(parts) < 3 || parts[1] != "user-info" && parts[1] != "serviceaccount" ||
			strings.HasPrefix(parts[2], "impersonate") {
			return none
		}
		q.verb = parts[2]
	} else if isImpersonation(&q) {
		if w.mayImpersonate(q, id) {
			return pass
		}
		return none
	}
	if !q.isResource {
		if w.paths[q.url] || q.url == "/kubetenant/fair-use" || q.url == "/kubetenant/audit" {
			return pass
		}
		first, rest, _ := strings.Cut(strings.TrimPrefix(q.url, "/"), "/")
		plain := !strings.Contains(rest, "//") && !strings.HasPrefix(rest, "/")
		for _, part := range strings.Split(rest, "/") {
			plain = plain && part != "." && part != ".."
		}
		if strings.HasPrefix(q.url, "/") && plain && (first == "api" || first == "apis" || first == "openapi") {
			return pass
		}
		return none
	}
	if w.isNeverAllowed(q) {
		return none
	}
	scope := w.scopes[q.kind()]
	one := q.verb == "get" || q.verb == "update" || q.verb == "patch" || q.verb == "delete"
	across := q.verb == "list" || q.verb == "watch" || q.verb == "deletecollection"
	switch {
	case q.kind() == "/namespaces":
		name := q.name
		if name == "" {
			name = q.namespace
		}
		switch {
		case q.namespace != "" && q.namespace != name || q.subresource != "":
			return none
		case one && w.isInOwnNamespace(q, id, name), q.verb == "create":
			return pass
		case q.verb == "list" || q.verb == "watch":
			if q.namespace != "" && q.name != "" {
				return none
			}
			return w.decideLimitedList(q, id)
		}
		return none
	case q.namespace != "":
		if q.verb != "finalize" && w.isInOwnNamespace(q, id, q.namespace) {
			return pass
		}
		return none
	}
	switch {
	case q.verb == "create" && q.subresource == "" &&
		(q.kind() == "authorization.k8s.io/selfsubjectaccessreviews" ||
			q.kind() == "authentication.k8s.io/selfsubjectreviews" ||
			q.kind() == "authorization.k8s.io/selfsubjectrulesreviews" && !w.rulesReviewsBypassBoundary):
		return pass
	case q.subresource == "" && (q.verb == "get" || q.verb == "list" || q.verb == "watch") && w.shared[q.kind()] &&
		scope != "namespaced":
		return pass
	case q.subresource == "" && q.verb == "get" && w.describesTenant(q.kind(), q.name, id):
		return pass
	case q.subresource == "" && scope != "namespaced" && w.writable[q.kind()] && (q.verb == "create" && q.name == "" ||
		slices.Contains([]string{"create", "update", "patch", "delete"}, q.verb) && w.describesTenant(q.kind(), q.name, id)):
		return pass
	case q.subresource == "" && (q.verb == "list" || q.verb == "watch") && scope != "namespaced" && w.isOwnKind(q.kind()):
		return w.decideOwnObjectList(q, id)
	case scope == "namespaced" || scope == "" && w.selectable[q.kind()]:
		if !across || q.subresource != "" {
			if !q.throughFilters && q.selfReview && q.name == "" && q.verb != "finalize" {
				return pass // a review about any object of the tenant
			}
			return none
		}
		if scope == "namespaced" && w.unlabeled[q.kind()] {
			return none
		}
		return w.decideLimitedList(q, id)
	}
	return none
}

// isNeverAllowed reports whether no tenant may make the request in any namespace.
func (w *modelCluster) isNeverAllowed(q modelRequest) bool {
	for _, s := range []string{q.group, q.version, q.namespace, q.resource, q.name, q.subresource} {
		if s == "." || s == ".." {
			return true
		}
	}
	switch q.kind() {
	case "authentication.k8s.io/tokenreviews", "authorization.k8s.io/subjectaccessreviews",
		"authorization.k8s.io/localsubjectaccessreviews":
		return true
	}
	return q.verb == "" || q.verb == "*" || q.group == "*" || q.resource == "*" || q.resource == "" ||
		q.namespace != "" && q.kind() != "/namespaces" && w.scopes[q.kind()] == "cluster"
}

// isInOwnNamespace reports whether the request is in a namespace of the tenant. It also returns
// true for a missing namespace with the tenant's prefix if the response to the request ends.
func (w *modelCluster) isInOwnNamespace(q modelRequest, id, namespace string) bool {
	owner, known := w.owner(namespace)
	if !known || owner == id {
		return known
	}
	prefix, rest, _ := strings.Cut(namespace, "--")
	if !w.prefixesReserved || w.lookUp(namespace).exists || prefix != id || rest == "" || id == "system" ||
		!isModelName(id, false) || strings.Contains(id, "--") {
		return false
	}
	own := q.kind() == "/namespaces"
	ends := q.verb == "create" || q.verb == "list" ||
		(q.name != "" || own) && slices.Contains([]string{"get", "update", "patch", "delete"}, q.verb)
	return ends && q.subresource != "log" && !isConnecting(q.subresource) && (own || w.scopes[q.kind()] == "namespaced")
}

// selected returns the tenants to which a label selector is limited.
func (q *modelRequest) selected() []string {
	var found []string
	for _, r := range q.selector {
		if r.key == "kubetenant.dev/tenant" && len(r.values) == 1 &&
			(r.operator == "=" || r.operator == "==" || r.operator == "in") {
			found = append(found, r.values[0])
		}
	}
	return found
}

// decideLimitedList decides about a list over all namespaces. The boundary limits a request on its
// way to the handler. A review must already be limited.
func (w *modelCluster) decideLimitedList(q modelRequest, id string) modelDecision {
	if q.badSelector || q.duplicateSelector || !q.throughFilters && !q.selfReview && !slices.Contains(q.selected(), id) {
		return modelDecision{}
	}
	return modelDecision{delegated: true, limitedTo: id}
}

func (w *modelCluster) isOwnKind(kind string) bool { return strings.HasPrefix(kind, "kubetenant.dev/") }

// ownName returns the name that is reserved for the object of a kind that describes a tenant.
func ownName(kind, id string) string {
	switch kind {
	case "kubetenant.dev/tenantquotas":
		return "quota-" + id
	case "kubetenant.dev/reports":
		return "own-" + id
	}
	return ""
}

// describesTenant reports whether an object describes the tenant, or is missing and has the name
// that is reserved for the tenant.
func (w *modelCluster) describesTenant(kind, name, id string) bool {
	if of, exists := w.objects[kind+"/"+name]; exists {
		return of == id
	}
	return name != "" && name == ownName(kind, id)
}

// decideOwnObjectList decides about a list or a watch of objects that describe the tenant.
func (w *modelCluster) decideOwnObjectList(q modelRequest, id string) modelDecision {
	reservedName := ownName(q.kind(), id)
	named := q.name != ""
	if reservedName == "" || named && !w.describesTenant(q.kind(), q.name, id) {
		return modelDecision{}
	}
	terms := []string{"spec.tenant=" + id}
	object := q.name
	if !w.freelyNamed[q.kind()] {
		if !w.describesTenant(q.kind(), reservedName, id) || named && q.name != reservedName {
			return modelDecision{}
		}
		terms, object = []string{"metadata.name=" + reservedName}, reservedName
	}
	required := terms[0]
	if w.freelyNamed[q.kind()] && named {
		terms = append([]string{"metadata.name=" + q.name}, terms...)
	}
	var requested []string
	if q.fields != "" {
		requested = strings.Split(q.fields, ",")
	}
	ok := q.selfReview || slices.Contains(requested, required) || named && (q.verb == "list" || !w.freelyNamed[q.kind()])
	if q.throughFilters {
		ok = !slices.ContainsFunc(requested, func(term string) bool { return !slices.Contains(terms, term) })
	}
	if !ok {
		return modelDecision{}
	}
	return modelDecision{delegated: true, object: object, fields: strings.Join(terms, ",")}
}

// mayImpersonate reports whether a caller of tenant id may impersonate an identity.
func (w *modelCluster) mayImpersonate(q modelRequest, id string) bool {
	qualified := !w.qualified || strings.HasPrefix(q.name, id+":")
	isNamed := q.name != "" && q.name != "*"
	reserved := strings.HasPrefix(q.name, "system:")
	switch {
	case q.group != "" && q.group != "authentication.k8s.io", strings.HasSuffix(q.verb, "-node"):
		return false
	case q.resource == "serviceaccounts" && q.namespace != "":
		owner, known := w.owner(q.namespace)
		return isNamed && known && owner == id
	case q.namespace != "":
		return false
	case q.resource == "users":
		return isNamed && !reserved && !w.isSystemName(q.name) && qualified
	case q.resource == "groups":
		return q.name == "tenant:"+id ||
			isNamed && !reserved && !strings.HasPrefix(q.name, "tenant:") && !w.systemGroups[q.name] &&
				!w.organizations[q.name] && qualified
	case q.resource == "userextras":
		domain, _, _ := strings.Cut(strings.ToLower(q.subresource), "/")
		domain = "." + domain
		foreign := !strings.HasSuffix(domain, ".kubetenant.dev") && !strings.HasSuffix(domain, ".kubernetes.io") &&
			!strings.HasSuffix(domain, ".k8s.io")
		return q.subresource == "kubetenant.dev/tenant" && q.name == id ||
			q.subresource != "" && q.subresource != "*" && foreign
	}
	return q.resource == "uids"
}

// normalizeReview changes the namespace of a review to the namespace that the reviewed request
// would have.
func (w *modelCluster) normalizeReview(q *modelRequest) {
	if !q.isResource || q.namespace == "" {
		return
	}
	virtual := slices.Contains([]string{"users", "groups", "uids", "userextras"}, q.resource) &&
		(q.group == "" || q.group == "authentication.k8s.io")
	aboutAny := q.name == "" && !slices.Contains([]string{"create", "list", "watch", "deletecollection"}, q.verb)
	switch {
	case virtual && strings.HasPrefix(q.verb, "impersonate") && !strings.HasPrefix(q.verb, "impersonate-on:"):
		q.namespace = ""
	case q.kind() == "/namespaces" && !aboutAny:
		q.namespace = q.name
	case q.kind() != "/namespaces" && w.scopes[q.kind()] == "cluster":
		q.namespace = ""
	}
}

// exceptionFor returns the kind of exception that allows a cross-tenant request, and the tenant
// to which the request is limited by its own selector. The tenant is nil if no exception allows
// it.
func (w *modelCluster) exceptionFor(q modelRequest, id string, u *modelUser) (by string, limitedTo *string) {
	if id == noTenant || id == "system" || isImpersonation(&q) || q.path != "" || q.isResource && w.isNeverAllowed(q) {
		return "", nil
	}
	across := q.verb == "list" || q.verb == "watch" || q.verb == "deletecollection"
	scope := w.scopes[q.kind()]
	isNamespace := q.kind() == "/namespaces"
	namespace := ""
	if isNamespace && q.name != "" && (q.namespace == "" || q.namespace == q.name) {
		namespace = q.name
	} else if q.namespace != "" && (!isNamespace || q.verb != "create") {
		namespace = q.namespace
	}
	overAll := across && q.namespace == "" && (scope != "cluster" || isNamespace && q.name == "")
	limit := ""
	objectOwner := "system"
	if q.isResource && namespace != "" {
		owner, known := w.owner(namespace)
		if !known {
			return "", nil
		}
		objectOwner = owner
	}
	all := q.isResource && namespace == "" && (isNamespace && q.verb != "create" || !isNamespace && scope != "cluster")
	if all {
		objectOwner = ""
		named := q.selected()
		holds := isNamespace || scope == "namespaced" && !w.unlabeled[q.kind()] || scope == "" && w.selectable[q.kind()]
		one := len(named) > 0 && !slices.ContainsFunc(named, func(s string) bool { return s != named[0] }) &&
			isModelTenant(named[0])
		if one && holds && across && q.subresource == "" && !q.badSelector {
			all, objectOwner = false, named[0]
		}
	}
	if !all && objectOwner == id {
		return "", nil
	}
	if q.throughFilters && !all && overAll {
		named := q.selected()
		if q.badSelector || q.duplicateSelector || len(named) == 0 ||
			slices.ContainsFunc(named, func(s string) bool { return s != objectOwner }) {
			return "", nil
		}
		limit = objectOwner
	}
	resource := q.resource
	if q.subresource != "" {
		resource += "/" + q.subresource
	}
	if q.isResource && q.namespace != "" && !all && objectOwner != "" && !isNamespace {
		for _, g := range w.grants {
			if g.namespace == q.namespace && g.tenant == id && g.owner == objectOwner && !g.expired && !g.deleted &&
				(slices.Contains(g.users, u.name) ||
					slices.ContainsFunc(u.groups, func(s string) bool { return slices.Contains(g.groups, s) })) &&
				slices.Contains(g.verbs, q.verb) && slices.Contains(g.apiGroups, q.group) &&
				slices.Contains(g.resources, resource) &&
				(len(g.resourceNames) == 0 || slices.Contains(g.resourceNames, q.name)) {
				return "grant", &limit
			}
		}
	}
	if q.isResource && q.namespace == "" && q.kind() == "kubetenant.dev/accessgrants" &&
		(q.verb == "list" || q.verb == "watch") && q.subresource == "" && q.name == "" &&
		q.announced == id && (!q.throughFilters || !q.badSelector && !q.duplicateSelector) {
		return "announced", &limit
	}
	for _, l := range w.policyLines {
		if strings.HasPrefix(q.verb, "impersonate") {
			break // no line allows it, even if it is an HTTP method
		}
		group := l.group
		if l.user == "*" || group == "*" {
			group = "system:authenticated"
		}
		if l.tenant != "*" && l.tenant != id || l.user != "" && l.user != "*" && l.user != u.name ||
			group != "" && !slices.Contains(u.groups, group) {
			continue
		}
		if l.owner == "*" && objectOwner == "" && !all || l.owner != "*" && (all || l.owner != objectOwner) {
			continue
		}
		if l.readonly &&
			(q.verb != "get" && q.verb != "list" && q.verb != "watch" || isConnecting(q.subresource) && q.isResource) {
			continue
		}
		if !q.isResource &&
			(l.path == "*" || l.path != "" && l.path == q.url ||
				strings.HasSuffix(l.path, "*") && strings.HasPrefix(q.url, strings.TrimRight(l.path, "*"))) {
			return "abac", &limit
		}
		if q.isResource && l.resource != "" && (l.resource == "*" || l.resource == q.resource) &&
			(l.apiGroup == "*" || l.apiGroup == q.group) && (l.namespace == "*" || l.namespace == q.namespace) {
			return "abac", &limit
		}
	}
	return "", nil
}

// malformed contains the generated names that are not well-formed. malformedValue contains the
// generated names that are not valid as the value of an extra.
var (
	malformed      = map[string]bool{" alice": true, "alice\n": true, "al\u200bice": true}
	malformedValue = map[string]bool{" alice": true, "alice\n": true}
)
