// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"fmt"
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// The targets of requests, as the table in the report names them.
const (
	targetOwn           = "own"
	targetForeign       = "another tenant"
	targetSystem        = "system"
	targetMissing       = "missing namespace"
	targetCluster       = "cluster scope"
	targetAll           = "all namespaces"
	targetPath          = "tenant paths"
	targetImpersonation = "impersonation"
	targetAdmission     = "own, admission"
)

// targets are the targets in the order of the table.
var targets = []string{
	targetOwn,
	targetForeign,
	targetSystem,
	targetMissing,
	targetCluster,
	targetAll,
	targetPath,
	targetImpersonation,
	targetAdmission,
}

// callers are the callers in the order of the table.
var callers = []string{callerUser, callerAccount, callerNoTenant, callerAnonymous}

// The callers, as the table in the report names them.
const (
	callerUser      = "tenant user"
	callerAccount   = "tenant service account"
	callerNoTenant  = "user without tenant"
	callerAnonymous = "anonymous"
)

// probe is one request.
type probe struct {
	target, method, path string
	body                 []byte
	header               http.Header
	group                string // the verb and the resource, for the report
	own                  bool   // the request is for the caller's own tenant, so authorization must allow it
	// limited judges the response to a request that authorization may allow, although the
	// request is not limited to the caller's own namespaces. It may be nil.
	limited func(answer) (Outcome, string)
	// unserved specifies that kube-apiserver may not support this operation. A 404 or 405 response
	// is then recorded as [Limited].
	unserved bool
	review   *authorizationv1.ResourceAttributes
}

const name = "probe"

// contentTypes contains the content types of the request bodies, keyed by verb.
var contentTypes = map[string][]string{
	"create": {"application/json"},
	"update": {"application/json"},
	"patch": {
		"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json",
		"application/apply-patch+yaml",
	},
}

// probes returns all requests of a caller for a resource.
func (m *matrix) probes(c *caller, r resource) []probe {
	if !r.namespaced {
		return m.clusterProbes(c, r)
	}
	w := m.fixture
	var all []probe
	if c.own >= 0 && !r.matches("authorization.k8s.io", "localsubjectaccessreviews") { // the boundary denies it by design
		for _, p := range r.requests(w.namespace(c.own), targetOwn) {
			p.own = true
			all = append(all, p)
		}
	}
	for target, ns := range map[string]string{
		targetForeign: w.namespace(1),
		targetSystem:  systemNamespace,
		targetMissing: missingNamespace,
	} {
		all = append(all, r.requests(ns, target)...)
	}
	all = append(all, m.acrossProbes(c, r)...)
	if c.own >= 0 {
		all = append(all, m.pathProbes(c, r)...)
		all = append(all, m.impersonationProbes(c, r)...)
	}
	return all
}

// requests returns the requests for each verb of a resource, with variants such as content types
// and the deprecated watch path. If namespace is empty, the requests are at cluster scope.
func (r resource) requests(namespace, target string) []probe {
	var all []probe
	collection := r.path(namespace)
	object := collection + "/" + name
	if r.subresource != "" {
		object += "/" + r.subresource
	}
	attributes := func(verb, objectName string) *authorizationv1.ResourceAttributes {
		return &authorizationv1.ResourceAttributes{
			Namespace:   namespace,
			Verb:        verb,
			Group:       r.Group,
			Version:     r.Version,
			Resource:    r.name,
			Subresource: r.subresource,
			Name:        objectName,
		}
	}
	add := func(verb, method, path, objectName string) {
		types := contentTypes[verb]
		if types == nil {
			types = []string{""}
		}
		for _, contentType := range types {
			p := probe{
				target: target,
				method: method,
				path:   path,
				group:  verb + " " + r.String(),
				review: attributes(verb, objectName),
			}
			p.setBody(r.body(verb), contentType)
			all = append(all, p)
		}
	}
	for _, verb := range r.verbs {
		switch {
		case verb == "get":
			add(verb, http.MethodGet, object, name)
			if r.subresource == "proxy" {
				add(verb, http.MethodGet, object+"/some/path", name)
			}
		case verb == "create" && r.subresource != "":
			add(verb, http.MethodPost, query(object, "dryRun", "All"), name)
		case verb == "create":
			add(verb, http.MethodPost, query(collection, "dryRun", "All"), "")
		case verb == "update":
			add(verb, http.MethodPut, query(object, "dryRun", "All"), name)
		case verb == "patch":
			add(verb, http.MethodPatch, query(object, "dryRun", "All"), name)
		case verb == "delete":
			add(verb, http.MethodDelete, query(object, "dryRun", "All"), name)
		case verb == "deletecollection":
			add(verb, http.MethodDelete, query(collection, "dryRun", "All"), "")
		case verb == "list":
			add(verb, http.MethodGet, collection, "")
			add(verb, http.MethodGet, query(collection, "fieldSelector", "metadata.name="+name), name)
			add(verb, http.MethodGet, query(collection, "limit", "1"), "")
		case verb == "watch":
			add(verb, http.MethodGet, query(collection, "watch", "true"), "")
			add(verb, http.MethodGet, oldWatch(collection), "")
		}
	}
	return all
}

