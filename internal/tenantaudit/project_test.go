// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantaudit_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/internal/tenantaudit"
	"github.com/kubetenant/kubetenant/tenant"
)

var searched = flag.Int(
	"searched",
	20_000,
	"number of events in which TestStreamDoesNotContainOtherTenant searches for other tenants",
)

func id(name string) tenant.ID {
	if name == "" {
		return tenant.ID{}
	}
	parsed, err := tenant.Parse(name)
	if err != nil {
		panic(err)
	}
	return parsed
}

// fixture returns a resolver that finds the tenant of a user in its extra, and the tenant of a
// namespace in the prefix of its name.
func fixture() *tenantaudit.Resolver {
	of := func(u user.Info) tenant.ID {
		if values := u.GetExtra()[tenant.ExtraKey]; len(values) == 1 {
			return id(values[0])
		}
		if strings.HasPrefix(u.GetName(), "system:") && u.GetName() != user.Anonymous {
			return tenant.System()
		}
		return tenant.ID{}
	}
	return &tenantaudit.Resolver{
		CallerKey: callerKey,
		OwnerKey:  ownerKey,
		Caller: func(real, as user.Info, _ time.Time) (authenticated, acting tenant.ID) {
			authenticated = of(real)
			if as != nil && authenticated.IsSystem() {
				return authenticated, of(as)
			}
			return authenticated, authenticated
		},
		Owner: func(namespace string, _ time.Time) tenant.ID {
			name, _, ok := strings.Cut(namespace, "--")
			if !ok {
				return tenant.System()
			}
			owner, _ := tenant.Parse(name)
			return owner
		},
		Stream: func(id tenant.ID, _ time.Time) (tenantaudit.Stream, bool) {
			return tenantaudit.StreamOf(id, ""), id.String() != "invented"
		},
	}
}

const (
	callerKey = "authorization.kubetenant.dev/caller-tenant"
	ownerKey  = "authorization.kubetenant.dev/owner-tenant"
)

const uuid = "0b7fb1a2-5f0c-4c7b-9d0e-6f5b8d0f1a2b"

func caller(name, of string) authenticationv1.UserInfo {
	u := authenticationv1.UserInfo{
		Username: name,
		Groups:   []string{"group-of-" + name},
		Extra: map[string]authenticationv1.ExtraValue{
			tenant.SourceKey:     {"corporate"},
			user.CredentialIDKey: {"JTI=" + name},
		},
	}
	if of != "" {
		u.Extra[tenant.ExtraKey] = authenticationv1.ExtraValue{of}
	}
	return u
}

// event returns an allowed request of a caller.
func event(u authenticationv1.UserInfo, verb, namespace, resource, name string) *auditinternal.Event {
	uri := "/api/v1/"
	if namespace != "" {
		uri += "namespaces/" + namespace + "/"
	}
	uri += resource
	if name != "" {
		uri += "/" + name
	}
	at := time.Date(2026, 11, 28, 1, 0, 0, 123456000, time.UTC)
	return &auditinternal.Event{
		Level:                    auditinternal.LevelMetadata,
		AuditID:                  uuid,
		Stage:                    auditinternal.StageResponseComplete,
		RequestURI:               uri,
		Verb:                     verb,
		User:                     u,
		SourceIPs:                []string{"192.0.2.1"},
		UserAgent:                "agent",
		ObjectRef:                &auditinternal.ObjectReference{Namespace: namespace, Resource: resource, Name: name},
		ResponseStatus:           &metav1.Status{Code: http.StatusOK},
		RequestReceivedTimestamp: metav1.NewMicroTime(at),
		StageTimestamp:           metav1.NewMicroTime(at),
		Annotations:              map[string]string{"authorization.k8s.io/decision": "allow"},
	}
}

// project returns the records of an event, keyed by stream.
func project(e *auditinternal.Event, r *tenantaudit.Resolver) map[tenantaudit.Stream]tenantaudit.Record {
	out := map[tenantaudit.Stream]tenantaudit.Record{}
	for _, placed := range tenantaudit.Project(e, r) {
		if _, twice := out[placed.Stream]; twice {
			panic("two records in one stream")
		}
		out[placed.Stream] = *placed.Record
	}
	return out
}

