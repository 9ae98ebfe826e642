// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
)

// choices are the choices from which a cluster is generated. They are random or come from a fuzzer.
type choices interface {
	// intn returns a number from 0 to n-1.
	intn(n int) int
}

type randomChoices struct{ *rand.Rand }

func (r randomChoices) intn(n int) int { return r.IntN(n) }

// fuzzChoices are the choices that a fuzzer makes. After the last byte of left, each choice is 0.
type fuzzChoices struct{ left []byte }

func (b *fuzzChoices) intn(n int) int {
	if len(b.left) == 0 {
		return 0
	}
	chosen := int(b.left[0]) % n
	b.left = b.left[1:]
	return chosen
}

func oneOf[T any](d choices, all ...T) T { return all[d.intn(len(all))] }

// someOf returns up to n elements of all, possibly with duplicates.
func someOf(d choices, n int, all []string) []string {
	some := make([]string, d.intn(n+1))
	for i := range some {
		some[i] = oneOf(d, all...)
	}
	return some
}

// pickTenant returns a tenant. It usually returns one of three tenants, so that requests concern
// the same tenants.
func pickTenant(d choices) string {
	if oneIn(d, 6) {
		return oneOf(d, modelTenants...)
	}
	return oneOf(d, "a", "b", "acme")
}

// pickKind returns a kind, usually a kind that tenants may use.
func pickKind(d choices) string {
	if oneIn(d, 3) {
		return oneOf(d, modelKinds...)
	}
	return oneOf(d, "/pods", "/configmaps", "apps/deployments", "example.com/widgets", "/namespaces",
		"metrics.k8s.io/pods", "/secrets")
}

func pickNamespace(d choices) string {
	if oneIn(d, 3) {
		return oneOf(d, modelNamespaces...)
	}
	return oneOf(d, "a--web", "b--web", "acme--x")
}

func pickName(d choices) string {
	if oneIn(d, 3) {
		return oneOf(d, append(modelNamespaces, modelObjects...)...)
	}
	return oneOf(d, "", "x", "y")
}

func pickUser(d choices) string {
	if oneIn(d, 4) {
		return oneOf(d, modelUsers...)
	}
	return oneOf(d, "alice", "bob")
}

func pickCaller(d choices) string {
	if oneIn(d, 12) {
		return oneOf(d, "a:alice", "revoked")
	}
	return oneOf(d, "alice", "bob")
}

func oneIn(d choices, n int) bool { return d.intn(n) == n-1 }

