// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
)

// draws are the choices that generate a cluster. They are random or come from a fuzzer.
type draws interface {
	// of returns a number from 0 to n-1.
	of(n int) int
}

type random struct{ *rand.Rand }

func (r random) of(n int) int { return r.IntN(n) }

// bytesOf are the choices of a fuzzer. After the last one, all choices are 0.
type bytesOf struct{ left []byte }

func (b *bytesOf) of(n int) int {
	if len(b.left) == 0 {
		return 0
	}
	chosen := int(b.left[0]) % n
	b.left = b.left[1:]
	return chosen
}

func oneOf[T any](d draws, all ...T) T { return all[d.of(len(all))] }

// someOf returns up to n elements of all, possibly with duplicates.
func someOf(d draws, n int, all []string) []string {
	some := make([]string, d.of(n+1))
	for i := range some {
		some[i] = oneOf(d, all...)
	}
	return some
}

// aTenant returns a tenant, mostly one of a few, so that requests concern the same tenants.
func aTenant(d draws) string {
	if oneIn(d, 6) {
		return oneOf(d, modelTenants...)
	}
	return oneOf(d, "a", "b", "acme")
}

// aKind returns a kind, mostly an ordinary one.
func aKind(d draws) string {
	if oneIn(d, 3) {
		return oneOf(d, modelKinds...)
	}
	return oneOf(d, "/pods", "/configmaps", "apps/deployments", "example.com/widgets", "/namespaces",
		"metrics.k8s.io/pods", "/secrets")
}

func aNamespace(d draws) string {
	if oneIn(d, 3) {
		return oneOf(d, modelNamespaces...)
	}
	return oneOf(d, "a--web", "b--web", "acme--x")
}

func aName(d draws) string {
	if oneIn(d, 3) {
		return oneOf(d, append(modelNamespaces, modelObjects...)...)
	}
	return oneOf(d, "", "x", "y")
}

func aUser(d draws) string {
	if oneIn(d, 4) {
		return oneOf(d, modelUsers...)
	}
	return oneOf(d, "alice", "bob")
}

func aCaller(d draws) string {
	if oneIn(d, 12) {
		return oneOf(d, "a:alice", "revoked")
	}
	return oneOf(d, "alice", "bob")
}

