// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/abac"
	"github.com/kubetenant/kubetenant/authz/accessgrant"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

var (
	modelDecisions = flag.Int("model.decisions", 40_000, "decisions that TestModel compares")
	modelSeed      = flag.Uint64("model.seed", 0, "seed of the first cluster of TestModel")
)

// decisionsPerCluster is small, because each boundary has a rate limit for live reads of unknown
// namespaces.
const decisionsPerCluster = 6

// TestModel checks that the boundary, with grants and a policy, makes the same decisions as the
// model. The seed in a failure generates the same cluster again with -model.seed.
func TestModel(t *testing.T) {
	t.Parallel()
	var next, failed atomic.Int64
	var kinds [3]atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for failed.Load() < 5 {
				n := next.Add(1) - 1
				if n*decisionsPerCluster >= int64(*modelDecisions) {
					return
				}
				seed := *modelSeed + uint64(n)
				d := randomChoices{rand.New(rand.NewPCG(seed, 0))}
				w := makeCluster(d)
				b, delegate := w.boundary(t)
				for range decisionsPerCluster {
					q := makeRequest(d, w)
					answer, problem := w.compare(t, b, delegate, q)
					kinds[answer].Add(1)
					if problem != "" {
						failed.Add(1)
						t.Errorf("seed %d: %s\n%s", seed, problem, w.describe(&q))
					}
				}
			}
		})
	}
	workers.Wait()
	for kind, count := range map[string]int64{
		"denied":    kinds[0].Load(),
		"delegated": kinds[1].Load(),
		"allowed":   kinds[2].Load(),
	} {
		t.Run(kind, func(t *testing.T) {
			if count < int64(*modelDecisions)/200 && *modelDecisions >= 10_000 {
				t.Errorf("%d of %d decisions: the generated clusters do not cover it", count, *modelDecisions)
			}
		})
	}
	t.Logf("%d denied, %d delegated, %d allowed", kinds[0].Load(), kinds[1].Load(), kinds[2].Load())
}