var (
	modelTenants = []string{"a", "b", "acme", "Acme", "a--b", "x.y", "und_er", "systemd", "1", "system"}
	modelLabels  = append([]string{"", "System", "all", "Tenant", "-a", "a b", strings.Repeat("a", 64)},
		modelTenants...)
	modelNamespaces = []string{
		"a--web", "b--web", "acme--x", "a--b--c", "a--", "--x", "a", "web", "kube-system", "default", "kube-public", "1--one",
		"system--x", "Acme--x",
	}
	modelObjects = []string{
		"", "x", "y", "*", ".", "..", "cluster-info", "quota-a", "quota-b", "own-a", "own-acme", "alice", "a:alice",
		"system:masters", "tenant:a",
		"kubeadm:cluster-admins", "a", "b", "acme", " alice", "al\u200bice", "system:kube-scheduler", "system:bootstrap:x",
	}
	modelUsers = []string{
		"alice", "bob", "a:alice", "", "system:kube-scheduler", "system:bootstrap:x", "system:anonymous", "system:admin",
		"revoked",
		"system:serviceaccount", "system:serviceaccounts:a--web", "system:serviceaccount:a--web",
		"system:serviceaccount:a--web:x:y", "system:serviceaccount::x", "system:serviceaccount:a--:x",
	}
	modelGroups = []string{
		"dev", "ops", "system:authenticated", "system:unauthenticated", "system:masters", "system:nodes",
		"kubeadm:cluster-admins",
		"system:serviceaccounts", "system:serviceaccounts:a--web", "system:serviceaccounts:b--web", "tenant:", "tenant:all",
		"tenant:a", "tenant:b", "tenant:acme", "tenant:system", "system:foo",
	}
	modelVerbs = []string{
		"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "get", "list", "watch", "create",
		"update", "patch", "delete", "finalize", "approve", "use", "", "*",
	}
	modelImpersonationVerbs = []string{
		"impersonate", "impersonate:user-info", "impersonate:serviceaccount", "impersonate:arbitrary-node",
		"impersonate-on:user-info:get", "impersonate-on:user-info:list",
		"impersonate-on:serviceaccount:create", "impersonate-on:arbitrary-node:get", "impersonate-on:user-info",
		"impersonate-on:", "impersonate-on:user-info:impersonate", "impersonate-on:user-info:*",
	}
	modelSubresources = []string{
		"status", "log", "exec", "attach", "portforward", "proxy", "finalize", "scale", "token", "..", ".", "*",
	}
	modelURLs = []string{
		"/api", "/api/", "/api/v1", "/apis/apps/v1", "/openapi/v3", "/openapi", "/healthz", "/readyz", "/metrics", "/logs/",
		"/", "", "*", "/api/../metrics", "/api//v1",
		"/apis/./x", "/apix", "//api", "/api/v1/", "/api/v1//", "/healthz/", "api", "/version",
		"/kubetenant/fair-use", "/kubetenant/fair-use/", "/kubetenant/audit", "/kubetenant/audit/",
		"/kubetenant/", "/kubetenant//fair-use",
	}
	// modelScopes contains the scope of each resource. It is "" if neither the table nor a
	// CustomResourceDefinition specifies the scope.
	modelScopes = map[string]string{
		"/pods":                           "namespaced",
		"/configmaps":                     "namespaced",
		"/secrets":                        "namespaced",
		"/services":                       "namespaced",
		"/bindings":                       "namespaced",
		"/serviceaccounts":                "namespaced",
		"apps/deployments":                "namespaced",
		"apps/daemonsets":                 "namespaced",
		"rbac.authorization.k8s.io/roles": "namespaced",
		"authorization.k8s.io/localsubjectaccessreviews": "namespaced",

		"/nodes":                                 "cluster",
		"/namespaces":                            "cluster",
		"/persistentvolumes":                     "cluster",
		"rbac.authorization.k8s.io/clusterroles": "cluster",
		"storage.k8s.io/storageclasses":          "cluster",

		"apiextensions.k8s.io/customresourcedefinitions": "cluster",
		"certificates.k8s.io/certificatesigningrequests": "cluster",
		"authentication.k8s.io/tokenreviews":             "cluster",
		"authentication.k8s.io/selfsubjectreviews":       "cluster",
		"authorization.k8s.io/subjectaccessreviews":      "cluster",
		"authorization.k8s.io/selfsubjectaccessreviews":  "cluster",
		"authorization.k8s.io/selfsubjectrulesreviews":   "cluster",
		"example.com/widgets":                            "namespaced",
		"example.com/gadgets":                            "cluster",
		"kubetenant.dev/tenantquotas":                    "cluster",
		"kubetenant.dev/reports":                         "cluster",
		"kubetenant.dev/accessgrants":                    "namespaced",
		"metrics.k8s.io/pods":                            "",
		"aggregated.example.com/things":                  "",
		"/pod":                                           "",
		"apps/pods":                                      "",
		"*/*":                                            "",
		"/*":                                             "",
		"*/pods":                                         "",
		"/":                                              "",
		"/..":                                            "",
		"../pods":                                        "",
		"example.com/namespaces":                         "",
		"/users":                                         "",
		"/groups":                                        "",
		"authentication.k8s.io/userextras":               "",
		"authentication.k8s.io/uids":                     "",
		"other.k8s.io/users":                             "",
	}
	modelKinds = sortedKeys(modelScopes)
)

func sortedKeys(m map[string]string) []string {
	var all []string
	for key := range m {
		all = append(all, key)
	}
	slices.Sort(all)
	return all
}

func setOf(all ...string) map[string]bool {
	set := map[string]bool{}
	for _, s := range all {
		set[s] = true
	}
	return set
}

