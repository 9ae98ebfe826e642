// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/authz"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/reviews"
	"github.com/kubetenant/kubetenant/internal/tenantaudit"
	"github.com/kubetenant/kubetenant/tenant"
)

// OpenAudit opens the audit streams of a configuration. It returns nil if config is nil.
func OpenAudit(config *configv1alpha1.Audit) (*tenantaudit.Streams, error) {
	if config == nil {
		return nil, nil //nolint:nilnil // no streams are no error
	}
	const megabyte = 1 << 20
	return tenantaudit.Open(tenantaudit.Options{
		Directory:     config.Directory,
		MaxBytes:      int64(*config.MaxSizeMegabytes) * megabyte,
		MaxBackups:    *config.MaxBackups,
		MaxAge:        time.Duration(*config.MaxAgeDays) * 24 * time.Hour,
		MaxTotalBytes: int64(*config.MaxTotalMegabytes) * megabyte,
	})
}

// AuditResolver returns the resolver that determines to which tenants this server's audit events
// belong. The resolver reads only caches.
func (s *Stack) AuditResolver() *tenantaudit.Resolver {
	return &tenantaudit.Resolver{
		CallerKey: authz.CallerTenantAuditAnnotation,
		OwnerKey:  authz.OwnerTenantAuditAnnotation,
		Caller: func(caller, as user.Info, at time.Time) (authenticated, acting tenant.ID) {
			return s.current.Load().boundary.AuditEventTenants(caller, as, at)
		},
		Owner: func(namespace string, at time.Time) tenant.ID {
			return s.current.Load().boundary.AuditEventOwner(namespace, at)
		},
		Stream: s.auditStreamAt,
	}
}

// auditStreamAt returns the audit stream of a tenant for an event at the given time. It returns
// false if the tenant has no stream, or if an earlier tenant of the same name may have caused the
// event.
func (s *Stack) auditStreamAt(id tenant.ID, at time.Time) (tenantaudit.Stream, bool) {
	if of := s.shared.cluster.tenants; of != nil && !id.IsZero() && !id.IsSystem() {
		if authz.MayPrecede(at, of.Lineage(id).Created) {
			return "", false
		}
	}
	return s.AuditStream(id)
}

// AuditStream returns the audit stream of a tenant. It returns false if the tenant was deleted,
// if it has neither a Tenant object nor a namespace, or if it is unknown whether it has a Tenant
// object.
func (s *Stack) AuditStream(id tenant.ID) (tenantaudit.Stream, bool) {
	of := s.shared.cluster.tenants
	switch {
	case id.IsZero():
		return "", false
	case id.IsSystem():
		return tenantaudit.System, true
	case of == nil:
		return tenantaudit.StreamOf(id, ""), s.HasTenant(id)
	case of.Access(id) == authz.AccessUnknown:
		return "", false
	}
	lineage := of.Lineage(id)
	if lineage.UID == "" {
		return tenantaudit.StreamOf(id, ""), len(lineage.Retired) == 0 && s.HasTenant(id)
	}
	return tenantaudit.StreamOf(id, lineage.UID), true
}

// ServeAudit makes the filters of the Stack serve the streams at [authz.AuditPath]. It MUST be
// called before the server handles requests.
func (s *Stack) ServeAudit(streams *tenantaudit.Streams) { s.shared.audit = streams }

func isAuditRequest(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == authz.AuditPath
}

// errAuditTenant is the error for a caller that requests the stream of another tenant. The error is
// the same whether or not the other tenant exists.
var errAuditTenant = errors.New("a caller can only read the audit stream of its own tenant")

// withAudit serves callers of tenants the audit stream of their own tenant. Only the caller's
// identity determines the stream. The server MUST have authorized the request.
func (s *Stack) withAudit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.shared.audit == nil || !isAuditRequest(r) {
			next.ServeHTTP(w, r)
			return
		}
		u, _ := request.UserFrom(r.Context())
		id, _, err := s.Subject(r.Context(), u)
		if err != nil || id.IsZero() {
			reviews.Respond(w, r, forbiddenAudit(errAuditTenant))
			return
		}
		if id.IsSystem() {
			next.ServeHTTP(w, r)
			return
		}
		(&AuditReader{Streams: s.shared.audit, Stream: s.AuditStream}).Serve(w, r, id)
	})
}