// setBody sets the body and its content type. If contentType is empty, the request has no body.
func (p *probe) setBody(body, contentType string) {
	if contentType == "" {
		return
	}
	p.body = []byte(body)
	p.header = http.Header{"Content-Type": {contentType}}
	switch contentType {
	case contentTypes["patch"][0]:
		p.body = []byte("[]")
	case contentTypes["patch"][3]:
		p.path += "&fieldManager=isolation"
	}
}

// bodies are the bodies of create requests, keyed by resource. They are for resources for which
// kube-apiserver responds to an empty object with a 500.
var bodies = map[string]string{
	"bindings": `{"metadata":{"name":"probe"},"target":{"kind":"Node","name":"probe"}}`,
	"rolebindings.rbac.authorization.k8s.io": `{"metadata":{"name":"probe"},` +
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"probe"}}`,
}

// body returns the body of a request with the given verb.
func (r *resource) body(verb string) string {
	if body := bodies[r.String()]; body != "" && verb == "create" {
		return body
	}
	return "{}"
}

// oldWatch returns the deprecated watch path of a collection, which needs no watch parameter.
func oldWatch(collection string) string {
	parts := strings.SplitN(collection, "/", 5) // "", api, v1, rest or "", apis, group, version, rest
	if parts[1] == "api" {
		return "/api/" + parts[2] + "/watch/" + strings.Join(parts[3:], "/")
	}
	return strings.Join(parts[:4], "/") + "/watch/" + parts[4]
}

// acrossProbes returns requests over all namespaces, with selectors that a server might wrongly
// treat as limited to a tenant. It returns none for a subresource.
func (m *matrix) acrossProbes(c *caller, r resource) []probe {
	if r.subresource != "" {
		return nil
	}
	var all []probe
	w := m.fixture
	var verb string
	add := func(method, path string, review *authorizationv1.ResourceAttributes) {
		p := probe{
			target: targetAll,
			method: method,
			path:   path,
			group:  verb + " " + r.String(),
			review: review,
		}
		if c.own >= 0 {
			p.limited = w.onlyOwn(c.own, path)
			p.unserved = method == http.MethodDelete
		}
		all = append(all, p)
	}
	attributes := func(verb string) *authorizationv1.ResourceAttributes {
		return &authorizationv1.ResourceAttributes{
			Verb:     verb,
			Group:    r.Group,
			Version:  r.Version,
			Resource: r.name,
		}
	}
	collection := r.path("")
	foreign := w.tenants[1].String()
	for _, verb = range r.verbs {
		switch verb {
		case "list":
			add(http.MethodGet, collection, attributes(verb))
			for _, selector := range []string{
				tenant.Label + "=" + foreign, tenant.Label + " in (" + foreign + ")", "!" + tenant.Label, tenant.Label,
				tenant.Label + "!=x", "a=b",
			} {
				add(http.MethodGet, query(collection, "labelSelector", selector), nil)
			}
			add(http.MethodGet, query(collection, "labelSelector", "", "labelSelector", tenant.Label+"="+foreign), nil)
			add(http.MethodGet, query(collection, "fieldSelector", "metadata.namespace="+w.namespace(1)), nil)
			add(http.MethodGet, query(collection, "fieldSelector", "metadata.name="+w.canary(1)), nil)
			add(http.MethodGet, query(collection, "continue", "anything"), nil)
			add(http.MethodGet, query(collection, "limit", "1"), nil)
			if c.own >= 0 {
				own := tenant.Label + "=" + w.tenants[c.own].String()
				add(http.MethodGet, query(collection, "limit", "1", "labelSelector", own), nil)
			}
			add(http.MethodGet, query(collection, "resourceVersion", "0"), nil)
		case "watch":
			add(http.MethodGet, query(collection, "watch", "true", "timeoutSeconds", "1"), attributes(verb))
			add(http.MethodGet, query(oldWatch(collection), "timeoutSeconds", "1"), nil)
		case "deletecollection":
			add(http.MethodDelete, query(collection, "dryRun", "All"), attributes(verb))
		case "create":
			p := probe{
				target: targetAll,
				method: http.MethodPost,
				path:   query(collection, "dryRun", "All"),
				group:  verb + " " + r.String(),
				body:   []byte("{}"),
				header: http.Header{"Content-Type": {"application/json"}},
			}
			all = append(all, p)
		}
	}
	return all
}

// pathProbes returns requests with a tenant path, in the current form (the path begins with the
// tenant) and the older form.
func (m *matrix) pathProbes(c *caller, r resource) []probe {
	w := m.fixture
	own, foreign := "/tenants/"+w.tenants[c.own].String(), "/tenants/"+w.tenants[1].String()
	var all []probe
	for prefix, namespaces := range map[string][]string{
		foreign:                                {w.namespace(1), w.namespace(c.own)},
		own:                                    {w.namespace(1), systemNamespace},
		"/tenants/all":                         {w.namespace(1), w.namespace(c.own)},
		"/tenants/" + tenant.System().String(): {systemNamespace, w.namespace(c.own)},
	} {
		for _, ns := range namespaces {
			seen := map[string]bool{}
			for _, p := range r.requests(ns, targetPath) {
				// Send one request for each operation. Authorization runs before the body is
				// decoded, and requests without a tenant path test the content types.
				key := fmt.Sprint(p.method, p.review.Verb, p.review.Name, strings.Contains(p.path, "/watch/"))
				if seen[key] {
					continue
				}
				seen[key] = true
				p.review = nil
				older := p
				p.path = prefix + p.path
				all = append(all, p)
				if prefix == foreign {
					older.path = olderPath(older.path, prefix)
					all = append(all, older)
				}
			}
		}
	}
	return all
}

// olderPath returns a path in the older form, which has the tenant path part after the API
// version.
func olderPath(path, part string) string {
	at := 3 // "", api, v1
	if strings.HasPrefix(path, "/apis/") {
		at = 4
	}
	segments := strings.SplitN(path, "/", at+1)
	return strings.Join(segments[:at], "/") + part + "/" + segments[at]
}

// impersonationProbes returns requests that impersonate other identities. They use the first
// verb that the resource supports.
func (m *matrix) impersonationProbes(c *caller, r resource) []probe {
	w := m.fixture
	requests := r.requests(w.namespace(1), targetImpersonation)
	if !c.real || len(requests) == 0 {
		return nil
	}
	var all []probe
	for _, as := range []http.Header{
		{"Impersonate-User": {"system:serviceaccount:" + w.namespace(1) + ":" + robot}},
		{"Impersonate-User": {"system:serviceaccount:kube-system:namespace-controller"}},
		{"Impersonate-User": {"alice"}},
		{"Impersonate-User": {"alice"}, "Impersonate-Group": {w.tenants[1].Group()}},
		{"Impersonate-User": {"alice"}, "Impersonate-Group": {"system:masters"}},
		{"Impersonate-User": {"alice"}, "Impersonate-Extra-Kubetenant.dev%2ftenant": {w.tenants[1].String()}},
		{"Impersonate-User": {"system:kube-controller-manager"}},
		{"Impersonate-User": {"system:node:n1"}, "Impersonate-Group": {"system:nodes"}},
	} {
		p := requests[0]
		p.review = nil
		header := as.Clone()
		for key, value := range p.header {
			header[key] = value
		}
		p.header = header
		all = append(all, p)
	}
	return all
}

// limitedToOwn returns p, a list or watch, changed so that [onlyAbout] judges the response: it may
// contain only objects of tenant id. field is the spec field that names an object's tenant. A watch
// also gets a timeout.
func limitedToOwn(p probe, id tenant.ID, field string) probe {
	watch := isWatch(p.path)
	if watch {
		p.path = withTimeout(p.path) // otherwise, the events are not read
	}
	p.limited = onlyAbout(id, field, watch)
	return p
}

// clusterProbes returns requests for a cluster-scoped resource.
func (m *matrix) clusterProbes(c *caller, r resource) []probe {
	if r.matches("", "namespaces") {
		return m.namespaceProbes(c, r)
	}
	var all []probe
	for _, p := range r.requests("", targetCluster) {
		all = append(all, m.clusterProbe(c, r, p))
	}
	return all
}

// clusterProbe adds to a request for a cluster-scoped resource how its response is judged.
func (m *matrix) clusterProbe(c *caller, r resource, p probe) probe {
	if c.own < 0 {
		return p
	}
	// In webhook mode, the boundary denies these reviews, because it cannot limit the rules.
	if r.name == "selfsubjectrulesreviews" && m.fixture.mode == installation.Webhook {
		return p
	}
	read := p.method == http.MethodGet
	isMembers := r.matches(tenant.Domain, v1alpha1.ResourceTenantMembers)
	switch {
	case r.isSelf(), read && r.isShared():
		p.own = true
	case read && r.matches(tenant.Domain, v1alpha1.ResourceTenantQuotas):
		p = limitedToOwn(p, m.fixture.tenants[c.own], "tenant")
	case read && (r.matches(tenant.Domain, v1alpha1.ResourceTenants) || isMembers):
		p = limitedToOwn(p, m.fixture.tenants[c.own], "id")
	case p.method == http.MethodPost && r.subresource == "" && isMembers:
		// Admission must reject the TenantMembers of another tenant.
		other := m.fixture.tenants[1]
		p.body = fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"spec":{"id":%q}}`,
			v1alpha1.GroupVersion, v1alpha1.KindTenantMembers, other.ObjectName(), other)
		p.review = nil
		p.limited = rejectedByAdmission
	}
	return p
}

