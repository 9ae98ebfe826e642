// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubetenant/kubetenant/internal/budget"
	"github.com/kubetenant/kubetenant/internal/fairuse"
	"github.com/kubetenant/kubetenant/tenant"
)

// The budget of a tenant in the audit log, in bytes. Unless the minimum values apply, a tenant's
// callers need more than 20 minutes to fill all retained files. If the size or the number of
// files is unlimited, the budget is the same as with the default rotation.
const (
	auditFillSeconds  = 30 * 60
	auditBurstDivisor = 4
	auditMinRate      = 64 << 10
	auditMinBurst     = 1 << 20
	auditDefaultBytes = 11 * 100 << 20
	bytesPerMegabyte  = 1 << 20
)

// auditBudgets returns the tenants' budgets for a log with the given rotation.
func auditBudgets(r rotation) *budget.Bytes {
	retained := int64(r.megabytes) * int64(r.backups+1) * bytesPerMegabyte
	if r.megabytes == 0 || r.backups == 0 {
		retained = auditDefaultBytes
	}
	return budget.NewBytes(max(retained/auditFillSeconds, auditMinRate),
		max(retained/auditBurstDivisor, auditMinBurst))
}

// noTenant is the name of the budget that all callers without a tenant share. No tenant can have
// this name.
const noTenant = "(none)"

// errAuditBudget is the response to callers of a tenant that has used up its budget in the audit
// log.
func errAuditBudget() *apierrors.StatusError {
	return apierrors.NewTooManyRequests("the tenant has written too many bytes to the audit log", 1)
}

// withAudit records the requests of authenticated callers. If the budget of the caller's tenant is
// used up, it rejects each request that the policy would record in the log. It writes all events of
// a request that it does not reject, even if they exceed the budget.
func (c *route) withAudit(next http.Handler, a *auditing) http.Handler {
	if a.sink == nil && c.gateway.audits == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, _ := request.UserFrom(r.Context())
		log := a.events()
		refused := false
		if name, bounded := c.auditedTenant(r, u); bounded && a.sink != nil {
			log = &tenantSink{a.sink, a.budgets, name}
			if refused = !a.budgets.HasBytes(name) && a.records(r); refused {
				host, _, _ := net.SplitHostPort(r.RemoteAddr)
				a.sink.omit(name, networkOf(host))
			}
		}
		if refused {
			respond(w, r, errAuditBudget())
			return
		}
		sink, rules := c.auditConfig(r, a, log)
		filters.WithAudit(next, sink, rules, fairuse.IsStream).ServeHTTP(w, r)
	})
}

// records reports whether the policy records a request. It returns true if the policy cannot be
// evaluated.
func (a *auditing) records(r *http.Request) bool {
	attributes, err := filters.GetAuthorizerAttributes(r.Context())
	return err != nil || a.policy.EvaluatePolicyRule(attributes).Level != auditinternal.LevelNone
}

// auditedTenant returns the name of the budget that a caller uses, and whether the budget limits
// the caller. Callers of the system tenant are not limited. All callers without a tenant share a
// budget.
func (c *route) auditedTenant(r *http.Request, u user.Info) (name string, bounded bool) {
	id, err := tenant.Of(u)
	if proxyStateFrom(r.Context()).token != "" { // a service account of the cluster
		id = tenant.ID{}
		mapped, _, subjectErr := c.cluster.stack.Subject(r.Context(), u)
		if err = subjectErr; err == nil {
			id = c.mapping.source(mapped)
		}
	}
	if err != nil || id.IsZero() {
		return noTenant, true
	}
	return id.String(), !id.IsSystem()
}

// tenantSink writes the events of a tenant's callers, and charges the tenant's budget for them.
type tenantSink struct {
	*auditSink
	budgets *budget.Bytes
	tenant  string
}

// ProcessEvents implements [audit.Sink].
func (s *tenantSink) ProcessEvents(events ...*auditinternal.Event) bool {
	success := true
	for _, event := range events {
		bytes, written := s.process(event)
		s.budgets.Charge(s.tenant, bytes)
		success = written && success
	}
	return success || s.ignoresErrors
}
