// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"errors"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/tenant"
)

// MalformedTenantPath is the message of every 400 response to a path with a malformed tenant
// part. It does not repeat the path. "kubectl tenant" uses it to recognize a server that serves
// tenant paths.
const MalformedTenantPath = "malformed tenant segment in the path"

var errTenantPath = errors.New(MalformedTenantPath)

// tenantPath is the tenant part of a request's path. The zero value means that the path has no
// tenant part.
type tenantPath struct {
	id  tenant.ID // the tenant that the path names
	all bool      // the path names all tenants
}

func (p tenantPath) String() string {
	if p.all {
		return "all"
	}
	return p.id.String()
}

const tenantsSegment = "/tenants/"

// OlderPaths reports whether a path /api/<version>/tenants/<id>/... or
// /apis/<group>/<version>/tenants/<id>/... of a resource is an older form of a tenant path. It
// MUST return false for a group that serves its own resource "tenants". If nil, no such path is a
// tenant path.
type OlderPaths func(schema.GroupResource) bool

// cutTenantPath removes the tenant part from a URL whose path continues after that part. If there
// is no tenant part to remove, the returned URL is nil and the path keeps its usual meaning.
func cutTenantPath(u *url.URL, older OlderPaths) (tenantPath, *url.URL, error) {
	escaped := u.EscapedPath()
	before, isOlder := beforeOlderPart(escaped, older)
	after, found := strings.CutPrefix(escaped[len(before):], tenantsSegment)
	name, rest, more := strings.Cut(after, "/")
	if !found || !more || rest == "" {
		return tenantPath{}, nil, nil
	}
	path := tenantPath{all: name == "all"}
	if !path.all {
		id, err := tenant.Parse(name) // an escape or a dot segment is not a valid tenant
		if err != nil {
			return tenantPath{}, nil, errTenantPath
		}
		path.id = id
	}
	if first, _, _ := strings.Cut(rest, "/"); first == "tenants" || first == "" {
		return tenantPath{}, nil, errTenantPath
	}
	stripped := *u
	part := len(tenantsSegment) + len(name) // the name has no escapes
	stripped.Path = before + u.Path[len(before)+part:]
	if u.RawPath != "" {
		stripped.RawPath = before + u.RawPath[len(before)+part:]
	}
	if _, nested := beforeOlderPart(stripped.EscapedPath(), older); nested && !isOlder {
		return tenantPath{}, nil, errTenantPath
	}
	return path, &stripped, nil
}

// beforeOlderPart returns the text in front of the tenant part of a path in the older form. It
// returns false if the path does not have this form.
func beforeOlderPart(escaped string, older OlderPaths) (string, bool) {
	if older == nil {
		return "", false
	}
	segments := strings.Split(escaped, "/") // the first is empty
	var group string
	at := 3 // the index of "tenants"
	if len(segments) > 2 && segments[1] == "apis" {
		group = segments[2]
		at = 4
	}
	if len(segments) < at+3 || segments[at] != "tenants" || segments[1] != "api" && segments[1] != "apis" {
		return "", false
	}
	rest := segments[at+2:]
	resource := rest[0]
	if resource == "namespaces" && len(rest) > 2 && rest[2] != "" {
		if resource = rest[2]; group == "" && len(rest) == 3 && (resource == "status" || resource == "finalize") {
			resource = "namespaces" // the subresource of the Namespace itself
		}
	}
	before := strings.Join(segments[:at], "/")
	if strings.Contains(before, "%") || !older(schema.GroupResource{Group: group, Resource: resource}) {
		return "", false
	}
	return before, true
}
