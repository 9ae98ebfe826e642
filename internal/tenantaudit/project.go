// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantaudit

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubetenant/kubetenant/tenant"
)

// Resolver determines the tenants and the streams of events. Caller, Owner and Stream are required.
// They MUST be safe for concurrent use and return quickly.
type Resolver struct {
	// Caller returns the tenant of the authenticated user real at the given time. If as is not nil,
	// real impersonated the user as, and acting is the tenant for which real acted. Otherwise, acting
	// equals authenticated. An unknown tenant is zero.
	Caller func(real, as user.Info, at time.Time) (authenticated, acting tenant.ID)
	// Owner returns the tenant that owned a namespace at the given time. It returns the zero ID if no
	// tenant owned the namespace, or if the owner is unknown.
	Owner func(namespace string, at time.Time) tenant.ID
	// Stream returns the stream of a tenant for an event at the given time. It returns false if the
	// tenant has no stream.
	Stream func(id tenant.ID, at time.Time) (Stream, bool)
	// Name returns the name of a tenant in records. If nil, the ID is the name.
	Name func(tenant.ID) string
	// CallerKey and OwnerKey are the keys of the audit annotations that specify the tenant of the
	// caller and the tenant that owns the object. The boundary writes these annotations. The keys MUST
	// be empty if another server writes the events.
	CallerKey, OwnerKey string
	// Cluster is the name of the cluster to which the events belong. The streams of each cluster
	// have their own files. If empty, the server serves only one cluster.
	Cluster string
}

// Placed contains a record and the stream that it belongs to.
type Placed struct {
	Stream Stream
	Record *Record
}

// The owner of an object gets a record only of an event with this annotation and value.
const (
	// decisionAnnotation is the key of the audit annotation whose value is "allow" if authorization
	// allowed the request (k8s.io/apiserver pkg/endpoints/filters/authorization.go, v0.37.1).
	decisionAnnotation = "authorization.k8s.io/decision"
	decisionAllow      = "allow"
)

// Project returns the records of an event:
//
//   - one for [System]
//   - one for the stream of the caller's tenant, unless it is the system tenant
//   - one for the stream of the tenant that owns the object, if a caller of another tenant wrote
//     the object and authorization allowed the request. This record contains the tenant of the
//     caller, but not the name of the caller.
//
// A request that was not authenticated has records only in the system's stream and in
// [Unauthenticated]. A denied anonymous request has a record in [Unauthenticated] too. An event of
// the stage RequestReceived has no records, because a later event of the same request contains the
// result.
func Project(event *auditinternal.Event, r *Resolver) []Placed {
	if event.Stage == auditinternal.StageRequestReceived {
		return nil
	}
	all := r.project(event)
	for i := range all {
		all[i].Stream = all[i].Stream.In(r.Cluster)
	}
	return all
}

// project returns the records of an event. The names of their streams do not contain the cluster
// yet.
func (r *Resolver) project(event *auditinternal.Event) []Placed {
	whole := newRecord(event, r.Cluster)
	if event.User.Username == "" {
		whole.Tenant = noTenant
		return []Placed{{System, &whole}, {Unauthenticated, &whole}}
	}
	at := event.RequestReceivedTimestamp.Time
	authenticated, acting := r.callerOf(event, at)
	whole.Tenant = r.nameOf(acting)
	own := whole
	if event.ImpersonatedUser != nil && authenticated.IsSystem() {
		whole.User = truncate(event.ImpersonatedUser.Username, nameBytes)
		whole.ImpersonatedBy = truncate(event.User.Username, nameBytes)
		own.User, own.ImpersonatedBy = whole.User, tenant.System().String()
		own.ID = generatedID(own.ID)
	} else {
		whole.setCaller(&event.User)
		own.setCaller(&event.User)
	}
	all := []Placed{{System, &whole}}
	if isUnauthenticated(event) {
		all = append(all, Placed{Unauthenticated, &whole})
	}
	if isOrdinaryTenant(acting) {
		if stream, ok := r.Stream(acting, at); ok {
			all = append(all, Placed{stream, &own})
		}
	}
	owner := r.ownerOf(event, whole.Namespace, at)
	if !isOrdinaryTenant(owner) || owner == acting {
		return all
	}
	if stream, ok := r.Stream(owner, at); ok {
		all = append(all, Placed{stream, ownerRecord(&whole)})
	}
	return all
}

// callerOf returns the tenants of the users of an event. The annotation of the boundary takes
// precedence for the acting tenant, because the boundary knew the tenant at the time of the
// request. The namespace of a service account may have been created or deleted since.
func (r *Resolver) callerOf(event *auditinternal.Event, at time.Time) (authenticated, acting tenant.ID) {
	authenticated, acting = r.Caller(infoOf(&event.User), infoOf(event.ImpersonatedUser), at)
	annotated, ok := annotatedTenant(event, r.CallerKey)
	switch {
	case !ok:
		return authenticated, acting
	case event.ImpersonatedUser == nil:
		return annotated, annotated
	case authenticated.IsSystem():
		return authenticated, annotated
	}
	return authenticated, acting
}