// FuzzModel is TestModel with clusters that a fuzzer generates.
func FuzzModel(f *testing.F) {
	for seed := range uint64(8) {
		data := make([]byte, 512)
		source := rand.New(rand.NewPCG(seed, 0))
		for i := range data {
			data[i] = byte(source.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &fuzzChoices{data}
		w := makeCluster(d)
		q := makeRequest(d, w)
		b, delegate := w.boundary(t)
		if _, problem := w.compare(t, b, delegate, q); problem != "" {
			t.Errorf("%s\n%s", problem, w.describe(&q))
		}
	})
}

func (w *modelCluster) describe(q *modelRequest) string {
	return fmt.Sprintf("request %s\ncluster %+v", q, *w)
}

func (q *modelRequest) String() string {
	text, err := json.Marshal(map[string]any{
		"user":           q.user.describe(),
		"impersonator":   q.impersonator.describe(),
		"throughFilters": q.throughFilters,
		"selfReview":     q.selfReview,
		"path":           q.path,
		"isResource":     q.isResource,
		"verb":           q.verb,
		"kind":           q.kind(),
		"version":        q.version,
		"subresource":    q.subresource,
		"namespace":      q.namespace,
		"name":           q.name,
		"url":            q.url,
		"selector":       fmt.Sprint(q.selector),
		"bad":            q.badSelector,
		"twice":          q.duplicateSelector,
		"fields":         q.fields,
	})
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (u *modelUser) describe() string {
	if u == nil {
		return "none"
	}
	return fmt.Sprintf("%+v", *u)
}

// namespace returns the Namespace or the error that a lookup in this state returns.
func (s modelState) namespace(name string) (*corev1.Namespace, error) {
	switch {
	case s.lookupFails:
		return nil, errUnavailable
	case !s.exists:
		return nil, notFound(name)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if s.labeled {
		ns.Labels = map[string]string{tenant.Label: s.label}
	}
	if s.terminating {
		ns.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
	}
	return ns, nil
}

func keys(set map[string]bool) []string {
	var all []string
	for key := range set {
		all = append(all, key)
	}
	return all
}

func resourcesOf(set map[string]bool) []schema.GroupResource {
	var all []schema.GroupResource
	for key := range set {
		group, resource, _ := strings.Cut(key, "/")
		all = append(all, schema.GroupResource{Group: group, Resource: resource})
	}
	return all
}

// idOrZero returns the tenant with the given name, or the zero ID if the name is not valid.
func idOrZero(name string) tenant.ID {
	id, _ := tenant.Parse(name)
	return id
}

// boundary returns a real boundary with the generated configuration, and its delegate, which
// records requests.
func (w *modelCluster) boundary(tb testing.TB) (*authz.Boundary, *recorder) {
	tb.Helper()
	owners := authz.NewOwners(func(name string) (*corev1.Namespace, error) {
		return w.namespaces[name].cached.namespace(name)
	},
		func(_ context.Context, name string) (*corev1.Namespace, error) {
			return w.namespaces[name].live.namespace(name)
		})
	owners.Reserve(keys(w.systemNamespaces))
	names := &tenant.SystemNames{
		Users:         keys(w.systemUsers),
		UserPrefixes:  keys(w.systemPrefixes),
		Groups:        keys(w.systemGroups),
		Organizations: keys(w.organizations),
	}
	o := authz.Options{
		Subjects: &authz.Subjects{
			Names:            names,
			SystemNamespaces: keys(w.systemNamespaces),
			FromGroups:       w.fromGroups,
			Owners:           owners,
		},
		Owners: owners,
		Scopes: authz.Scopes{Custom: func(r schema.GroupResource) authz.Scope {
			switch w.scopes[r.Group+"/"+r.Resource] {
			case "namespaced":
				return authz.ScopeNamespaced
			case "cluster":
				return authz.ScopeCluster
			}
			return authz.ScopeUnknown
		}},
		UnboundPaths: keys(w.paths),
		Shared:       resourcesOf(w.shared),
		Selectable:   resourcesOf(w.selectable),
		DescribesTenant: func(r schema.GroupResource, name string, id tenant.ID) bool {
			of, exists := w.objects[r.Group+"/"+r.Resource+"/"+name]
			return exists && of == id.String() || !exists && name == ownName(r.Group+"/"+r.Resource, id.String())
		},
		ObjectField:                  w.objectField,
		TenantWritable:               resourcesOf(w.writable),
		ServiceAccountsInTenantGroup: w.serviceAccountsInTenantGroup,
		QualifiedNames:               w.qualified,
		PrefixesReserved:             w.prefixesReserved,
		RulesReviewsBypassBoundary:   w.rulesReviewsBypassBoundary,
		Shadow:                       w.shadow,
		Labeled: func(r schema.GroupResource, _ tenant.ID) bool {
			return !w.unlabeled[r.Group+"/"+r.Resource]
		},
		Stale: func() bool { return w.stale },
		Access: func(id tenant.ID) authz.Access {
			switch w.access[id.String()] {
			case "unknown":
				return authz.AccessUnknown
			case "none":
				return authz.AccessNone
			case "closed":
				return authz.AccessClosed
			case "reads":
				return authz.AccessReadOnly
			}
			return authz.AccessOpen
		},
		Revoked: func(_ tenant.ID, u user.Info) bool { return w.revoked[u.GetName()] },
	}
	for open := range w.unboundObjects {
		o.UnboundObjects = append(o.UnboundObjects, authz.ObjectVerb{
			Verb:      open[0],
			Namespace: open[1],
			Name:      open[2],
			Resource:  schema.GroupResource{Group: open[3], Resource: open[4]},
		})
	}
	o.Exceptions = []authz.Exception{
		{Reason: authz.ReasonGrant, Allows: w.newGrants(tb).Allows},
		{Reason: authz.ReasonAnnounced, Unpaged: true, Allows: accessgrant.AllowsAnnounced},
		{Reason: authz.ReasonABAC, Allows: w.policy(tb)},
	}
	delegate := &recorder{decision: authorizer.DecisionNoOpinion}
	return authz.New(o, delegate, nil), delegate
}

func (w *modelCluster) objectField(r schema.GroupResource, id tenant.ID) (field, value string) {
	kind := r.Group + "/" + r.Resource
	reservedName := ownName(kind, id.String())
	of, exists := w.objects[kind+"/"+reservedName]
	switch {
	case reservedName == "":
		return "", ""
	case w.freelyNamed[kind]:
		return "spec.tenant", id.String()
	case exists && of != id.String():
		return "", ""
	}
	return "metadata.name", reservedName
}

func (w *modelCluster) newGrants(tb testing.TB) *accessgrant.Grants {
	tb.Helper()
	now := time.Unix(1000, 0)
	index, live := accessgrant.NewIndex(), map[string]*accessgrant.Grant{}
	for i, m := range w.grants {
		g := &accessgrant.Grant{
			Namespace: m.namespace,
			Name:      fmt.Sprint("g", i),
			Owner:     tenanttest.ID(tb, m.owner),
			Tenant:    tenanttest.ID(tb, m.tenant),
			Users:     m.users,
			Groups:    m.groups,
			Rules: []accessgrant.Rule{{
				APIGroups:     m.apiGroups,
				Resources:     m.resources,
				Verbs:         m.verbs,
				ResourceNames: m.resourceNames,
			}},
			Expires: now.Add(time.Hour),
		}
		if m.expired {
			g.Expires = now
		}
		index.Set(g)
		if !m.deleted {
			live[g.Name] = g
		}
	}
	return &accessgrant.Grants{
		Index: index,
		Now:   func() time.Time { return now },
		Live: func(_ context.Context, _ tenant.ID, _, name string) (*accessgrant.Grant, error) {
			return live[name], nil
		},
	}
}

func (w *modelCluster) policy(tb testing.TB) func(context.Context, *authz.CrossTenantRequest) (bool, time.Time) {
	tb.Helper()
	var text []byte
	for _, l := range w.policyLines {
		text = append(text, l.text()...)
	}
	policy, err := abac.Parse(text)
	if err != nil {
		tb.Fatalf("%v: %s", err, text)
	}
	return func(_ context.Context, c *authz.CrossTenantRequest) (bool, time.Time) {
		return policy.Allows(c.Caller, c.Owner, c), time.Time{}
	}
}

func (u *modelUser) info() user.Info {
	if u == nil {
		return nil
	}
	return &user.DefaultInfo{Name: u.name, Groups: slices.Clip(u.groups), Extra: u.extra}
}

func (r modelRequirement) labelRequirement(tb testing.TB) labels.Requirement {
	tb.Helper()
	operator := selection.Operator(r.operator)
	requirement, err := labels.NewRequirement(r.key, operator, r.values)
	if err != nil {
		tb.Fatal(err)
	}
	return *requirement
}

var errSelector = errors.New("selector")

// selectors returns the label requirements of the request, and its query.
func (q *modelRequest) selectors(tb testing.TB) (requirements labels.Requirements, query string, err error) {
	tb.Helper()
	values := url.Values{"limit": {"3"}}
	if q.fields != "" {
		values.Set("fieldSelector", q.fields)
	}
	if q.badSelector {
		values.Set("labelSelector", "a in (")
		return nil, values.Encode(), errSelector
	}
	for _, r := range q.selector {
		requirements = append(requirements, r.labelRequirement(tb))
	}
	if text := labels.NewSelector().Add(requirements...).String(); text != "" || q.duplicateSelector {
		values.Set("labelSelector", text)
	}
	if q.duplicateSelector {
		values.Add("labelSelector", "kubetenant.dev/tenant=a")
	}
	return requirements, values.Encode(), nil
}

func (q *modelRequest) attributes(u user.Info, requirements labels.Requirements, err error) authorizer.Attributes {
	if !q.isResource {
		return authorizer.AttributesRecord{User: u, Verb: q.verb, Path: q.url}
	}
	var selected fields.Requirements
	if q.fields != "" {
		selected = fields.ParseSelectorOrDie(q.fields).Requirements()
	}
	return &authorizer.AttributesRecord{
		User:                      u,
		Verb:                      q.verb,
		Namespace:                 q.namespace,
		APIGroup:                  q.group,
		APIVersion:                q.version,
		Resource:                  q.resource,
		Subresource:               q.subresource,
		Name:                      q.name,
		ResourceRequest:           true,
		LabelSelectorRequirements: requirements,
		LabelSelectorParsingErr:   err,
		FieldSelectorRequirements: selected,
	}
}

// modelOutcome is the result of the real boundary.
type modelOutcome struct {
	decision authorizer.Decision
	reason   string
	err      error
	reached  authorizer.Attributes // the attributes that the delegate received
	served   *http.Request         // the request that the API handler received
	status   int
}

// send sends the request to the real boundary. Requests pass the filters of a server, and reviews
// do not.
func (q *modelRequest) send(tb testing.TB, b *authz.Boundary, delegate *recorder) (out modelOutcome) {
	tb.Helper()
	requirements, query, err := q.selectors(tb)
	ctx := klog.NewContext(tb.Context(), logr.Discard())
	if !q.throughFilters {
		if q.selfReview {
			ctx = selfReviewContext(ctx)
		}
		out.decision, out.reason, out.err = b.Authorize(ctx, q.attributes(q.user.info(), requirements, err))
		out.reached = delegate.reached
		return out
	}
	path := "/served"
	if q.path != "" {
		path = "/tenants/" + q.path + path
	}
	handler := authz.WithTenant(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { out.served = r }),
		&authz.Sessions{})
	authorize := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var u user.Info
		if q.impersonator != nil {
			if u = authz.RecordCaller(r.Context(), q.impersonator.info()); !isImpersonation(q) {
				u = q.user.info()
			}
		} else {
			u = authz.RecordCaller(r.Context(), q.user.info())
		}
		out.decision, out.reason, out.err = b.Authorize(r.Context(), q.attributes(u, requirements, err))
		out.reached = delegate.reached
		if out.decision == authorizer.DecisionDeny || strings.HasPrefix(q.verb, "impersonate") {
			return
		}
		ctx := request.WithRequestInfo(request.WithUser(r.Context(), u),
			&request.RequestInfo{IsResourceRequest: q.isResource, Verb: q.verb, Name: q.name})
		handler.ServeHTTP(w, r.WithContext(ctx))
	})
	answer := httptest.NewRecorder()
	r := (&http.Request{
		Method: http.MethodGet,
		URL:    &url.URL{Path: path, RawQuery: query},
		Header: http.Header{},
		Body:   http.NoBody,
	}).WithContext(ctx)
	authz.WithRequestState(authorize, nil).ServeHTTP(answer, r)
	out.status = answer.Code
	return out
}

