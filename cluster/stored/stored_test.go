// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stored_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/cluster/stored"
	"github.com/kubetenant/kubetenant/internal/usage/usagetest"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var (
	pods    = corev1.SchemeGroupVersion.WithResource("pods")
	claims  = corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	service = corev1.SchemeGroupVersion.WithResource("services")
	secrets = corev1.SchemeGroupVersion.WithResource("secrets")
	events  = schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
)

// objects is a fake server. It has the JSON of each object, keyed by resource.
type objects map[schema.GroupVersionResource][]string

// list returns pages of two objects. The continue token is the number of the next object.
func (o objects) list(
	_ context.Context, of schema.GroupVersionResource, limit int, next string,
) (io.ReadCloser, error) {
	if limit != 500 {
		return nil, fmt.Errorf("a limit of %d", limit)
	}
	const page = 2
	from, _ := strconv.Atoi(next)
	all := o[of]
	to, token := min(from+page, len(all)), ""
	if to < len(all) {
		token = strconv.Itoa(to)
	}
	text := fmt.Sprintf(`{"kind":"List","other":[{"items":[1]}],"items":[%s],"metadata":{"continue":%q}}`,
		strings.Join(all[from:to], ","), token)
	return io.NopCloser(strings.NewReader(text)), nil
}

func pod(namespace, cpu string, more ...string) string {
	requests := fmt.Sprintf(`"cpu":%q,"memory":"1Gi"`, cpu)
	for _, name := range more {
		requests += fmt.Sprintf(`,%q:"1"`, name)
	}
	return fmt.Sprintf(`{"metadata":{"namespace":%q,"name":"p"},"spec":{"containers":[{"name":"c","resources":`+
		`{"requests":{%s}}}]}}`, namespace, requests)
}

type fixture struct {
	*usagetest.Server
	options stored.Options
	owners  map[string]tenant.ID
	uids    map[tenant.ID]string
	objects objects
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	acme, initech := tenanttest.ID(t, "acme"), tenanttest.ID(t, "initech")
	f := &fixture{
		Server: usagetest.New(t),
		owners: map[string]tenant.ID{
			"acme--web":   acme,
			"acme--db":    acme,
			"initech":     initech,
			"kube-system": tenant.System(),
			"unowned":     {},
		},
		uids:    map[tenant.ID]string{acme: "uid-of-acme", tenanttest.ID(t, "globex"): "uid-of-globex"},
		objects: objects{},
	}
	f.options = stored.Options{
		List: func(ctx context.Context, of schema.GroupVersionResource, limit int, next string) (io.ReadCloser, error) {
			return f.objects.list(ctx, of, limit, next)
		},
		Client: f.Server,
		Resources: func() (all []schema.GroupVersionResource, err error) {
			for of := range f.objects {
				all = append(all, of)
			}
			return all, nil
		},
		Namespaces: func() (map[string]tenant.ID, error) { return f.owners, nil },
		Tenants:    func() (map[tenant.ID]string, bool) { return f.uids, true },
		Classes:    func() (quota.Classes, error) { return nil, quota.ErrUnknown },
		ManagerOf:  func(server string) string { return v1alpha1.UsageManager + "-" + server },
		Metrics:    stored.NewMetrics(),
	}
	return f
}