// makeCluster generates a cluster and a configuration.
func makeCluster(d choices) *modelCluster {
	w := &modelCluster{
		namespaces:       map[string]modelNamespace{},
		scopes:           modelScopes,
		systemUsers:      setOf("system:kube-scheduler"),
		systemPrefixes:   setOf("system:bootstrap:"),
		systemGroups:     setOf("system:masters", "system:nodes"),
		organizations:    setOf("kubeadm:cluster-admins"),
		systemNamespaces: setOf("kube-system", "default"),
		paths:            setOf("/healthz", "/readyz"),
		shared:           setOf("storage.k8s.io/storageclasses"),
		selectable:       setOf("metrics.k8s.io/pods"),
		revoked:          setOf("revoked"),
		unboundObjects:   map[[5]string]bool{{"get", "kube-public", "cluster-info", "", "configmaps"}: true},
		objects: map[string]string{
			"kubetenant.dev/tenantquotas/quota-a": "a",
			"kubetenant.dev/tenantquotas/quota-b": "b",
			"kubetenant.dev/reports/own-a":        "a",
			"kubetenant.dev/reports/own-acme":     "acme",
			"kubetenant.dev/reports/x":            "a",
		},
		freelyNamed: setOf("kubetenant.dev/reports"),
		writable: setOf(someOf(d, 3, []string{
			"kubetenant.dev/reports", "kubetenant.dev/tenantquotas", "example.com/gadgets", "example.com/widgets",
			"aggregated.example.com/things",
		})...),
		access:                       map[string]string{},
		unlabeled:                    setOf(someOf(d, 1, modelKinds)...),
		fromGroups:                   oneIn(d, 3),
		serviceAccountsInTenantGroup: oneIn(d, 2),
		qualified:                    oneIn(d, 4),
		prefixesReserved:             !oneIn(d, 3),
		rulesReviewsBypassBoundary:   oneIn(d, 4),
		shadow:                       oneIn(d, 48),
		stale:                        oneIn(d, 48),
	}
	for range d.intn(3) {
		w.access[oneOf(d, modelTenants...)] = oneOf(d, "unknown", "none", "closed", "reads", "reads")
	}
	if oneIn(d, 4) {
		// These shared resources are namespaced or have an unknown scope.
		w.shared["example.com/widgets"], w.shared["aggregated.example.com/things"] = true, true
	}
	if oneIn(d, 3) { // an object of tenant a has the name that is reserved for another tenant
		w.objects["kubetenant.dev/"+oneOf(d, "tenantquotas/quota-", "reports/own-")+oneOf(d, "b", "acme")] = "a"
	}
	if oneIn(d, 3) {
		delete(w.objects, "kubetenant.dev/"+oneOf(d, "tenantquotas/quota-a", "reports/own-a"))
	}
	for _, name := range modelNamespaces {
		w.namespaces[name] = makeNamespace(d, name)
	}
	for range d.intn(12) {
		w.grants = append(w.grants, makeGrant(d))
	}
	for range d.intn(4) {
		w.policyLines = append(w.policyLines, makeLine(d))
	}
	return w
}

// makeNamespace generates the state of a namespace. In most cases, the cache contains the
// namespace.
func makeNamespace(d choices, name string) modelNamespace {
	label := pickTenant(d)
	if prefix, _, found := strings.Cut(name, "--"); found && !oneIn(d, 6) {
		label = prefix
	} else if oneIn(d, 6) {
		label = oneOf(d, modelLabels...)
	}
	known := modelState{exists: true, labeled: !oneIn(d, 8), label: label}
	switch d.intn(12) {
	case 0: // never existed
		return modelNamespace{}
	case 1: // just created
		return modelNamespace{live: known}
	case 2: // terminating, or deleted, or created again for another tenant
		ending := known
		ending.terminating = true
		return modelNamespace{
			cached: ending,
			live:   oneOf(d, ending, modelState{}, modelState{exists: true, labeled: true, label: oneOf(d, modelTenants...)}),
		}
	case 3: // lookups fail
		return oneOf(
			d,
			modelNamespace{live: modelState{lookupFails: true}},
			modelNamespace{cached: modelState{lookupFails: true}},
		)
	}
	return modelNamespace{cached: known, live: known}
}