// compare makes the decision with the model and with the boundary. It returns the kind of the
// boundary's decision (0 denied, 1 delegated, 2 allowed) and a description of the difference, which
// is empty if both agree.
func (w *modelCluster) compare(
	tb testing.TB, b *authz.Boundary, delegate *recorder, q modelRequest,
) (kind int, problem string) {
	tb.Helper()
	want := w.decide(q)
	delegate.reached = nil
	got := q.send(tb, b, delegate)
	switch {
	case got.err != nil:
		problem = "error: " + got.err.Error()
	case got.decision == authorizer.DecisionAllow && got.reached == nil:
		kind = 2
		if by := map[string]authz.Reason{
			"grant":     authz.ReasonGrant,
			"announced": authz.ReasonAnnounced,
			"abac":      authz.ReasonABAC,
		}[want.by]; !want.allowed || got.reason != by.String() {
			problem = fmt.Sprintf("allowed: %s; want %+v", got.reason, want)
		}
	case got.decision == authorizer.DecisionDeny && got.reached == nil:
		if want.delegated || want.allowed {
			problem = fmt.Sprintf("denied: %s; want %+v", got.reason, want)
		}
	case got.decision == authorizer.DecisionNoOpinion && got.reached != nil:
		kind = 1
		if !want.delegated {
			problem = fmt.Sprintf("delegated; want %+v", want)
		}
	default:
		problem = fmt.Sprintf("%v, %q", got.decision, got.reason)
	}
	if problem == "" && kind > 0 && !w.shadow {
		problem = w.comparePassed(tb, &q, &want, &got)
	}
	return kind, problem
}