func (f *fixture) pass(t *testing.T) {
	t.Helper()
	if err := stored.New(f.options).Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestPass checks the measurement of each tenant if the objects are on several pages. Events are
// not counted twice. Objects in namespaces of the system tenant and in unowned namespaces are not
// counted.
func TestPass(t *testing.T) {
	f := newFixture(t)
	web, db, other := pod("acme--web", "500m", "example.com/gpu"), pod("acme--db", "2"), pod("initech", "1")
	secret := `{"metadata":{"namespace":"acme--web","name":"s"},"data":{"x":"` + strings.Repeat("eA==", 1000) + `"}}`
	claim := `{"metadata":{"namespace":"acme--db"},"spec":{"storageClassName":"gold","resources":{"requests":` +
		`{"storage":"10Gi"}}}}`
	balancer := `{"metadata":{"namespace":"acme--web"},"spec":{"type":"LoadBalancer","ports":[{"port":80}]}}`
	f.objects = objects{
		pods:    {web, db, other, pod("kube-system", "8"), pod("unowned", "8"), pod("nowhere", "8"), web},
		secrets: {secret},
		claims:  {claim},
		service: {balancer, balancer},
		events:  {web, web},
	}
	f.pass(t)
	u := f.Usage("acme")
	if u == nil || u.Stored == nil {
		t.Fatalf("%+v", u)
	}
	bytes := int64(2*len(web) + len(db) + len(secret) + len(claim) + 2*len(balancer))
	s := u.Stored
	if u.Tenant != "acme" || u.UID != "uid-of-acme" || s.Namespaces != 2 || s.Objects != 7 || s.Bytes != bytes ||
		time.Since(s.MeasuredAt.Time) > time.Hour {
		t.Errorf("%+v, %+v; want 2 namespaces, 7 objects, %d bytes", u, s, bytes)
	}
	want := map[corev1.ResourceName]string{
		"requests.cpu":             "3",
		"requests.memory":          "3Gi",
		"requests.example.com/gpu": "2",
		"requests.storage":         "10Gi",
		"persistentvolumeclaims":   "1",
		"services.loadbalancers":   "2",
	}
	for name, quantity := range s.Requested {
		if want[name] != quantity.String() {
			t.Errorf("%s: %s; want %q", name, quantity.String(), want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("missing %v", want)
	}
	if s := f.Usage("initech"); s == nil || s.UID != "" || s.Stored.Objects != 1 || s.Stored.Namespaces != 1 {
		t.Errorf("a tenant without a Tenant: %+v", s)
	}
	if s := f.Usage("globex"); s == nil || s.Stored.Objects != 0 || s.Stored.Namespaces != 0 {
		t.Errorf("a tenant without a namespace: %+v", s)
	}
	if f.Usage("system") != nil {
		t.Error("a TenantUsage of the system tenant")
	}
}

// TestResourceNamesAreLimited checks that a tenant that requests many resources does not make its
// TenantUsage large.
func TestResourceNamesAreLimited(t *testing.T) {
	f := newFixture(t)
	for i := range 500 {
		f.objects[pods] = append(f.objects[pods], strings.Replace(pod("acme--web", "1", fmt.Sprintf("example.com/r%d", i)),
			`"cpu":"1","memory":"1Gi",`, "", 1))
	}
	f.objects[pods] = append(f.objects[pods], pod("acme--web", "1"))
	f.pass(t)
	got := f.Usage("acme").Stored.Requested
	if n := len(got); n > 66 {
		t.Errorf("%d names; want at most 64 and those of Kubernetes", n)
	}
	if cpu := got["requests.cpu"]; cpu.IsZero() {
		t.Error("requests.cpu is missing because of invented names")
	}
}

// TestErrors checks that a resource that cannot be read does not affect the measurement of other
// resources. The TenantUsage and the error name the resource.
func TestErrors(t *testing.T) {
	for name, answer := range map[string]func() (io.ReadCloser, error){
		"forbidden": func() (io.ReadCloser, error) { return nil, apierrors.NewForbidden(secrets.GroupResource(), "", nil) },
		"expired":   func() (io.ReadCloser, error) { return nil, apierrors.NewResourceExpired("too old") },
		"truncated": func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(`{"items":[{"metadata":{"namespace":"acme--web"}}`)), nil
		},
		"not a list":     func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(`[1]`)), nil },
		"not items":      func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(`{"items":7}`)), nil },
		"not objects":    func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(`{"items":[7]}`)), nil },
		"not JSON":       func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(`<html>`)), nil },
		"empty response": func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(``)), nil },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.objects = objects{pods: {pod("acme--web", "1")}, secrets: nil}
			list := f.options.List
			f.options.List = func(
				ctx context.Context, of schema.GroupVersionResource, limit int, next string,
			) (io.ReadCloser, error) {
				if of == secrets {
					return answer()
				}
				return list(ctx, of, limit, next)
			}
			err := stored.New(f.options).Pass(t.Context())
			if err == nil || !strings.Contains(err.Error(), "list secrets") {
				t.Errorf("%v; want an error that names secrets", err)
			}
			missing := []string{"secrets"}
			if u := f.Usage("acme"); u == nil || u.Stored.Objects != 1 || !slices.Equal(u.Stored.Incomplete, missing) {
				t.Errorf("%+v; want the pod, and that secrets are missing", u)
			}
			f.options.List = list
			f.pass(t)
			if u := f.Usage("acme"); len(u.Stored.Incomplete) != 0 {
				t.Errorf("%+v; want a complete measurement", u)
			}
		})
	}
	f := newFixture(t)
	f.options.Tenants = func() (map[tenant.ID]string, bool) { return nil, false }
	if err := stored.New(f.options).Pass(t.Context()); err == nil || f.Writes() != 0 {
		t.Errorf("Tenants are not known: %v, %d writes", err, f.Writes())
	}
	f.options = newFixture(t).options
	f.options.Namespaces = func() (map[string]tenant.ID, error) { return nil, errors.New("not synced") }
	if err := stored.New(f.options).Pass(t.Context()); err == nil {
		t.Error("no error without namespaces")
	}
}