func oneIn(d draws, n int) bool { return d.of(n) == n-1 }

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
	modelWords = []string{
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
	// The scope of each resource. It is "" if neither the table nor a CustomResourceDefinition has it.
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

// makeWorld generates a cluster and a configuration.
func makeWorld(d draws) *modelWorld {
	w := &modelWorld{
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
		openObjects:      map[[5]string]bool{{"get", "kube-public", "cluster-info", "", "configmaps"}: true},
		objects: map[string]string{
			"kubetenant.dev/tenantquotas/quota-a": "a",
			"kubetenant.dev/tenantquotas/quota-b": "b",
			"kubetenant.dev/reports/own-a":        "a",
			"kubetenant.dev/reports/own-acme":     "acme",
			"kubetenant.dev/reports/x":            "a",
		},
		free: setOf("kubetenant.dev/reports"),
		writable: setOf(someOf(d, 3, []string{
			"kubetenant.dev/reports", "kubetenant.dev/tenantquotas", "example.com/gadgets", "example.com/widgets",
			"aggregated.example.com/things",
		})...),
		access:          map[string]string{},
		unlabelled:      setOf(someOf(d, 1, modelKinds)...),
		fromGroups:      oneIn(d, 3),
		accountsInGroup: oneIn(d, 2),
		qualified:       oneIn(d, 4),
		ownPrefixes:     !oneIn(d, 3),
		rulesElsewhere:  oneIn(d, 4),
		shadow:          oneIn(d, 48),
		stale:           oneIn(d, 48),
	}
	for range d.of(3) {
		w.access[oneOf(d, modelTenants...)] = oneOf(d, "unknown", "none", "closed", "reads", "reads")
	}
	if oneIn(d, 4) {
		// The boundary does not know that these are cluster-scoped.
		w.shared["example.com/widgets"], w.shared["aggregated.example.com/things"] = true, true
	}
	if oneIn(d, 3) { // an object of tenant a has the own name of another tenant
		w.objects["kubetenant.dev/"+oneOf(d, "tenantquotas/quota-", "reports/own-")+oneOf(d, "b", "acme")] = "a"
	}
	if oneIn(d, 3) {
		delete(w.objects, "kubetenant.dev/"+oneOf(d, "tenantquotas/quota-a", "reports/own-a"))
	}
	for _, name := range modelNamespaces {
		w.namespaces[name] = makeNamespace(d, name)
	}
	for range d.of(12) {
		w.grants = append(w.grants, makeGrant(d))
	}
	for range d.of(4) {
		w.lines = append(w.lines, makeLine(d))
	}
	return w
}

// makeNamespace generates a namespace in one of its states, mostly one that is in the cache.
func makeNamespace(d draws, name string) modelNamespace {
	label := aTenant(d)
	if prefix, _, found := strings.Cut(name, "--"); found && !oneIn(d, 6) {
		label = prefix
	} else if oneIn(d, 6) {
		label = oneOf(d, modelLabels...)
	}
	known := modelState{exists: true, labelled: !oneIn(d, 8), label: label}
	switch d.of(12) {
	case 0: // never existed
		return modelNamespace{}
	case 1: // just created
		return modelNamespace{live: known}
	case 2: // terminating, or deleted, or created again for another tenant
		ending := known
		ending.terminates = true
		return modelNamespace{
			cached: ending,
			live:   oneOf(d, ending, modelState{}, modelState{exists: true, labelled: true, label: oneOf(d, modelTenants...)}),
		}
	case 3: // lookups fail
		return oneOf(d, modelNamespace{live: modelState{fails: true}}, modelNamespace{cached: modelState{fails: true}})
	}
	return modelNamespace{cached: known, live: known}
}

func makeGrant(d draws) modelGrant {
	g := modelGrant{
		namespace: aNamespace(d),
		owner:     aTenant(d),
		tenant:    aTenant(d),
		users:     append(someOf(d, 2, modelUsers[:3]), aCaller(d)),
		groups:    someOf(d, 2, modelGroups[:4]),
		verbs:     someOf(d, 8, modelVerbs),
		only:      someOf(d, 1, modelObjects[:3]),
		expired:   oneIn(d, 6),
		gone:      oneIn(d, 6),
	}
	if prefix, _, found := strings.Cut(g.namespace, "--"); found && !oneIn(d, 6) && isModelTenant(prefix) {
		g.owner = prefix
	}
	for range 1 + d.of(6) {
		group, resource, _ := strings.Cut(aKind(d), "/")
		if oneIn(d, 4) {
			resource += "/" + oneOf(d, modelSubresources...)
		}
		g.apiGroups, g.resources = append(g.apiGroups, group), append(g.resources, resource)
	}
	return g
}

func makeLine(d draws) modelLine {
	l := modelLine{
		tenant:   oneOf(d, aTenant(d), aTenant(d), "*"),
		space:    oneOf(d, aTenant(d), aTenant(d), "*"),
		readonly: oneIn(d, 2),
	}
	switch d.of(4) {
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
		group, resource, _ := strings.Cut(aKind(d), "/")
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

// text returns the line of the policy file.
func (l *modelLine) text() []byte {
	text, err := json.Marshal(map[string]any{
		"apiVersion": "abac.authorization.kubernetes.io/v1beta1",
		"kind":       "Policy",
		"spec": map[string]any{
			"user":            l.user,
			"group":           l.group,
			"tenant":          l.tenant,
			"space":           l.space,
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

func makeUser(d draws) *modelUser {
	u := &modelUser{name: aUser(d), groups: someOf(d, 2, modelGroups[:3]), extra: map[string][]string{}}
	if oneIn(d, 24) {
		u.groups = someOf(d, 3, modelGroups)
	}
	id := aTenant(d)
	switch d.of(24) {
	default: // from a source
		u.name, u.extra["kubetenant.dev/tenant"] = aCaller(d), []string{id}
		u.groups = append(u.groups, "system:authenticated")
		if !oneIn(d, 4) {
			u.groups = append(u.groups, "tenant:"+id)
		}
	case 0, 1, 2, 3, 4: // a service account
		namespace := aNamespace(d)
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
	case 7: // without a tenant
	case 8: // forged
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

// makeRequest generates a request, sometimes one that a grant or a policy line of the cluster
// concerns.
func makeRequest(d draws, w *modelWorld) modelRequest {
	q := modelRequest{
		user:       makeUser(d),
		onTheWay:   oneIn(d, 2),
		verb:       oneOf(d, modelVerbs...),
		isResource: !oneIn(d, 12),
	}
	if oneIn(d, 12) {
		q.verb = oneOf(d, modelWords...)
	}
	if !q.isResource {
		q.url = oneOf(d, modelURLs...)
		if !strings.HasPrefix(q.verb, "impersonate") {
			q.verb = oneOf(d, "get", "post", "put", "delete", "options")
		}
	} else {
		q.group, q.resource, _ = strings.Cut(aKind(d), "/")
		q.version = oneOf(d, "v1", "v1", "v1", "v1", "v1", "v1", "v1beta1", "")
		if oneIn(d, 32) {
			q.version = ".."
		}
		if !oneIn(d, 3) {
			q.namespace = aNamespace(d)
		}
		q.name = aName(d)
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
	if q.onTheWay {
		if oneIn(d, 4) {
			q.real = makeUser(d)
			if oneIn(d, 4) { // with groups that the client sent
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
		id := aTenant(d)
		q.user, q.real, q.isResource, q.url, q.group, q.resource, q.announced = callerNamed(aUser(d), id), nil, true, "",
			"kubetenant.dev", "accessgrants", id
		if !oneIn(d, 4) {
			q.path, q.namespace, q.name, q.subresource, q.verb = "", "", "", "", oneOf(d, "list", "watch", "deletecollection")
		}
	case len(w.lines) > 0 && oneIn(d, 8):
		useLine(d, &q, oneOf(d, w.lines...))
	case oneIn(d, 12):
		useOwn(d, &q)
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

func useGrant(d draws, q *modelRequest, g modelGrant) {
	if len(g.verbs) == 0 {
		return
	}
	i := d.of(len(g.resources))
	q.user, q.real, q.path, q.isResource, q.url = callerNamed(oneOf(d, g.users...), g.tenant), nil, "", true, ""
	q.namespace, q.verb, q.group = g.namespace, oneOf(d, g.verbs...), g.apiGroups[i]
	q.resource, q.subresource, _ = strings.Cut(g.resources[i], "/")
	if len(g.only) > 0 {
		q.name = oneOf(d, g.only...)
	}
}

func useLine(d draws, q *modelRequest, l modelLine) {
	name, id := l.user, l.tenant
	if name == "" || name == "*" {
		name = aUser(d)
	}
	if id == "*" {
		id = aTenant(d)
	}
	q.user, q.real, q.path = callerNamed(name, id, strings.Split(l.group, ",")...), nil, ""
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

func makeSelectors(d draws, q *modelRequest) {
	var terms []string
	if !q.isResource || !oneIn(d, 2) && q.verb != "list" && q.verb != "watch" {
		return
	}
	for range d.of(3) {
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
	case q.onTheWay && oneIn(d, 12):
		q.twice = true
	}
	if q.kind() == "kubetenant.dev/accessgrants" && q.announced == "" && oneIn(d, 2) {
		q.announced = aTenant(d)
	}
	switch {
	case q.announced != "":
		q.fields = "spec.from.tenant=" + q.announced + ",spec.announce=true,status.announcedTo=" + q.announced
	case oneIn(d, 3):
		for range d.of(3) {
			terms = append(terms, oneOf(d, "metadata.name=y", "metadata.name!=y", "spec.tenant="+aTenant(d),
				"metadata.name="+oneOf(d, "quota-", "own-")+aTenant(d)))
		}
		if q.name != "" && (q.verb == "list" || q.verb == "watch") && !oneIn(d, 4) {
			terms = append(terms, "metadata.name="+q.name) // RequestInfo reads the name from it
		}
		q.fields = strings.Join(terms, ",")
	}
}

// useOwn changes the request to one for an object about a tenant.
func useOwn(d draws, q *modelRequest) {
	id := oneOf(d, "a", "b", "acme")
	q.user, q.real, q.path, q.isResource, q.url = callerNamed(aUser(d), id), nil, "", true, ""
	q.group, q.resource, _ = strings.Cut(oneOf(d, "kubetenant.dev/tenantquotas", "kubetenant.dev/reports"), "/")
	q.namespace, q.subresource = "", ""
	q.verb = oneOf(d, "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
	q.name = oneOf(d, "", "", ownName(q.kind(), id), "x", "quota-"+aTenant(d), "own-"+aTenant(d))
}