// TestOneRecordForEachRequest checks that an event of the stage RequestReceived has no record,
// because an event of a later stage has the same content.
func TestOneRecordForEachRequest(t *testing.T) {
	e := event(caller("alice", "acme"), "get", "acme--web", "pods", "p")
	e.Stage = auditinternal.StageRequestReceived
	if got := tenantaudit.Project(e, fixture()); len(got) > 0 {
		t.Errorf("the event has the records %+v", got)
	}
}

func TestStreams(t *testing.T) {
	const acme, globex = tenantaudit.Stream("id-acme"), tenantaudit.Stream("id-globex")
	alice, gwen := caller("alice", "acme"), caller("gwen", "globex")
	operator, nobody := caller("system:operator", ""), caller("nobody", "")
	both := []tenantaudit.Stream{globex, acme}
	under := func(sub string) func(*auditinternal.Event) {
		return func(e *auditinternal.Event) { e.ObjectRef.Subresource = sub }
	}
	with := func(e *auditinternal.Event, change func(*auditinternal.Event)) *auditinternal.Event {
		change(e)
		return e
	}
	code := func(code int32) func(*auditinternal.Event) {
		return func(e *auditinternal.Event) { e.ResponseStatus.Code = code }
	}
	as := func(name, of string) func(*auditinternal.Event) {
		return func(e *auditinternal.Event) {
			u := caller(name, of)
			e.ImpersonatedUser = &u
		}
	}
	for name, c := range map[string]struct {
		event *auditinternal.Event
		want  []tenantaudit.Stream // in addition to the system's stream
	}{
		"own read":                        {event(alice, "get", "acme--web", "pods", "p"), []tenantaudit.Stream{acme}},
		"own write":                       {event(alice, "create", "acme--web", "pods", "p"), []tenantaudit.Stream{acme}},
		"own path":                        {event(alice, "get", "", "nodes", ""), []tenantaudit.Stream{acme}},
		"read of another tenant's Pod":    {event(gwen, "get", "acme--web", "pods", "p"), []tenantaudit.Stream{globex}},
		"list of another tenant's Pods":   {event(gwen, "list", "acme--web", "pods", ""), []tenantaudit.Stream{globex}},
		"watch of another tenant's Pods":  {event(gwen, "watch", "acme--web", "pods", ""), []tenantaudit.Stream{globex}},
		"write of another tenant's Pod":   {event(gwen, "patch", "acme--web", "pods", "p"), both},
		"unknown verb, another tenant":    {event(gwen, "frobnicate", "acme--web", "pods", "p"), both},
		"system write":                    {event(operator, "delete", "acme--web", "pods", "p"), []tenantaudit.Stream{acme}},
		"system read":                     {event(operator, "get", "acme--web", "pods", "p"), nil},
		"write without a tenant":          {event(nobody, "delete", "acme--web", "pods", "p"), []tenantaudit.Stream{acme}},
		"own write in a system namespace": {event(alice, "create", "kube-system", "pods", "p"), []tenantaudit.Stream{acme}},
		"denied write": {
			with(event(gwen, "delete", "acme--web", "pods", "p"), code(http.StatusForbidden)),
			[]tenantaudit.Stream{globex},
		},
		"write rejected by a backend": {
			with(event(gwen, "delete", "acme--web", "pods", "p"), code(http.StatusUnauthorized)),
			[]tenantaudit.Stream{globex},
		},
		"write that panics before authorization": {
			with(event(gwen, "delete", "acme--web", "pods", "p"), func(e *auditinternal.Event) {
				e.Stage, e.ResponseStatus, e.Annotations = auditinternal.StagePanic, nil, nil
			}),
			[]tenantaudit.Stream{globex},
		},
		"service account of a new namespace, with annotation": {
			with(event(nobody, "get", "acme--web", "pods", "p"), func(e *auditinternal.Event) {
				e.Annotations[callerKey] = "acme"
			}),
			[]tenantaudit.Stream{acme},
		},
		"system impersonates a service account of a new namespace": {
			with(event(operator, "get", "acme--web", "pods", "p"), func(e *auditinternal.Event) {
				as("robot", "")(e)
				e.Annotations[callerKey] = "acme"
			}),
			[]tenantaudit.Stream{acme},
		},
		"invalid caller annotation": {
			with(event(alice, "get", "acme--web", "pods", "p"), func(e *auditinternal.Event) {
				e.Annotations[callerKey] = "../acme"
			}),
			nil,
		},
		"write above a limit, which is not authorized": {
			with(event(gwen, "delete", "acme--web", "pods", "p"), func(e *auditinternal.Event) {
				e.ResponseStatus.Code, e.Annotations = http.StatusTooManyRequests, nil
			}),
			[]tenantaudit.Stream{globex},
		},
		"write with a decision that is not allow": {
			with(event(gwen, "delete", "acme--web", "pods", "p"), func(e *auditinternal.Event) {
				e.Annotations["authorization.k8s.io/decision"] = "forbid"
			}),
			[]tenantaudit.Stream{globex},
		},
		"exec in another tenant's Pod": {
			with(event(gwen, "get", "acme--web", "pods", "p"), under("exec")),
			both,
		},
		"proxy by the system tenant": {
			with(event(operator, "get", "acme--web", "pods", "p"), under("proxy")),
			[]tenantaudit.Stream{acme},
		},
		"log read by the system tenant": {
			with(event(operator, "get", "acme--web", "pods", "p"), under("log")),
			nil,
		},
		"cluster-scoped object of a tenant": {
			with(event(operator, "patch", "", "tenants", "acme"), func(e *auditinternal.Event) {
				e.Annotations[ownerKey] = "acme"
			}),
			[]tenantaudit.Stream{acme},
		},
		"invalid owner annotation": {
			with(event(operator, "patch", "acme--web", "pods", "p"), func(e *auditinternal.Event) {
				e.Annotations[ownerKey] = "../acme"
			}),
			nil,
		},
		"namespace in the body of a review": {
			with(event(gwen, "create", "", "selfsubjectaccessreviews", ""), func(e *auditinternal.Event) {
				e.ObjectRef.Namespace, e.ObjectRef.Name = "acme--web", "injected"
			}),
			[]tenantaudit.Stream{globex},
		},
		"namespace of the body in the query": {
			with(event(gwen, "create", "", "selfsubjectaccessreviews", ""), func(e *auditinternal.Event) {
				e.ObjectRef.Namespace = "acme--web"
				e.RequestURI += "?a=/api/v1/namespaces/acme--web/pods"
			}),
			[]tenantaudit.Stream{globex},
		},
		"namespace of the body in a name": {
			with(event(gwen, "create", "", "selfsubjectaccessreviews", ""), func(e *auditinternal.Event) {
				e.ObjectRef.Namespace = "acme--web"
				e.RequestURI += "/namespaces/acme--web/pods"
			}),
			[]tenantaudit.Stream{globex},
		},
		"encoded namespace": { // the encoding does not hide the write from the owner
			with(event(gwen, "delete", "acme--web", "pods", "p"), func(e *auditinternal.Event) {
				e.RequestURI = "/api/v1/namespaces/%61cme--web/pods/p?x=%zz"
			}),
			both,
		},
		"namespace itself": {
			with(event(operator, "delete", "", "namespaces", "acme--web"), func(e *auditinternal.Event) {
				e.ObjectRef.Namespace = "acme--web"
			}),
			[]tenantaudit.Stream{acme},
		},
		"system impersonates": {
			with(event(operator, "get", "acme--web", "pods", "p"), as("alice", "acme")), []tenantaudit.Stream{acme},
		},
		"system impersonates another tenant's user": {
			with(event(operator, "delete", "acme--web", "pods", "p"), as("gwen", "globex")),
			both,
		},
		"tenant impersonates": {
			with(event(alice, "get", "acme--web", "pods", "p"), as("gwen", "globex")), []tenantaudit.Stream{acme},
		},
		"rejected credential": {
			with(event(authenticationv1.UserInfo{}, "delete", "acme--web", "pods", "p"), code(http.StatusUnauthorized)),
			[]tenantaudit.Stream{tenantaudit.Unauthenticated},
		},
		"no user, allowed": {
			event(authenticationv1.UserInfo{}, "delete", "acme--web", "pods", "p"),
			[]tenantaudit.Stream{tenantaudit.Unauthenticated},
		},
		"anonymous, denied": {
			with(event(caller(user.Anonymous, ""), "get", "acme--web", "pods", "p"), code(http.StatusForbidden)),
			[]tenantaudit.Stream{tenantaudit.Unauthenticated},
		},
		"tenant without a stream": {
			event(caller("eve", "invented"), "get", "acme--web", "pods", "p"), nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := slices.Sorted(maps.Keys(project(c.event, fixture())))
			want := append(slices.Clone(c.want), tenantaudit.System)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("streams (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRecordsOfAWrite(t *testing.T) {
	e := event(caller("gwen", "globex"), "delete", "acme--web", "deployments", "web")
	e.ObjectRef.APIGroup, e.RequestURI = "apps", "/apis/apps/v1/namespaces/acme--web/deployments/web?dryRun=globex"
	got := project(e, fixture())
	whole := tenantaudit.Record{
		Time:         e.StageTimestamp.UTC(),
		ID:           uuid,
		Stage:        "ResponseComplete",
		Verb:         "delete",
		Group:        "apps",
		Resource:     "deployments",
		Namespace:    "acme--web",
		Name:         "web",
		Code:         http.StatusOK,
		User:         "gwen",
		Tenant:       "globex",
		Source:       "corporate",
		CredentialID: "JTI=gwen",
	}
	foreign := whole
	foreign.User, foreign.Source, foreign.CredentialID = "", "", ""
	want := map[tenantaudit.Stream]tenantaudit.Record{
		tenantaudit.System: whole, "id-globex": whole, "id-acme": foreign,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

func TestImpersonation(t *testing.T) {
	e := event(caller("system:gateway", ""), "get", "acme--web", "pods", "p")
	alice := caller("alice", "acme")
	e.ImpersonatedUser = &alice
	got := project(e, fixture())
	if r := got["id-acme"]; r.User != "alice" || r.ImpersonatedBy != "system" || r.Tenant != "acme" || r.Source != "" {
		t.Errorf("the tenant's record is %+v", r)
	}
	if r := got[tenantaudit.System]; r.User != "alice" || r.ImpersonatedBy != "system:gateway" || r.Tenant != "acme" {
		t.Errorf("the system's record is %+v", r)
	}
	e.User = caller("bob", "acme")
	for stream, r := range project(e, fixture()) {
		if r.User != "bob" || r.ImpersonatedBy != "" || r.Tenant != "acme" {
			t.Errorf("the record of a tenant's caller that impersonates, in %s, is %+v", stream, r)
		}
	}
}

// TestChosenAuditIDStaysInOwnStream checks that an audit ID that a client chose is not in another
// tenant's stream, unless it has the form of a UUID.
func TestChosenAuditIDStaysInOwnStream(t *testing.T) {
	e := event(caller("gwen", "globex"), "delete", "acme--web", "pods", "p")
	for _, chosen := range []string{
		"gwen-was-here", strings.Repeat("x", 36), uuid + "x", strings.ToUpper(uuid), strings.Repeat("-", 36), "",
	} {
		e.AuditID = types.UID(chosen)
		if got := project(e, fixture())["id-acme"]; got.ID != "" {
			t.Errorf("the owner's record has the ID %q", got.ID)
		}
		if got := project(e, fixture())["id-globex"]; got.ID != chosen {
			t.Errorf("the caller's record has the ID %q, want %q", got.ID, chosen)
		}
	}
}

// TestTextsAreBounded checks that the records of a forged request with texts of 16 MB are small.
func TestTextsAreBounded(t *testing.T) {
	huge := strings.Repeat("é\x00<", 4<<20)
	e := event(caller(huge, "acme"), huge, huge, huge, huge)
	e.AuditID, e.Stage = types.UID(huge), auditinternal.Stage(huge)
	e.ObjectRef.APIGroup, e.ObjectRef.Subresource = huge, huge
	e.User.Extra[tenant.SourceKey], e.User.Extra[user.CredentialIDKey] = []string{huge}, []string{huge}
	path := event(caller("alice", "acme"), "get", "", "", "")
	path.ObjectRef, path.RequestURI = nil, "/"+huge
	for _, e := range []*auditinternal.Event{e, path} {
		for stream, r := range project(e, fixture()) {
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if len(text) > 32<<10 {
				t.Errorf("a record in %s has %d bytes", stream, len(text))
			}
		}
	}
}

// TestStreamsOfClusters checks that tenants of two clusters have different streams, even if their
// IDs or UIDs are equal.
func TestStreamsOfClusters(t *testing.T) {
	seen := map[tenantaudit.Stream]string{}
	for _, cluster := range []string{"", "eu1", "us1", "system", "id-a", "../eu1", "EU1", "a+b", "a"} {
		for _, base := range []tenantaudit.Stream{
			tenantaudit.System, tenantaudit.Unauthenticated, "b+system", tenantaudit.StreamOf(id("acme"), ""),
			tenantaudit.StreamOf(id("acme"), uuid),
		} {
			got, of := base.In(cluster), fmt.Sprintf("%s of %s", base, cluster)
			if other, ok := seen[got]; ok {
				t.Errorf("%s and %s have the stream %q", of, other, got)
			}
			seen[got] = of
			if strings.ContainsAny(string(got), "/@") {
				t.Errorf("%s has the stream %q", of, got)
			}
		}
	}
	if tenantaudit.System.In("eu1").IsTenant() || !tenantaudit.StreamOf(id("acme"), "").In("eu1").IsTenant() {
		t.Error("IsTenant() does not ignore the cluster")
	}
	r := fixture()
	r.Cluster = "eu1"
	for stream := range project(event(caller("gwen", "globex"), "delete", "acme--web", "pods", "p"), r) {
		if !strings.HasPrefix(string(stream), "eu1+") {
			t.Errorf("an event of the cluster is in the stream %q", stream)
		}
	}
}

func TestStreamOf(t *testing.T) {
	seen := map[tenantaudit.Stream]string{tenantaudit.System: "the system's", tenantaudit.Unauthenticated: "the system's"}
	for _, c := range []struct{ name, id, uid string }{
		{"no UID", "acme", ""},
		{"a UID equal to the ID", "acme", "acme"},
		{"the UID system", "acme", "system"},
		{"the UID refused", "acme", "refused"},
		{"a UID with the prefix of an ID", "acme", "id-acme"},
		{"a UUID", "acme", uuid},
		{"a UID that is a path", "acme", "../../etc"},
		{"a long UID", "acme", strings.Repeat("a", 300)},
		{"an ID in upper case", "Acme", ""},
		{"an ID with a dot", "acme.b", ""},
		{"an ID with an underscore", "acme_b", ""},
		{"an ID with the prefix of an ID", "id-acme", ""},
		{"a UID in upper case", "acme", "A"},
		{"an ID with a time", "acme-20261128t010000", ""},
		{"an ID with the prefix of a UID", "uid-acme", ""},
		{"the ID lock", "lock", ""},
		{"the UID lock", "x", "lock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			stream := tenantaudit.StreamOf(id(c.id), c.uid)
			if other, twice := seen[stream]; twice {
				t.Errorf("the stream %s is also that of %s", stream, other)
			}
			seen[stream] = c.name
			if strings.ContainsAny(string(stream), "/@\x00") || strings.HasPrefix(string(stream), ".") || len(stream) > 100 {
				t.Errorf("the stream is %q", stream)
			}
		})
	}
	if tenantaudit.StreamOf(tenant.System(), uuid) != tenantaudit.System {
		t.Error("the system tenant has the stream of a tenant")
	}
}

// TestStreamDoesNotContainOtherTenant checks that the stream of a tenant does not contain the name
// of another tenant. The events contain this name in each field that can contain it.
func TestStreamDoesNotContainOtherTenant(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	r, found, foreign, typed := fixture(), 0, 0, 0
	for range *searched {
		e, mayName := generate(random)
		for _, placed := range tenantaudit.Project(e, r) {
			if placed.Stream != "id-acme" {
				continue
			}
			found++
			record := *placed.Record
			if record.Tenant == "globex" { // the owner sees the tenant of the writer
				if record.User != "" || record.Source != "" || record.CredentialID != "" {
					t.Fatalf("another tenant's caller is named: %+v", record)
				}
				foreign++
				record.Tenant = ""
			}
			text, err := json.Marshal(&record)
			if err != nil {
				t.Fatal(err)
			}
			switch names := strings.Contains(strings.ToLower(string(text)), "globex"); {
			case names && !mayName:
				t.Fatalf("the record names another tenant: %s\nevent: %+v", text, e)
			case names:
				typed++
			}
		}
	}
	// Each kind of record must occur. Otherwise, the search proves nothing.
	if found < *searched/10 || foreign < *searched/100 || typed < *searched/100 {
		t.Errorf("%d records, %d of other tenants, %d with typed names", found, foreign, typed)
	}
}

// generate returns an event. mayName reports whether the record of the event may contain the name
// of the other tenant. This is the case if the caller wrote this name in the path, or chose it as
// the audit ID of its own request.
func generate(random *rand.Rand) (e *auditinternal.Event, mayName bool) {
	pick := func(all ...string) string { return all[random.IntN(len(all))] }
	who := pick("acme", "acme", "globex", "", "system")
	u := caller(who+"-user", who)
	if who == "system" {
		u = caller("system:globex-operator", "")
	}
	namespace := pick("acme--web", "acme--web", "globex--web", "")
	name := pick("web", "web", "globex-web")
	e = event(u, pick("get", "create", "patch", "delete", "list"), namespace, pick("pods", "deployments"), name)
	e.Stage = auditinternal.Stage(pick("ResponseStarted", "ResponseStarted", "ResponseComplete", "Panic"))
	e.ResponseStatus = &metav1.Status{
		Code:    []int32{200, 201, 403, 401, 429, 404}[random.IntN(6)],
		Message: "namespace globex--web belongs to globex",
		Reason:  "globex",
		Details: &metav1.StatusDetails{Name: "globex", Causes: []metav1.StatusCause{{Message: "globex"}}},
	}
	e.Annotations = map[string]string{
		"authorization.k8s.io/reason":                  "globex",
		callerKey:                                      who,
		"authorization.kubetenant.dev/reason":          "globex",
		"pod-security.kubernetes.io/globex":            "globex",
		"authentication.kubetenant.dev/credential-id":  "globex",
		"authorization.kubetenant.dev/path-tenant":     "globex",
		"globex.example.com/authorization.k8s.io/none": "allow",
	}
	allowed := random.IntN(2) == 0
	if allowed {
		e.Annotations["authorization.k8s.io/decision"] = "allow"
	}
	if random.IntN(4) == 0 {
		e.Annotations[ownerKey] = pick("acme", "globex", "system", "no tenant")
	}
	e.User.UID = "globex"
	e.User.Groups = append(e.User.Groups, "tenant:globex", "globex:admins")
	e.User.Extra["globex.example.com"] = []string{"globex"}
	e.UserAgent, e.SourceIPs = "globex/1.0", []string{"globex", "192.0.2.1"}
	e.RequestURI += "?labelSelector=kubetenant.dev/tenant=globex&fieldManager=globex"
	if random.IntN(8) == 0 {
		e.AuditID = "globex"
		mayName = who == "acme" // the header of its own request
	}
	if random.IntN(8) == 0 { // the body contains another namespace
		e.ObjectRef.Namespace = "acme--web"
	}
	if who == "system" && random.IntN(2) == 0 {
		of := pick("acme", "globex")
		as := caller(of+"-user", of)
		as.Groups, as.Extra["more"] = []string{"globex"}, []string{"globex"}
		e.ImpersonatedUser = &as
		e.Annotations[callerKey] = of
	}
	if random.IntN(8) == 0 {
		e.ObjectRef, e.RequestURI = nil, pick("/healthz", "/globex")+"?globex"
	}
	path, _, _ := strings.Cut(e.RequestURI, "?")
	return e, mayName || strings.Contains(path, "globex")
}

func FuzzProject(f *testing.F) {
	const uri = "/api/v1/namespaces/acme--web/pods/p"
	f.Add("gwen", "globex", "delete", "acme--web", "pods", "p", uri, int32(200), "allow", "")
	f.Add("", "", "", "", "", "", "/%zz", int32(401), "", "acme")
	f.Fuzz(func(
		t *testing.T, name, of, verb, namespace, resource, object, uri string, code int32, decision, owner string,
	) {
		if _, err := tenant.Parse(of); err != nil {
			of = "acme"
		}
		e := event(caller(name, of), verb, namespace, resource, object)
		e.RequestURI, e.ResponseStatus.Code = uri, code
		e.Annotations["authorization.k8s.io/decision"] = decision
		if owner != "" {
			e.Annotations[ownerKey] = owner
		}
		own := tenantaudit.StreamOf(id(of), "")
		for stream, r := range project(e, fixture()) {
			if !stream.IsTenant() || stream == own {
				continue
			}
			if decision != "allow" || code == 403 || code == 401 || name == "" {
				t.Errorf("a request that was not allowed is in %s", stream)
			}
			if r.User != "" || r.Source != "" || r.CredentialID != "" || r.Path != "" {
				t.Errorf("the caller is named in %s: %+v", stream, r)
			}
		}
	})
}