// TestExpired checks that a list with an expired token continues with the token in the response. It
// starts again if the response has no token.
func TestExpired(t *testing.T) {
	for _, token := range []string{"", "2"} {
		f := newFixture(t)
		f.objects[pods] = []string{pod("acme--web", "1"), pod("acme--web", "1"), pod("acme--web", "1")}
		list, expired := f.options.List, false
		var reads []string
		f.options.List = func(
			ctx context.Context, of schema.GroupVersionResource, limit int, next string,
		) (io.ReadCloser, error) {
			reads = append(reads, next)
			if next != "" && !expired {
				expired = true
				status := apierrors.NewResourceExpired("too old")
				status.ErrStatus.Continue = token
				return nil, status
			}
			return list(ctx, of, limit, next)
		}
		f.pass(t)
		want := []string{"", "2", "2"}
		if token == "" {
			want = []string{"", "2", "", "2"}
		}
		if u := f.Usage("acme"); !slices.Equal(reads, want) || u.Stored.Objects != 3 {
			t.Errorf("%q, %+v; want 3 objects from %q", reads, u.Stored, want)
		}
	}
}

// TestLargeObjects checks that the pages after a large page have fewer objects.
func TestLargeObjects(t *testing.T) {
	f := newFixture(t)
	secret := `{"metadata":{"namespace":"acme--web","name":"s"},"data":{"x":"` + strings.Repeat("eA==", 3<<20) + `"}}`
	for range 7 {
		f.objects[secrets] = append(f.objects[secrets], secret)
	}
	for range 6 {
		f.objects[secrets] = append(f.objects[secrets], pod("acme--web", "1"))
	}
	list := f.objects.list
	var limits []int
	f.options.List = func(
		ctx context.Context, of schema.GroupVersionResource, limit int, next string,
	) (io.ReadCloser, error) {
		limits = append(limits, limit)
		return list(ctx, of, 500, next)
	}
	f.pass(t)
	if want := []int{500, 250, 125, 62, 124, 248, 496}; !slices.Equal(limits, want) {
		t.Errorf("limits %v; want %v", limits, want)
	}
	if u := f.Usage("acme"); u.Stored.Objects != 13 {
		t.Errorf("%+v; want 13 objects", u.Stored)
	}
}