func makeGrant(d choices) modelGrant {
	g := modelGrant{
		namespace:     pickNamespace(d),
		owner:         pickTenant(d),
		tenant:        pickTenant(d),
		users:         append(someOf(d, 2, modelUsers[:3]), pickCaller(d)),
		groups:        someOf(d, 2, modelGroups[:4]),
		verbs:         someOf(d, 8, modelVerbs),
		resourceNames: someOf(d, 1, modelObjects[:3]),
		expired:       oneIn(d, 6),
		deleted:       oneIn(d, 6),
	}
	if prefix, _, found := strings.Cut(g.namespace, "--"); found && !oneIn(d, 6) && isModelTenant(prefix) {
		g.owner = prefix
	}
	for range 1 + d.intn(6) {
		group, resource, _ := strings.Cut(pickKind(d), "/")
		if oneIn(d, 4) {
			resource += "/" + oneOf(d, modelSubresources...)
		}
		g.apiGroups, g.resources = append(g.apiGroups, group), append(g.resources, resource)
	}
	return g
}

func makeLine(d choices) modelLine {
	l := modelLine{
		tenant:   oneOf(d, pickTenant(d), pickTenant(d), "*"),
		owner:    oneOf(d, pickTenant(d), pickTenant(d), "*"),
		readonly: oneIn(d, 2),
	}
	switch d.intn(4) {
	case 0:
		l.user = oneOf(d, "*", "alice", "system:serviceaccount:a--web:robot")
	case 1:
		l.group = oneOf(d, "*", "dev", "tenant:a")
	case 2:
		l.user, l.group = "alice", "dev"
	case 3:
		l.user = "bob"
	}
	if !oneIn(d, 4) {
		group, resource, _ := strings.Cut(pickKind(d), "/")
		if resource == "" {
			resource = "*"
		}
		l.apiGroup, l.resource, l.namespace = oneOf(d, group, "*"), oneOf(d, resource, "*"),
			oneOf(d, append(modelNamespaces, "*", "*", "*", "")...)
	}
	if l.resource == "" || oneIn(d, 4) {
		l.path = oneOf(d, append([]string{"/metrics*", "/logs/*"}, modelURLs[:12]...)...)
	}
	if l.resource == "" && l.path == "" {
		l.path = "*"
	}
	return l
}

// text returns the line in the format of the policy file.
func (l *modelLine) text() []byte {
	text, err := json.Marshal(map[string]any{
		"apiVersion": "abac.authorization.kubernetes.io/v1beta1",
		"kind":       "Policy",
		"spec": map[string]any{
			"user":            l.user,
			"group":           l.group,
			"tenant":          l.tenant,
			"space":           l.owner,
			"readonly":        l.readonly,
			"apiGroup":        l.apiGroup,
			"resource":        l.resource,
			"namespace":       l.namespace,
			"nonResourcePath": l.path,
		},
	})
	if err != nil {
		panic(err)
	}
	return append(text, '\n')
}

func makeUser(d choices) *modelUser {
	u := &modelUser{name: pickUser(d), groups: someOf(d, 2, modelGroups[:3]), extra: map[string][]string{}}
	if oneIn(d, 24) {
		u.groups = someOf(d, 3, modelGroups)
	}
	id := pickTenant(d)
	switch d.intn(24) {
	default: // authenticated by a credential source
		u.name, u.extra["kubetenant.dev/tenant"] = pickCaller(d), []string{id}
		u.groups = append(u.groups, "system:authenticated")
		if !oneIn(d, 4) {
			u.groups = append(u.groups, "tenant:"+id)
		}
	case 0, 1, 2, 3, 4: // a service account
		namespace := pickNamespace(d)
		u.name, u.groups = "system:serviceaccount:"+namespace+":robot",
			[]string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
		if oneIn(d, 12) {
			u.groups = append(u.groups, oneOf(d, modelGroups...))
		}
	case 5, 6: // a certificate that another server verified
		u.extra["authentication.kubernetes.io/credential-id"] = []string{"X509SHA256=00"}
		if !oneIn(d, 3) {
			u.groups = append(u.groups, "tenant:"+id)
		}
	case 7: // no tenant
	case 8: // a forged tenant
		u.extra[oneOf(d, "kubetenant.dev/tenant", "Kubetenant.dev/tenant", "kubetenant.dev/TENANT")] = oneOf(d, nil,
			[]string{"a", "b"}, []string{oneOf(d, modelLabels...)}, []string{id, id})
	}
	if oneIn(d, 16) {
		u.extra["kubetenant.dev/tenant"] = []string{oneOf(d, modelLabels...)}
	}
	if oneIn(d, 8) {
		u.extra["kubetenant.dev/source"] = []string{"tokens"}
	}
	return u
}

