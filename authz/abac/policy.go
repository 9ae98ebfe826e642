// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package abac reads policies of attribute-based access control from a file with one JSON object on
// each line. A policy line names the tenant of its callers and the tenant that owns the objects. If
// the two differ, the line allows cross-tenant requests. Only the administrator of the cluster, who
// writes the file, can permit such requests.
//
// The format is that of kube-apiserver (k8s.io/kubernetes pkg/auth/authorizer/abac, v1.37.1), with
// additional fields and with strict decoding.
package abac

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/json"

	"github.com/kubetenant/kubetenant/tenant"
)

const (
	apiVersion = "abac.authorization.kubernetes.io/v1beta1"
	kind       = "Policy"
	wildcard   = "*"

	// maxLine is the maximum length of a line, in bytes. Upstream has the same limit
	// (bufio.Scanner).
	maxLine = 64 * 1024
)

var (
	errNotObject = errors.New("not a JSON object")
	errTooLong   = errors.New("longer than 64 KiB")
	errKind      = errors.New("apiVersion must be " + apiVersion + " and kind " + kind +
		", or both must be omitted for the old format")
	errNoSubject = errors.New("spec: user or group is required")
	errHalfAny   = errors.New("\"*\" may not be combined with a user or group name: the line would apply to every caller")
	errNothing   = errors.New("spec: resource or nonResourcePath is required")
	errNoSpace   = errors.New("space is required if tenant is set: otherwise the line would apply to the system " +
		"tenant's space")
	errOldFields  = errors.New("the old format may not have apiGroup or nonResourcePath")
	errOldAndSpec = errors.New("the old format may not have spec")
)

// tenantMatcher specifies one tenant or any tenant. The zero value matches no tenant.
type tenantMatcher struct {
	id  tenant.ID
	any bool
}

func (t tenantMatcher) matches(id tenant.ID) bool { return !id.IsZero() && (t.any || t.id == id) }

// line is one policy. In the index, each line applies either to resources or to paths.
type line struct {
	number                              int // in the file, from 1
	user, group                         string
	tenant, owner                       tenantMatcher
	readonly                            bool
	apiGroup, resource, namespace, path string
}

// Policy is a policy file, indexed by subject. The zero value allows nothing. A Policy does not
// change and is safe for concurrent use.
type Policy struct {
	subjects  map[subject]map[string][]*line // then keyed by namespace; paths have the wildcard
	anyTenant bool                           // some line applies to callers of any tenant
}

// subject is a user or a group of one tenant or of any tenant.
type subject struct {
	tenantMatcher
	name    string
	isGroup bool
}

// fields are the fields of a policy. In the old format, they are the whole object. A nil pointer
// means that the field is missing.
type fields struct {
	User            string  `json:"user"`
	Group           string  `json:"group"`
	Tenant          *string `json:"tenant"`
	Space           *string `json:"space"`
	Readonly        bool    `json:"readonly"`
	APIGroup        *string `json:"apiGroup"`
	Resource        string  `json:"resource"`
	Namespace       string  `json:"namespace"`
	NonResourcePath *string `json:"nonResourcePath"`
}