// add creates a TenantUsage with the entry of a server, as the server does.
func (f *fixture) add(t *testing.T, name, uid, server string, hour time.Time) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.TenantUsage{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: v1alpha1.KindTenantUsage},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Tenant:     name,
		UID:        uid,
		Servers: []v1alpha1.ServerUsage{{
			Name:  server,
			Hours: []v1alpha1.HourUsage{{Hour: metav1.NewTime(hour), Requests: 1}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Resource(usagetest.Usages()).Apply(t.Context(), name, &unstructured.Unstructured{Object: content},
		metav1.ApplyOptions{FieldManager: v1alpha1.UsageManager + "-" + server, Force: true}); err != nil {
		t.Fatal(err)
	}
}

// TestCleanUp checks that entries of servers without recent requests, and TenantUsages of deleted
// tenants and earlier Tenants, are removed. Other entries and TenantUsages remain.
func TestCleanUp(t *testing.T) {
	f := newFixture(t)
	recent, old := time.Now().Add(-time.Hour), time.Now().Add(-50*time.Hour)
	f.add(t, "acme", "uid-of-acme", "now", recent)
	f.add(t, "acme", "uid-of-acme", "gone", old)
	f.add(t, "globex", "uid-of-earlier", "now", recent)
	f.add(t, "deleted", "uid-of-deleted", "now", recent)
	adopted := tenanttest.ID(t, "adopted")
	f.add(t, "adopted", "", "now", recent)
	f.uids[adopted] = "uid-of-adopted"
	earlier := f.Usage("globex").ObjectMeta.UID
	f.pass(t)
	u := f.Usage("acme")
	if len(u.Servers) != 1 || u.Servers[0].Name != "now" || u.Stored == nil {
		t.Errorf("acme: %+v", u)
	}
	if u := f.Usage("globex"); u == nil || u.ObjectMeta.UID == earlier || u.UID != "uid-of-globex" || len(u.Servers) != 0 {
		t.Errorf("globex: %+v; want another object", u)
	}
	if u := f.Usage("adopted"); u.UID != "uid-of-adopted" || len(u.Servers) != 1 {
		t.Errorf("adopted: %+v; want the existing hours and the UID of the Tenant", u)
	}
	if u := f.Usage("deleted"); u != nil {
		t.Errorf("the TenantUsage of a deleted tenant: %+v", u)
	}
}

// TestListsOf checks the requests that a real client sends for pages.
func TestListsOf(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.URL.String()+" "+r.Header.Get("Accept"))
		if r.URL.Query().Get("continue") == "expired" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusGone)
			status := apierrors.NewResourceExpired("too old").Status()
			status.Continue = "later"
			status.Kind, status.APIVersion = "Status", "v1"
			_ = json.NewEncoder(w).Encode(status)
			return
		}
		_, _ = w.Write([]byte(`{"items":[]}`))
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:          server.URL,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf},
	})
	if err != nil {
		t.Fatal(err)
	}
	list := stored.ListsOf(client.Discovery().RESTClient())
	for name, c := range map[string]struct {
		of         schema.GroupVersionResource
		next, want string
	}{
		"the first page of a core resource": {pods, "", "/api/v1/pods?limit=500 application/json"},
		"a later page of another resource": {
			schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
			"a b",
			"/apis/apps/v1/deployments?continue=a+b&limit=500 application/json",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got = nil
			page, err := list(t.Context(), c.of, 500, c.next)
			if err != nil {
				t.Fatal(err)
			}
			_ = page.Close()
			if !slices.Equal(got, []string{c.want}) {
				t.Errorf("requests %q; want %q", got, c.want)
			}
		})
	}
	got = nil
	_, err = list(t.Context(), pods, 500, "expired")
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) || status.Status().Continue != "later" {
		t.Errorf("%v; want an expired token and the next token", err)
	}
	if want := "/api/v1/pods?continue=expired&limit=500 application/json"; !slices.Equal(got, []string{want}) {
		t.Errorf("requests %q; want %q", got, want)
	}
}

