// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// rejectedWrite is a write in the caller's own namespace that admission must reject, because it
// affects objects outside the namespace or a status that only a controller may write.
type rejectedWrite struct {
	group, resource string
	object          string // created by the admin before the write; empty if the write is a creation
	method, body    string
}

// rejectedWrites contains writes of statuses that controllers own, and of owner references that
// block the deletion of cluster-scoped objects. The statuses are a subset of the list in package
// status. The list contains no PersistentVolumeClaim, because its finalizer might block the
// deletion of the namespace, and no Pod, because it would run.
var rejectedWrites = []rejectedWrite{
	{
		"",
		"services",
		`{"apiVersion":"v1","kind":"Service","spec":{"ports":[{"port":80}]}}`,
		http.MethodPatch,
		`{"status":{"conditions":[{"type":"held","status":"True","reason":"Probe","message":"",` +
			`"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
	},
	{
		"",
		"resourcequotas",
		`{"apiVersion":"v1","kind":"ResourceQuota","spec":{"hard":{"count/leases.coordination.k8s.io":"100"}}}`,
		http.MethodPatch,
		`{"status":{"hard":{"pods":"9"}}}`,
	},
	{
		"apps",
		"deployments",
		`{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":0,` + selectorAndTemplate + `}}`,
		http.MethodPatch,
		`{"status":{"replicas":1}}`,
	},
	{
		"apps",
		"statefulsets",
		`{"apiVersion":"apps/v1","kind":"StatefulSet","spec":{"replicas":0,"serviceName":"s",` + selectorAndTemplate + `}}`,
		http.MethodPatch,
		`{"status":{"currentRevision":"mine"}}`,
	},
	{
		"apps",
		"replicasets",
		`{"apiVersion":"apps/v1","kind":"ReplicaSet","spec":{"replicas":0,` + selectorAndTemplate + `}}`,
		http.MethodPatch,
		`{"status":{"replicas":1}}`,
	},
	{
		"batch",
		"cronjobs",
		`{"apiVersion":"batch/v1","kind":"CronJob","spec":{"schedule":"0 0 1 1 *","suspend":true,"jobTemplate":{"spec":` +
			jobTemplate + `}}}`,
		http.MethodPatch,
		`{"status":{"lastScheduleTime":"2026-01-01T00:00:00Z"}}`,
	},
	{
		"batch",
		"jobs",
		`{"apiVersion":"batch/v1","kind":"Job","spec":{"suspend":true,` + jobTemplate[1:] + `}`,
		http.MethodPatch,
		`{"status":{"active":1}}`,
	},
	{
		"policy",
		"poddisruptionbudgets",
		`{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","spec":{"selector":{"matchLabels":{"app":"none"}}}}`,
		http.MethodPatch,
		`{"status":{"disruptionsAllowed":9}}`,
	},
	{
		"",
		"configmaps",
		"",
		http.MethodPost,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"held","ownerReferences":[{"apiVersion":"v1",` +
			`"kind":"Node","name":"n","uid":"1","blockOwnerDeletion":true}]}}`,
	},
	{
		"",
		"secrets",
		"",
		http.MethodPost,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"held","ownerReferences":[{"apiVersion":"storage.k8s.io/v1",` +
			`"kind":"StorageClass","name":"n","uid":"1","blockOwnerDeletion":true}]}}`,
	},
}

const (
	selectorAndTemplate = `"selector":{"matchLabels":{"app":"none"}},"template":{"metadata":{"labels":{"app":"none"}},` +
		`"spec":{"containers":[{"name":"c","image":"i"}]}}`
	jobTemplate = `{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}`
)

// tryRejectedWrites sends the writes in [rejectedWrites] as each caller of the first tenant. The
// objects that it creates are deleted together with their namespace.
func (m *matrix) tryRejectedWrites(ctx context.Context, served []resource) error {
	admin, err := newCaller("admin", -1, m.Admin)
	if err != nil {
		return err
	}
	for i, h := range rejectedWrites {
		at := slices.IndexFunc(served, func(r resource) bool { return r.matches(h.group, h.resource) && r.subresource == "" })
		if at < 0 {
			continue
		}
		path := served[at].path(m.fixture.namespace(0))
		target := query(path, "dryRun", "All")
		code := 0
		if h.object != "" {
			name := fmt.Sprintf("held-%d", i)
			body := strings.Replace(h.object, `"spec":`, `"metadata":{"name":"`+name+`"},"spec":`, 1)
			created, err := admin.send(
				ctx,
				http.MethodPost,
				path,
				[]byte(body),
				http.Header{"Content-Type": {"application/json"}},
			)
			if err != nil {
				return fmt.Errorf("create %s to test whether its status can be written: %w", h.resource, err)
			}
			if created.code != http.StatusCreated {
				code = created.code
			}
			target = query(path+"/"+name+"/status", "dryRun", "All")
		}
		for _, c := range m.fixture.callers {
			if c.own != 0 {
				continue
			}
			if code != 0 {
				m.note(c.name, targetAdmission, Untested, fmt.Sprintf(untestedNoObject, code), "", "POST "+path)
				continue
			}
			if err := m.tryWrite(ctx, c, h, target); err != nil {
				return err
			}
		}
	}
	return nil
}

// tryWrite sends one write that admission must reject, and records the outcome.
func (m *matrix) tryWrite(ctx context.Context, c *caller, h rejectedWrite, target string) error {
	contentType := "application/json"
	if h.method == http.MethodPatch {
		contentType = "application/merge-patch+json"
	}
	request := h.method + " " + target
	a, err := c.send(ctx, h.method, target, []byte(h.body), http.Header{"Content-Type": {contentType}})
	if err != nil {
		return m.unanswered(ctx, c, targetAdmission, request, err)
	}
	outcome := Untested
	reason := a.untested(c)
	if reason == "" {
		outcome, reason = rejectedByAdmission(a)
	}
	m.note(c.name, targetAdmission, outcome, reason, "write an object that admission must refuse: "+h.resource,
		fmt.Sprintf("%s: %d %s", request, a.code, a.message()))
	return nil
}