// makeRequest generates a request. Some requests match a grant or a policy line of the cluster.
func makeRequest(d choices, w *modelCluster) modelRequest {
	q := modelRequest{
		user:           makeUser(d),
		throughFilters: oneIn(d, 2),
		verb:           oneOf(d, modelVerbs...),
		isResource:     !oneIn(d, 12),
	}
	if oneIn(d, 12) {
		q.verb = oneOf(d, modelImpersonationVerbs...)
	}
	if !q.isResource {
		q.url = oneOf(d, modelURLs...)
		if !strings.HasPrefix(q.verb, "impersonate") {
			q.verb = oneOf(d, "get", "post", "put", "delete", "options")
		}
	} else {
		q.group, q.resource, _ = strings.Cut(pickKind(d), "/")
		q.version = oneOf(d, "v1", "v1", "v1", "v1", "v1", "v1", "v1beta1", "")
		if oneIn(d, 32) {
			q.version = ".."
		}
		if !oneIn(d, 3) {
			q.namespace = pickNamespace(d)
		}
		q.name = pickName(d)
		if oneIn(d, 4) {
			q.subresource = oneOf(d, modelSubresources...)
		}
		if oneIn(d, 3) {
			q.name = ""
		}
		if strings.HasPrefix(q.verb, "impersonate") && !oneIn(d, 4) {
			q.group, q.resource, _ = strings.Cut(oneOf(d, "/users", "/groups", "/serviceaccounts",
				"authentication.k8s.io/userextras", "authentication.k8s.io/uids"), "/")
			q.subresource = ""
			if q.resource == "userextras" {
				q.subresource = oneOf(d, "kubetenant.dev/tenant", "example.com/key", "kubetenant.dev/source",
					"Authentication.Kubernetes.io/x", "k8s.io", "*", "", "alice\n", "xk8s.io/y")
			}
		}
	}
	if q.throughFilters {
		if oneIn(d, 4) {
			q.impersonator = makeUser(d)
			if oneIn(d, 4) { // groups that the client sent
				q.user.groups = append(q.user.groups, someOf(d, 3, []string{
					"tenant:a", "tenant:b", "tenant:acme", "tenant:", "tenant:all", "tenant:system", "system:masters", "dev",
				})...)
			}
		}
		if oneIn(d, 6) {
			q.path = oneOf(d, append([]string{"all", "all"}, modelTenants...)...)
		}
	} else {
		q.selfReview = oneIn(d, 3)
		if oneIn(d, 256) {
			q.user = nil
		}
	}
	switch {
	case oneIn(d, 48): // allowed for every caller
		q.isResource, q.url, q.verb, q.group, q.resource, q.subresource, q.namespace, q.name = true, "", "get", "",
			"configmaps", "", "kube-public", "cluster-info"
		if oneIn(d, 2) {
			q.user = &modelUser{
				name:   "system:anonymous",
				groups: []string{"system:unauthenticated"},
				extra:  map[string][]string{},
			}
		}
	case len(w.grants) > 0 && oneIn(d, 8):
		useGrant(d, &q, oneOf(d, w.grants...))
	case oneIn(d, 24): // a list of announced grants
		id := pickTenant(d)
		q.user, q.impersonator, q.isResource, q.url, q.group, q.resource, q.announced = callerNamed(
			pickUser(d),
			id,
		), nil, true, "",
			"kubetenant.dev", "accessgrants", id
		if !oneIn(d, 4) {
			q.path, q.namespace, q.name, q.subresource, q.verb = "", "", "", "", oneOf(d, "list", "watch", "deletecollection")
		}
	case len(w.policyLines) > 0 && oneIn(d, 8):
		useLine(d, &q, oneOf(d, w.policyLines...))
	case oneIn(d, 12):
		useOwnObject(d, &q)
	}
	makeSelectors(d, &q)
	return q
}

func callerNamed(name, id string, groups ...string) *modelUser {
	return &modelUser{
		name:   name,
		groups: append(groups, "system:authenticated"),
		extra:  map[string][]string{"kubetenant.dev/tenant": {id}},
	}
}