// TestRun checks that a new leader does not repeat a recent measurement.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.objects[pods] = []string{pod("acme--web", "1")}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		run := func() { go func() { done <- stored.New(f.options).Run(ctx) }() }
		measured := func() time.Time {
			synctest.Wait()
			if u := f.Usage("acme"); u != nil {
				return u.Stored.MeasuredAt.Time
			}
			return time.Time{}
		}
		run()
		time.Sleep(30 * time.Second)
		if at := measured(); !at.IsZero() {
			t.Errorf("measured at %v; want a minute after the start", at)
		}
		time.Sleep(time.Minute)
		first := measured()
		if first.IsZero() {
			t.Error("not measured after a minute")
		}
		time.Sleep(time.Hour)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		run()
		time.Sleep(4 * time.Hour)
		if at := measured(); !at.Equal(first) {
			t.Errorf("the next leader measured at %v; the last measurement was at %v", at, first)
		}
		time.Sleep(2 * time.Hour)
		if at := measured(); at.Equal(first) {
			t.Error("not measured after 6 hours")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// during makes the first read of objects call change.
func (f *fixture) during(change func()) {
	list, once := f.options.List, sync.OnceFunc(change)
	f.options.List = func(
		ctx context.Context, of schema.GroupVersionResource, limit int, next string,
	) (io.ReadCloser, error) {
		once()
		return list(ctx, of, limit, next)
	}
}

// TestChangesDuringPass checks that a pass neither deletes nor writes the TenantUsage of a tenant
// that was created during the pass.
func TestChangesDuringPass(t *testing.T) {
	f := newFixture(t)
	f.objects[pods] = []string{pod("acme--web", "1")}
	f.pass(t)
	hour := time.Now().Truncate(time.Hour)
	acme, late := tenanttest.ID(t, "acme"), tenanttest.ID(t, "late")
	f.during(func() { // other servers have already observed the new Tenants
		f.uids[acme], f.uids[late] = "second", "uid-of-late"
		if err := f.Tracker().Delete(usagetest.Usages(), "", "acme"); err != nil {
			t.Fatal(err)
		}
		f.add(t, "acme", "second", "cp-0", hour)
		f.add(t, "late", "uid-of-late", "cp-0", hour)
	})
	f.pass(t)
	for name, uid := range map[string]string{"acme": "second", "late": "uid-of-late"} {
		t.Run(name, func(t *testing.T) {
			if u := f.Usage(name); u == nil || u.UID != uid || u.Stored != nil || len(u.Servers) != 1 {
				t.Errorf("%+v; want the TenantUsage of the new Tenant without a measurement", u)
			}
		})
	}
}

// TestChangesDuringWrite checks that a TenantUsage is not replaced or deleted if the Tenant with
// its UID is created during the writes.
func TestChangesDuringWrite(t *testing.T) {
	f := newFixture(t)
	f.objects[pods] = []string{pod("acme--web", "1")}
	hour := time.Now().Truncate(time.Hour)
	f.add(t, "acme", "second", "cp-0", hour)
	f.add(t, "deleted", "uid-of-deleted", "cp-0", hour)
	acme, deleted := tenanttest.ID(t, "acme"), tenanttest.ID(t, "deleted")
	calls := 0
	f.options.Tenants = func() (map[tenant.ID]string, bool) {
		if calls++; calls == 3 { // the first two calls are at the start of the pass and of the writes
			f.uids[acme], f.uids[deleted] = "second", "uid-of-deleted"
		}
		return f.uids, true
	}
	if err := stored.New(f.options).Pass(t.Context()); err == nil || !strings.Contains(err.Error(), "during") {
		t.Errorf("%v; want an error about changed tenants", err)
	}
	for name, uid := range map[string]string{"acme": "second", "deleted": "uid-of-deleted"} {
		t.Run(name, func(t *testing.T) {
			if u := f.Usage(name); u == nil || u.UID != uid || len(u.Servers) != 1 {
				t.Errorf("%+v; want the TenantUsage of the new Tenant", u)
			}
		})
	}
}

// TestNoRights checks that a pass sends few requests if TenantUsages are not defined or may not
// be written, and that its error is short.
func TestNoRights(t *testing.T) {
	f := newFixture(t)
	for i := range 1000 {
		f.uids[tenanttest.ID(t, fmt.Sprintf("t-%d", i))] = "uid"
	}
	f.objects[pods] = []string{pod("acme--web", "1")}
	writes, reads := 0, 0
	f.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		writes++
		return true, nil, apierrors.NewForbidden(usagetest.Usages().GroupResource(), "",
			errors.New(strings.Repeat("x", 1000)))
	})
	err := stored.New(f.options).Pass(t.Context())
	if !apierrors.IsForbidden(err) || len(err.Error()) > 12_000 || writes != 5 {
		t.Errorf("%d writes, %v; want 5 writes", writes, err)
	}
	f.during(func() { reads++ })
	f.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(usagetest.Usages().GroupResource(), "")
	})
	if err := stored.New(f.options).Pass(t.Context()); !apierrors.IsNotFound(err) || reads != 0 {
		t.Errorf("without the definition: %d reads, %v", reads, err)
	}
}

// TestRetry checks that a failed pass is retried with a growing delay.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.Fail(errors.New("down"))
		var passes atomic.Int32
		resources := f.options.Resources
		f.options.Resources = func() ([]schema.GroupVersionResource, error) {
			passes.Add(1)
			return resources()
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- stored.New(f.options).Run(ctx) }()
		time.Sleep(10 * time.Minute) // at 1, 2, 4 and 8 minutes
		if n := passes.Load(); n != 4 {
			t.Errorf("%d passes; want 4", n)
		}
		f.Fail(nil)
		time.Sleep(10 * time.Minute)
		if u := f.Usage("acme"); u == nil || u.Stored == nil {
			t.Errorf("%+v; want a measurement", u)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestClockAhead checks that no entries of servers are removed if all entries are old, because
// the clock of this process may be days ahead.
func TestClockAhead(t *testing.T) {
	f := newFixture(t)
	f.add(t, "acme", "uid-of-acme", "cp-0", time.Now().Add(-100*time.Hour))
	f.pass(t)
	if u := f.Usage("acme"); len(u.Servers) != 1 || u.Stored == nil {
		t.Errorf("%+v; want the entry of the server, because no server has written a later one", u)
	}
}
