// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
)

// upstreamBackend is a fake of upstream's audit backend. It counts events.
type upstreamBackend struct{ events int }

func (b *upstreamBackend) ProcessEvents(events ...*auditinternal.Event) bool {
	b.events += len(events)
	return true
}

func (*upstreamBackend) Run(<-chan struct{}) error { return nil }
func (*upstreamBackend) Shutdown()                 {}
func (*upstreamBackend) String() string            { return "upstream" }

func auditedStack(t *testing.T, config *configv1alpha1.Audit) *stack.Stack {
	t.Helper()
	s, err := stack.New(t.Context(), &configv1alpha1.Settings{Audit: config}, stack.Server{
		Cluster: lookuptest.OwnedBy(authz.NewOwners(func(name string) (*corev1.Namespace, error) {
			return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
		}, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAddAudit(t *testing.T) {
	onlySecrets := policy.NewPolicyRuleEvaluator(&auditinternal.Policy{Rules: []auditinternal.PolicyRule{{
		Level:     auditinternal.LevelRequest,
		Resources: []auditinternal.GroupResources{{Resources: []string{"secrets"}}},
	}}})
	for name, c := range map[string]struct {
		policy audit.PolicyRuleEvaluator
		want   map[string]auditinternal.Level // keyed by resource
	}{
		"without a policy": {nil, map[string]auditinternal.Level{
			"secrets": auditinternal.LevelMetadata, "pods": auditinternal.LevelMetadata,
		}},
		"with a policy": {onlySecrets, map[string]auditinternal.Level{
			"secrets": auditinternal.LevelRequest, "pods": auditinternal.LevelNone,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			directory := filepath.Join(t.TempDir(), "audit")
			generic := &genericapiserver.Config{
				AuditPolicyRuleEvaluator: c.policy,
				LongRunningFunc:          func(*http.Request, *request.RequestInfo) bool { return false },
			}
			upstream := &upstreamBackend{}
			if c.policy != nil {
				generic.AuditBackend = upstream
			}
			if err := addAudit(generic, auditedStack(t, &configv1alpha1.Audit{Directory: directory})); err != nil {
				t.Fatal(err)
			}
			for resource, want := range c.want {
				attributes := authorizer.AttributesRecord{
					User:            &user.DefaultInfo{Name: "a"},
					Verb:            "get",
					Resource:        resource,
					ResourceRequest: true,
				}
				if got := generic.AuditPolicyRuleEvaluator.EvaluatePolicyRule(attributes).Level; got != want {
					t.Errorf("%s has the level %s, want %s", resource, got, want)
				}
			}
			stop := make(chan struct{})
			if err := generic.AuditBackend.Run(stop); err != nil {
				t.Fatal(err)
			}
			generic.AuditBackend.ProcessEvents(&auditinternal.Event{User: authenticationv1.UserInfo{
				Username: "alice",
				Extra:    map[string]authenticationv1.ExtraValue{tenant.ExtraKey: {"acme"}},
			}})
			close(stop)
			generic.AuditBackend.Shutdown()
			files, err := filepath.Glob(filepath.Join(directory, "*.jsonl"))
			if err != nil || len(files) != 2 {
				t.Errorf("the audit files are %q (%v), want 2", files, err)
			}
			if c.policy != nil && upstream.events != 1 {
				t.Errorf("upstream's backend has %d events", upstream.events)
			}
			for url, want := range map[string]bool{
				authz.AuditPath + "?follow=true":  true,
				authz.AuditPath + "?follow=false": false,
				authz.AuditPath:                   false,
				"/api?follow=true":                false,
			} {
				t.Run(url, func(t *testing.T) {
					r := httptest.NewRequest(http.MethodGet, url, http.NoBody)
					if got := generic.LongRunningFunc(r, &request.RequestInfo{Path: r.URL.Path}); got != want {
						t.Errorf("%s is long-running: %t, want %t", url, got, want)
					}
				})
			}
		})
	}
}

func TestAddAuditOff(t *testing.T) {
	generic := &genericapiserver.Config{}
	if err := addAudit(generic, auditedStack(t, nil)); err != nil {
		t.Fatal(err)
	}
	if generic.AuditBackend != nil || generic.AuditPolicyRuleEvaluator != nil || generic.LongRunningFunc != nil {
		t.Error("a server without streams was changed")
	}
}