// WithAllTenantsAudit serves callers of the system tenant the audit stream of any tenant. The
// filter MUST run inside [Stack.WithTenant]. It does not handle requests whose path names a
// tenant, because these requests are limited to that tenant. The server MUST have authorized the
// request.
func (s *Stack) WithAllTenantsAudit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.shared.audit != nil && isAuditRequest(r) && authz.PathTenant(r.Context()).IsZero() {
			u, _ := request.UserFrom(r.Context())
			if id, _, err := s.Subject(r.Context(), u); err == nil && id.IsSystem() {
				(&AuditReader{Streams: s.shared.audit, Stream: s.AuditStream}).Serve(w, r, id)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// AuditReader serves audit streams over HTTP.
type AuditReader struct {
	Streams *tenantaudit.Streams
	// Stream is [Stack.AuditStream].
	Stream func(id tenant.ID) (tenantaudit.Stream, bool)
	// Cluster is the name of the cluster whose records are served. If empty, the records are not
	// filtered by cluster.
	Cluster string
	// ResolveTenant translates the tenant ID in a query. It is not called for the system tenant. If
	// nil, the tenant ID is used unchanged.
	ResolveTenant func(tenant.ID) tenant.ID
}

// Serve handles a request by a caller of tenant id. A caller of the system tenant reads the
// stream of the tenant that the query names. Without a tenant in the query, it reads the stream
// of the system tenant. Any other caller reads the stream of its own tenant. Its query may name
// only this tenant.
func (a *AuditReader) Serve(w http.ResponseWriter, r *http.Request, id tenant.ID) {
	query, err := tenantaudit.ParseQuery(r.URL.RawQuery)
	if err != nil {
		reviews.Respond(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	end, ok := a.Streams.BeginRead(a.Cluster, id)
	if !ok {
		reviews.Respond(w, r, apierrors.NewTooManyRequests("the tenant reads too many audit streams at a time", 1))
		return
	}
	defer end()
	if query.Tenant != "" {
		named, err := tenant.Parse(query.Tenant)
		if err == nil && a.ResolveTenant != nil && !named.IsSystem() {
			named = a.ResolveTenant(named)
		}
		switch {
		case !id.IsSystem() && (err != nil || named != id):
			reviews.Respond(w, r, forbiddenAudit(errAuditTenant))
			return
		case err != nil:
			reviews.Respond(w, r, apierrors.NewBadRequest("tenant is not the name of a tenant"))
			return
		}
		id = named
	}
	stream, found := a.Stream(id)
	if !found {
		reviews.Respond(w, r, apierrors.NewNotFound(schema.GroupResource{Resource: "audit streams"}, id.String()))
		return
	}
	query.Filter.Cluster = a.Cluster
	a.Streams.Serve(w, r, stream.In(a.Cluster), query.Filter)
}

func forbiddenAudit(err error) *apierrors.StatusError {
	return apierrors.NewForbidden(schema.GroupResource{}, "", err)
}

// AuditStreams contains the audit streams of an API server and the backend that writes them.
type AuditStreams struct {
	streams *tenantaudit.Streams
	backend audit.Backend
	metrics *tenantaudit.Metrics
}

// OpenStackAudit opens the audit streams that the configuration of s specifies, and makes s serve
// them. It returns nil if the configuration specifies none.
func OpenStackAudit(s *Stack) (*AuditStreams, error) {
	streams, err := OpenAudit(s.current.Load().config.Audit)
	if err != nil || streams == nil {
		return nil, err
	}
	s.ServeAudit(streams)
	records := tenantaudit.NewMetrics()
	backend := tenantaudit.NewBackend(tenantaudit.NewSink(streams, records))
	return &AuditStreams{streams, backend.For(s.AuditResolver()), records}, nil
}

// Backend returns the backend that writes events into the streams. The server MUST run the backend
// and shut it down.
func (a *AuditStreams) Backend() audit.Backend { return &closingBackend{a.backend, a.streams} }

// Metrics returns the metrics of the streams.
func (a *AuditStreams) Metrics() []metrics.Registerable { return a.metrics.Registerables() }

// closingBackend is a backend that closes the streams after the last event.
type closingBackend struct {
	audit.Backend
	streams *tenantaudit.Streams
}

// Shutdown implements [audit.Backend].
func (c *closingBackend) Shutdown() {
	c.Backend.Shutdown()
	_ = c.streams.Close() // an error loses no record, because each record has been synced
}
