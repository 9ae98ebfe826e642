// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubetenant/kubetenant/authz"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/internal/tenantaudit"
	"github.com/kubetenant/kubetenant/tenant"
)

// auditStreams are the audit streams of all clusters. Each stream belongs to one Tenant object of
// one cluster.
type auditStreams struct {
	streams *tenantaudit.Streams
	backend *tenantaudit.Backend
	policy  audit.PolicyRuleEvaluator // records all requests at level Metadata
	end     func()
}

// openAuditStreams opens the audit streams of the first version of the configuration. Later
// versions have no effect on the streams.
func (g *Gateway) openAuditStreams(ctx context.Context, config *configv1alpha1.Audit) error {
	if g.current.Load() != nil || g.audits != nil {
		return nil
	}
	streams, err := stack.OpenAudit(config)
	if err != nil || streams == nil {
		return err
	}
	backend := tenantaudit.NewBackend(tenantaudit.NewSink(streams, g.metrics.streams))
	stop := make(chan struct{})
	if err := backend.Run(stop); err != nil {
		return err
	}
	g.audits = &auditStreams{
		streams: streams,
		backend: backend,
		policy: policy.NewPolicyRuleEvaluator(&auditinternal.Policy{
			Rules: []auditinternal.PolicyRule{{Level: auditinternal.LevelMetadata}},
		}),
		end: sync.OnceFunc(func() {
			close(stop)
			backend.Shutdown()
			_ = streams.Close() // each record has already been synced
		}),
	}
	context.AfterFunc(ctx, g.audits.end)
	return nil
}

// resolver returns the functions that determine the tenants in the audit events of a route. The
// functions use the names of tenants in the cluster. Name returns the name in the configuration,
// which the records contain.
func (c *route) resolver() *tenantaudit.Resolver {
	if c.cluster == nil {
		return &tenantaudit.Resolver{
			Caller: func(caller, _ user.Info, _ time.Time) (authenticated, acting tenant.ID) {
				id, _ := tenant.Of(caller)
				return id, id
			},
			Owner:   func(string, time.Time) tenant.ID { return tenant.ID{} },
			Stream:  func(tenant.ID, time.Time) (tenantaudit.Stream, bool) { return "", false },
			Cluster: nameOf(c),
		}
	}
	clusterResolver := c.cluster.stack.AuditResolver()
	system := tenant.Bind(&user.DefaultInfo{Name: tenant.System().String()}, tenant.System())
	return &tenantaudit.Resolver{
		Caller: func(caller, as user.Info, at time.Time) (authenticated, acting tenant.ID) {
			id, err := tenant.Of(caller)
			if err == nil {
				id, _ = c.mapping.tenant(id)
			} else if tenant.IsServiceAccountName(caller.GetName()) { // the cluster authenticated the caller
				id, _ = clusterResolver.Caller(caller, nil, at)
			}
			if as == nil || !id.IsSystem() {
				return id, id
			}
			_, acting = clusterResolver.Caller(system, as, at)
			return id, acting
		},
		Owner:     clusterResolver.Owner,
		CallerKey: clusterResolver.CallerKey,
		OwnerKey:  clusterResolver.OwnerKey,
		Stream:    clusterResolver.Stream,
		Name:      func(id tenant.ID) string { return c.mapping.source(id).String() },
		Cluster:   nameOf(c),
	}
}

// auditFanout writes all events except RequestReceived to the streams, and the events that its
// policy selects to the log. If the streams cannot be written, the request is still handled.
type auditFanout struct {
	streams audit.Sink
	log     audit.Sink // nil without a log
	config  audit.RequestAuditConfig
}

// ProcessEvents implements [audit.Sink].
func (j *auditFanout) ProcessEvents(events ...*auditinternal.Event) bool {
	success := true
	for _, event := range events {
		if event.Stage != auditinternal.StageRequestReceived {
			j.streams.ProcessEvents(event) // the backend reports its own errors
		}
		if j.log != nil && j.config.Level != auditinternal.LevelNone && !slices.Contains(j.config.OmitStages, event.Stage) {
			success = j.log.ProcessEvents(event) && success
		}
	}
	return success
}

// auditConfig returns the sink and the policy for a request. The log may be nil.
func (c *route) auditConfig(r *http.Request, a *auditing, log audit.Sink) (audit.Sink, audit.PolicyRuleEvaluator) {
	if c.gateway.audits == nil {
		return log, a.policy
	}
	out := &auditFanout{streams: c.gateway.audits.backend.For(c.resolver()), log: log}
	if log != nil {
		out.config.Level = auditinternal.LevelMetadata // if the policy cannot be evaluated, the event is logged
		if attributes, err := filters.GetAuthorizerAttributes(r.Context()); err == nil {
			out.config = a.policy.EvaluatePolicyRule(attributes)
		}
	}
	return out, c.gateway.audits.policy
}

var errAudit = errors.New("the caller may not read audit streams")

// withAuditStream serves the audit streams of the cluster's tenants at [authz.AuditPath]. The
// cluster decides whether a caller may get this path. The caller's tenant determines which stream
// the caller reads.
func (c *route) withAuditStream(next http.Handler) http.Handler {
	if c.gateway.audits == nil {
		return next
	}
	reader := &stack.AuditReader{
		Streams: c.gateway.audits.streams,
		Stream:  c.cluster.stack.AuditStream,
		Cluster: nameOf(c),
		ResolveTenant: func(id tenant.ID) tenant.ID {
			mapped, _ := c.mapping.tenant(id)
			return mapped
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != authz.AuditPath {
			next.ServeHTTP(w, r)
			return
		}
		ctx := r.Context()
		u, _ := request.UserFrom(ctx)
		id, _, err := c.cluster.stack.Subject(ctx, u)
		if err != nil || id.IsZero() || id.IsSystem() && !authz.PathTenant(ctx).IsZero() {
			respond(w, r, forbidden(errAudit))
			return
		}
		decision, _, _ := c.reviewAccess(ctx, authorizer.AttributesRecord{User: u, Verb: "get", Path: authz.AuditPath})
		if decision != authorizer.DecisionAllow {
			respond(w, r, forbidden(errAudit))
			return
		}
		reader.Serve(w, r, id)
	})
}