// Parse parses a policy file. The error names the first invalid line, but never contains its
// content.
func Parse(data []byte) (*Policy, error) {
	p := &Policy{subjects: map[subject]map[string][]*line{}}
	number := 0
	for text := range bytes.Lines(data) {
		number++
		text = bytes.TrimSpace(text)
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		l, err := parseLine(text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		l.number = number
		p.add(l)
	}
	return p, nil
}

func parseLine(text []byte) (*line, error) {
	switch {
	case len(text) > maxLine:
		return nil, errTooLong
	case text[0] != '{':
		return nil, errNotObject
	}
	// An object with an unknown version or kind must not be parsed as the old format.
	var form map[string]any
	if _, err := json.UnmarshalStrict(text, &form); err != nil {
		return nil, err
	}
	_, hasVersion := form["apiVersion"]
	_, hasKind := form["kind"]
	if _, hasSpec := form["spec"]; !hasVersion && !hasKind {
		if hasSpec {
			return nil, errOldAndSpec
		}
		return parseOld(text)
	}
	var policy struct {
		APIVersion string  `json:"apiVersion"`
		Kind       string  `json:"kind"`
		Spec       *fields `json:"spec"`
	}
	if err := decode(text, &policy); err != nil {
		return nil, err
	}
	if policy.APIVersion != apiVersion || policy.Kind != kind {
		return nil, errKind
	}
	if policy.Spec == nil {
		return nil, errNoSubject
	}
	return policy.Spec.line()
}

// decode decodes strictly. Unknown keys, duplicate keys, and keys in another case are errors.
func decode(text []byte, into any) error {
	problems, err := json.UnmarshalStrict(text, into)
	return errors.Join(append(problems, err)...)
}

func (f *fields) line() (*line, error) {
	l := &line{
		user:      f.User,
		group:     f.Group,
		readonly:  f.Readonly,
		resource:  f.Resource,
		namespace: f.Namespace,
	}
	if f.APIGroup != nil {
		l.apiGroup = *f.APIGroup
	}
	if f.NonResourcePath != nil {
		l.path = *f.NonResourcePath
	}
	switch {
	case f.User == "" && f.Group == "":
		return nil, errNoSubject
	case l.resource == "" && l.path == "":
		return nil, errNothing
	}
	return l, l.complete(f)
}

// parseOld parses the unversioned format. A missing subject, resource or namespace matches all of
// them.
func parseOld(text []byte) (*line, error) {
	var f fields
	if err := decode(text, &f); err != nil {
		return nil, err
	}
	if f.APIGroup != nil || f.NonResourcePath != nil {
		return nil, errOldFields
	}
	l := &line{
		user:      f.User,
		group:     f.Group,
		readonly:  f.Readonly,
		apiGroup:  wildcard,
		resource:  f.Resource,
		namespace: f.Namespace,
	}
	if l.user == "" && l.group == "" {
		l.group = wildcard
	}
	if l.resource == "" && l.namespace == "" {
		l.path = wildcard
	}
	if l.namespace == "" {
		l.namespace = wildcard
	}
	if l.resource == "" {
		l.resource = wildcard
	}
	return l, l.complete(&f)
}

// complete parses the tenants of a line. It replaces the name "*" with the group of all
// authenticated callers, as upstream does.
func (l *line) complete(f *fields) error {
	if (l.user == wildcard || l.group == wildcard) && l.user != "" && l.group != "" && l.user != l.group {
		return errHalfAny
	}
	if l.user == wildcard || l.group == wildcard {
		l.user = ""
		l.group = user.AllAuthenticated
	}
	var err error
	if l.tenant, err = parseTenants("tenant", f.Tenant); err != nil {
		return err
	}
	if f.Space == nil && !l.tenant.id.IsSystem() {
		return errNoSpace
	}
	l.owner, err = parseTenants("space", f.Space)
	return err
}

func parseTenants(key string, text *string) (tenantMatcher, error) {
	if text == nil {
		return tenantMatcher{id: tenant.System()}, nil
	}
	if *text == wildcard {
		return tenantMatcher{any: true}, nil
	}
	id, err := tenant.Parse(*text)
	if err != nil {
		return tenantMatcher{}, fmt.Errorf("%s: %w", key, err)
	}
	return tenantMatcher{id: id}, nil
}

// add indexes the resources of a line by the line's namespace, and its path by the wildcard,
// because a path has no namespace.
func (p *Policy) add(l *line) {
	if l.path != "" {
		paths := *l
		paths.resource = ""
		p.index(wildcard, &paths)
	}
	if l.resource != "" {
		resources := *l
		resources.path = ""
		p.index(l.namespace, &resources)
	}
	p.anyTenant = p.anyTenant || l.tenant.any
}

func (p *Policy) index(namespace string, l *line) {
	key := subject{l.tenant, l.user, false}
	if l.user == "" {
		key = subject{l.tenant, l.group, true}
	}
	if p.subjects[key] == nil {
		p.subjects[key] = map[string][]*line{}
	}
	p.subjects[key][namespace] = append(p.subjects[key][namespace], l)
}

// matchesPath reports whether the line's path matches. It is nonResourceMatches of the upstream
// package.
func (l *line) matchesPath(path string) bool {
	return l.path == wildcard || l.path != "" && l.path == path ||
		strings.HasSuffix(l.path, wildcard) && strings.HasPrefix(path, strings.TrimRight(l.path, wildcard))
}