func useGrant(d choices, q *modelRequest, g modelGrant) {
	if len(g.verbs) == 0 {
		return
	}
	i := d.intn(len(g.resources))
	q.user, q.impersonator, q.path, q.isResource, q.url = callerNamed(oneOf(d, g.users...), g.tenant), nil, "", true, ""
	q.namespace, q.verb, q.group = g.namespace, oneOf(d, g.verbs...), g.apiGroups[i]
	q.resource, q.subresource, _ = strings.Cut(g.resources[i], "/")
	if len(g.resourceNames) > 0 {
		q.name = oneOf(d, g.resourceNames...)
	}
}

func useLine(d choices, q *modelRequest, l modelLine) {
	name, id := l.user, l.tenant
	if name == "" || name == "*" {
		name = pickUser(d)
	}
	if id == "*" {
		id = pickTenant(d)
	}
	q.user, q.impersonator, q.path = callerNamed(name, id, strings.Split(l.group, ",")...), nil, ""
	if l.path != "" && l.path != "*" {
		q.isResource, q.url, q.namespace, q.resource, q.group, q.subresource, q.name = false,
			strings.ReplaceAll(l.path, "*", "x"), "", "", "", "", ""
		return
	}
	if !q.isResource {
		return
	}
	if l.resource != "" && l.resource != "*" {
		q.resource = l.resource
	}
	if l.apiGroup != "*" {
		q.group = l.apiGroup
	}
	if l.namespace != "*" {
		q.namespace = l.namespace
	}
}

func makeSelectors(d choices, q *modelRequest) {
	var terms []string
	if !q.isResource || !oneIn(d, 2) && q.verb != "list" && q.verb != "watch" {
		return
	}
	for range d.intn(3) {
		r := modelRequirement{
			key:      oneOf(d, "kubetenant.dev/tenant", "kubetenant.dev/tenant", "app", "kubetenant.dev/Tenant"),
			operator: oneOf(d, "=", "=", "==", "in", "in", "notin", "!=", "exists", "!"),
		}
		switch r.operator {
		case "in", "notin":
			r.values = []string{oneOf(d, modelTenants...)}
			if another := oneOf(d, modelTenants...); another != r.values[0] && oneIn(d, 2) {
				r.values = append(r.values, another)
			}
		case "exists", "!":
		default:
			r.values = []string{oneOf(d, modelTenants...)}
		}
		q.selector = append(q.selector, r)
	}
	switch {
	case oneIn(d, 12):
		q.badSelector, q.selector = true, nil
	case q.throughFilters && oneIn(d, 12):
		q.duplicateSelector = true
	}
	if q.kind() == "kubetenant.dev/accessgrants" && q.announced == "" && oneIn(d, 2) {
		q.announced = pickTenant(d)
	}
	switch {
	case q.announced != "":
		q.fields = "spec.from.tenant=" + q.announced + ",spec.announce=true,status.announcedTo=" + q.announced
	case oneIn(d, 3):
		for range d.intn(3) {
			terms = append(terms, oneOf(d, "metadata.name=y", "metadata.name!=y", "spec.tenant="+pickTenant(d),
				"metadata.name="+oneOf(d, "quota-", "own-")+pickTenant(d)))
		}
		if q.name != "" && (q.verb == "list" || q.verb == "watch") && !oneIn(d, 4) {
			terms = append(terms, "metadata.name="+q.name) // RequestInfo reads the name from this term
		}
		q.fields = strings.Join(terms, ",")
	}
}

// useOwnObject changes the request to a request for an object that describes a tenant.
func useOwnObject(d choices, q *modelRequest) {
	id := oneOf(d, "a", "b", "acme")
	q.user, q.impersonator, q.path, q.isResource, q.url = callerNamed(pickUser(d), id), nil, "", true, ""
	q.group, q.resource, _ = strings.Cut(oneOf(d, "kubetenant.dev/tenantquotas", "kubetenant.dev/reports"), "/")
	q.namespace, q.subresource = "", ""
	q.verb = oneOf(d, "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
	q.name = oneOf(d, "", "", ownName(q.kind(), id), "x", "quota-"+pickTenant(d), "own-"+pickTenant(d))
}