// comparePassed compares the requests that the delegate and the handler received with the model's
// decision.
func (w *modelCluster) comparePassed(tb testing.TB, q *modelRequest, want *modelDecision, got *modelOutcome) string {
	tb.Helper()
	if want.delegated {
		caller := q.user
		if q.impersonator != nil && isImpersonation(q) {
			caller = q.impersonator
		}
		expected := caller.info().(*user.DefaultInfo)
		if want.group != "" {
			expected.Groups = append(expected.Groups, want.group)
		}
		if want.impersonated {
			expected = tenant.Bind(expected, idOrZero(want.tenant))
		}
		reached := got.reached.GetUser()
		actual := &user.DefaultInfo{
			Name:   reached.GetName(),
			UID:    reached.GetUID(),
			Groups: reached.GetGroups(),
			Extra:  reached.GetExtra(),
		}
		if len(actual.Groups)+len(expected.Groups) == 0 {
			actual.Groups, expected.Groups = nil, nil
		}
		if difference := cmp.Diff(expected, actual); difference != "" {
			return "user for the delegate (-want +got): " + difference
		}
		if got.reached.GetNamespace() != want.namespace {
			return fmt.Sprintf("namespace for the delegate is %q; want %q", got.reached.GetNamespace(), want.namespace)
		}
		if name := got.reached.GetName(); want.object != "" && name != want.object {
			return fmt.Sprintf("name for the delegate is %q; want %q", name, want.object)
		}
		passed, _ := got.reached.GetFieldSelector()
		for term := range strings.SplitSeq(want.fields, ",") {
			if term != "" && !slices.Contains(passed, fields.ParseSelectorOrDie(term).Requirements()[0]) {
				return fmt.Sprintf("fields for the delegate are %v; want %s", passed, want.fields)
			}
		}
		selector, _ := got.reached.GetLabelSelector()
		if want.limitedTo != "" && !selectsOnlyTenant(selector, want.limitedTo) {
			return fmt.Sprintf("selector for the delegate is %v; want it limited to %s", selector, want.limitedTo)
		}
	}
	if !q.throughFilters || strings.HasPrefix(q.verb, "impersonate") {
		return ""
	}
	if got.served == nil {
		return fmt.Sprintf("delegated, but the status is %d", got.status)
	}
	query := got.served.URL.Query()
	if want.limitedTo != "" {
		selector, err := labels.ParseToRequirements(query.Get("labelSelector"))
		if err != nil || !selectsOnlyTenant(selector, want.limitedTo) || len(query["labelSelector"]) != 1 ||
			query.Has("limit") {
			return fmt.Sprintf("query %v is served; want it limited to %s", query, want.limitedTo)
		}
		for _, r := range q.selector {
			if !bytes.Contains([]byte(query.Get("labelSelector")), []byte(r.key)) {
				return fmt.Sprintf("query %v is served; want the client's requirements too", query)
			}
		}
	}
	if want.by == "announced" && (query.Has("limit") || query.Get("fieldSelector") != q.fields) {
		return fmt.Sprintf("query %v is served; want it unchanged", query)
	}
	if want.fields != "" && (query.Get("fieldSelector") != want.fields || query.Has("limit") ||
		len(query["fieldSelector"]) != 1) {
		return fmt.Sprintf("query %v is served; want it limited to %s", query, want.fields)
	}
	return ""
}

// selectsOnlyTenant reports whether a selector matches only objects with the label of the tenant.
func selectsOnlyTenant(selector labels.Requirements, id string) bool {
	return slices.ContainsFunc(selector, func(r labels.Requirement) bool {
		return r.Key() == "kubetenant.dev/tenant" && r.Values().Len() == 1 && r.Values().Has(id) &&
			(r.Operator() == selection.Equals || r.Operator() == selection.DoubleEquals || r.Operator() == selection.In)
	})
}
