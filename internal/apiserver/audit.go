// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strconv"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/stack"
)

// addAudit makes the server write its audit events to the audit streams of tenants, and serve
// these streams. It does nothing if the configuration has no audit section.
//
// With --audit-policy-file, the streams contain the events that the policy selects, as upstream's
// own backends do. Without this flag, upstream has no backend, and the streams contain the metadata
// of each request.
func addAudit(generic *genericapiserver.Config, s *stack.Stack) error {
	streams, err := stack.OpenStackAudit(s)
	if err != nil || streams == nil {
		return err
	}
	for _, m := range streams.Metrics() {
		if err := Register(m); err != nil {
			return err
		}
	}
	backends := []audit.Backend{streams.Backend()}
	if generic.AuditPolicyRuleEvaluator == nil {
		generic.AuditPolicyRuleEvaluator = policy.NewPolicyRuleEvaluator(&auditinternal.Policy{
			OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived},
			Rules:      []auditinternal.PolicyRule{{Level: auditinternal.LevelMetadata}},
		})
	}
	if generic.AuditBackend != nil {
		backends = append(backends, generic.AuditBackend)
	}
	generic.AuditBackend = audit.Union(backends...)
	isLong := generic.LongRunningFunc
	generic.LongRunningFunc = func(r *http.Request, info *request.RequestInfo) bool {
		return info.Path == authz.AuditPath && follows(r) || isLong(r, info)
	}
	return nil
}

// follows reports whether the query parameter follow of a request is true.
func follows(r *http.Request) bool {
	follow, err := strconv.ParseBool(r.URL.Query().Get("follow"))
	return err == nil && follow
}