// annotatedTenant returns the tenant that an annotation of an event specifies. The tenant is zero
// if the annotation is invalid. ok is false if the event has no such annotation.
func annotatedTenant(event *auditinternal.Event, key string) (id tenant.ID, ok bool) {
	text, ok := event.Annotations[key]
	if !ok || key == "" {
		return tenant.ID{}, false
	}
	id, err := tenant.Parse(text)
	if err != nil {
		return tenant.ID{}, true
	}
	return id, true
}

func isOrdinaryTenant(id tenant.ID) bool { return !id.IsZero() && !id.IsSystem() }

// newRecord returns the record of an event without its caller.
func newRecord(event *auditinternal.Event, cluster string) Record {
	out := Record{
		Cluster: cluster,
		Time:    event.StageTimestamp.UTC(),
		ID:      truncate(string(event.AuditID), idBytes),
		Stage:   truncate(string(event.Stage), idBytes),
		Verb:    truncate(event.Verb, nameBytes),
	}
	if event.ResponseStatus != nil {
		out.Code = event.ResponseStatus.Code
	}
	path, _, _ := strings.Cut(event.RequestURI, "?")
	ref := event.ObjectRef
	if ref == nil {
		out.Path = truncate(path, pathBytes)
		return out
	}
	out.Group = truncate(ref.APIGroup, nameBytes)
	out.Resource = truncate(ref.Resource, nameBytes)
	out.Subresource = truncate(ref.Subresource, nameBytes)
	out.Name = truncate(ref.Name, nameBytes)
	if ref.Namespace != "" && namespaceIn(path) == ref.Namespace {
		out.Namespace = truncate(ref.Namespace, nameBytes)
	}
	return out
}

// namespaceIn returns the namespace in the path of a request, as the server parses it. The
// namespace in an event can also come from the request body if the resource has no namespace. A
// caller could write any namespace in a body.
func namespaceIn(path string) string {
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return ""
	}
	info, err := requestInfos().NewRequestInfo(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: decoded}})
	if err != nil {
		return ""
	}
	return info.Namespace
}

// requestInfos returns a parser of paths that is configured as in an API server (k8s.io/apiserver
// pkg/server, v0.37.1).
func requestInfos() *request.RequestInfoFactory {
	return &request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}
}

// setCaller adds the name, the source and the credential ID of the caller to a record.
func (r *Record) setCaller(u *authenticationv1.UserInfo) {
	r.User = truncate(u.Username, nameBytes)
	r.Source = singleValue(u.Extra[tenant.SourceKey])
	r.CredentialID = singleValue(u.Extra[user.CredentialIDKey])
}

func singleValue(values []string) string {
	if len(values) != 1 {
		return ""
	}
	return truncate(values[0], nameBytes)
}

// ownerRecord returns the record for the owner of the object. It does not identify the caller.
func ownerRecord(r *Record) *Record {
	out := *r
	out.User, out.ImpersonatedBy, out.Source, out.CredentialID, out.Path = "", "", "", "", ""
	out.ID = generatedID(out.ID)
	return &out
}

// generatedID returns the given audit ID if it is a UUID, as a server generates it, or "". A client
// can choose any ID for its request, for example an ID that contains the name of another tenant.
func generatedID(id string) string {
	if !isUUID(id) {
		return ""
	}
	return id
}

// ownerOf returns the tenant that gets a record because it owns the object, or zero if there is
// none. A read, or a request that was not allowed, creates no record for the owner. Otherwise,
// any caller could fill another tenant's stream.
func (r *Resolver) ownerOf(event *auditinternal.Event, namespace string, at time.Time) tenant.ID {
	switch status := event.ResponseStatus; {
	case event.ObjectRef == nil || !isWrite(event.Verb, event.ObjectRef.Subresource),
		event.Annotations[decisionAnnotation] != decisionAllow,
		status != nil && (status.Code == http.StatusForbidden || status.Code == http.StatusUnauthorized):
		return tenant.ID{}
	}
	if id, ok := annotatedTenant(event, r.OwnerKey); ok {
		return id
	}
	if namespace == "" {
		return tenant.ID{}
	}
	return r.Owner(namespace, at)
}

// isWrite reports whether a request can change an object or connect to a Pod.
func isWrite(verb, subresource string) bool {
	return !slices.Contains([]string{"get", "list", "watch"}, verb) ||
		slices.Contains([]string{"exec", "attach", "portforward", "proxy"}, subresource)
}

func (r *Resolver) nameOf(id tenant.ID) string {
	switch {
	case id.IsZero():
		return noTenant
	case id.IsSystem() || r.Name == nil:
		return id.String()
	}
	if name := r.Name(id); name != "" {
		return name
	}
	return noTenant
}

// infoOf converts a user of an event. It returns nil for nil.
func infoOf(u *authenticationv1.UserInfo) user.Info {
	if u == nil {
		return nil
	}
	out := &user.DefaultInfo{
		Name:   u.Username,
		UID:    u.UID,
		Groups: u.Groups,
		Extra:  make(map[string][]string, len(u.Extra)),
	}
	for key, values := range u.Extra {
		out.Extra[key] = values
	}
	return out
}