// namespaceProbes returns requests for Namespace objects.
func (m *matrix) namespaceProbes(c *caller, r resource) []probe {
	w := m.fixture
	var all []probe
	for target, ns := range map[string]string{
		targetForeign: w.namespace(1),
		targetSystem:  systemNamespace,
		targetMissing: missingNamespace,
		targetOwn:     w.namespace(0),
	} {
		for _, p := range r.requests("", target) {
			isObject := strings.Contains(p.path, "/namespaces/"+name)
			own := target == targetOwn && c.own >= 0 && r.subresource == ""
			switch {
			case target == targetOwn && (c.own < 0 || !isObject && r.subresource == ""):
				continue // sent with another target
			case isObject && p.method == http.MethodDelete && own:
				continue // deleting the caller's own namespace proves nothing more
			case isObject:
				p.path = strings.Replace(p.path, "/namespaces/"+name, "/namespaces/"+ns, 1)
				p.own = own
				p.review = nil
			case p.method == http.MethodPost:
				// Admission must reject a new namespace with another tenant's prefix.
				p.body = []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + w.tenants[1].String() + `--new"}}`)
				p.review = nil
				if c.own >= 0 {
					p.limited = rejectedByAdmission
				}
			case p.method == http.MethodGet && c.own >= 0: // lists and watches
				if isWatch(p.path) {
					p.path = withTimeout(p.path)
				}
				p.limited = w.onlyOwn(c.own, p.path)
				p.review = nil
			}
			all = append(all, p)
		}
	}
	return all
}

func withTimeout(path string) string {
	if strings.Contains(path, "?") {
		return path + "&timeoutSeconds=1"
	}
	return path + "?timeoutSeconds=1"
}
