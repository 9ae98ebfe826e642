// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/internal/usage"
	"github.com/kubetenant/kubetenant/internal/usage/usagetest"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// writerFixture contains a writer of TenantUsages and its recorder.
type writerFixture struct {
	*usage.Writer
	clock    *clock
	recorder *usage.Recorder
}

func newWriterFixture(s *usagetest.Server, name string, c *clock, d *directory) *writerFixture {
	w := &writerFixture{clock: c, recorder: usage.NewRecorder(c.now, d.exists, d.uid)}
	w.Writer = usage.NewWriter(usage.WriterOptions{
		Recorder: w.recorder,
		Client:   s,
		Server:   name,
		Metrics:  usage.NewMetrics(),
	})
	return w
}

func (w *writerFixture) use(t *testing.T, name string, requests int) {
	t.Helper()
	for range requests {
		w.recorder.Denied(tenanttest.ID(t, name))
	}
}

func (w *writerFixture) write(t *testing.T) {
	t.Helper()
	w.Collect()
	w.Pass(t.Context())
}

// hoursOf returns a server's hours in a TenantUsage as text: hour:requests/denied.
func hoursOf(u *v1alpha1.TenantUsage, server string) string {
	if u == nil {
		return "none"
	}
	for i := range u.Servers {
		if u.Servers[i].Name == server {
			var all []string
			for _, h := range u.Servers[i].Hours {
				all = append(all, fmt.Sprintf("%d:%d/%d", int(h.Hour.Sub(begin).Hours()), h.Requests, h.Denied))
			}
			return strings.Join(all, " ")
		}
	}
	return ""
}

// TestWriter checks that each server writes its own entry, only if there are changes, and adds its
// totals to those of an earlier process.
func TestWriter(t *testing.T) {
	s, d := usagetest.New(t), newDirectory("acme", "initech", "system")
	s.AddTenant("acme", "uid-of-acme")
	first, other := newWriterFixture(s, "cp-0", newClock(), d), newWriterFixture(s, "cp-1", newClock(), d)
	check := func(server, want string) {
		t.Helper()
		if got := hoursOf(s.Usage("acme"), server); got != want {
			t.Errorf("%s: %s; want %s", server, got, want)
		}
	}
	first.use(t, "acme", 3)
	first.use(t, "system", 3)
	first.use(t, "invented", 3)
	first.recorder.Allowed(tenant.ID{})
	first.write(t)
	first.write(t)
	if n := s.Writes(); n != 1 {
		t.Fatalf("%d writes; want 1, for the only tenant with a change", n)
	}
	check("cp-0", "0:3/3")
	first.clock.add(time.Hour)
	first.use(t, "acme", 2)
	other.use(t, "acme", 5)
	other.write(t)
	first.write(t)
	check("cp-0", "0:3/3 1:2/2")
	check("cp-1", "0:5/5")
	if u := s.Usage("acme"); u.UID != "uid-of-acme" || u.Tenant != "acme" {
		t.Errorf("%+v", u)
	}

	// Another process of the server runs in the same hour.
	c := newClock()
	c.add(time.Hour)
	again := newWriterFixture(s, "cp-0", c, d)
	again.use(t, "acme", 10)
	again.write(t)
	check("cp-0", "0:3/3 1:12/12")
	again.use(t, "acme", 1)
	again.write(t)
	check("cp-0", "0:3/3 1:13/13")
	c.add(time.Hour)
	again.use(t, "acme", 1)
	again.write(t)
	check("cp-0", "0:3/3 1:13/13 2:1/1")
	if err := s.Tracker().Delete(usagetest.Usages(), "", "acme"); err != nil {
		t.Fatal(err)
	}
	again.use(t, "acme", 1)
	again.write(t)
	check("cp-0", "1:13/13 2:2/2")
}

// TestWriterFailures checks that a failed write is retried and that no total is added twice, even
// if the result of a write is unknown.
func TestWriterFailures(t *testing.T) {
	s, d := usagetest.New(t), newDirectory("acme")
	s.AddTenant("acme", "uid-of-acme")
	before := newWriterFixture(s, "cp-0", newClock(), d)
	before.use(t, "acme", 5)
	before.write(t)
	w := newWriterFixture(s, "cp-0", newClock(), d)
	w.use(t, "acme", 2)
	s.Fail(errors.New("timeout"))
	w.write(t)
	w.write(t)
	s.Fail(nil)
	w.write(t)
	w.use(t, "acme", 1)
	w.write(t)
	if got := hoursOf(s.Usage("acme"), "cp-0"); got != "0:8/8" {
		t.Errorf("%s; want 0:8/8", got)
	}
}

// TestWriter48Hours checks that the entry of a server contains at most the current hour and the 48
// hours before it, and that none of these hours is lost.
func TestWriter48Hours(t *testing.T) {
	s, d := usagetest.New(t), newDirectory("acme")
	s.AddTenant("acme", "uid-of-acme")
	w := newWriterFixture(s, "cp-0", newClock(), d)
	for range 60 {
		w.use(t, "acme", 1)
		w.write(t)
		w.clock.add(time.Hour)
	}
	u := s.Usage("acme")
	hours := u.Servers[0].Hours
	if len(hours) != 49 || !hours[0].Hour.Time.Equal(at(11)) || !hours[48].Hour.Time.Equal(at(59)) {
		t.Errorf("%d hours: %s", len(hours), hoursOf(u, "cp-0"))
	}
	for _, h := range hours {
		if h.Requests != 1 {
			t.Errorf("%+v; want 1 request", h)
		}
	}
	// Days later, the old hours are removed.
	w.clock.add(100 * time.Hour)
	w.use(t, "acme", 1)
	w.write(t)
	if got := hoursOf(s.Usage("acme"), "cp-0"); got != "160:1/1" {
		t.Errorf("%s; want the last hour only", got)
	}
}

// at returns the beginning of the given hour of the test.
func at(hour int) time.Time { return begin.Add(time.Duration(hour) * time.Hour) }

// TestWriterRecreated checks that the TenantUsage of an earlier Tenant is replaced, and that a
// server with a stale cache does not replace the TenantUsage of the current Tenant.
func TestWriterRecreated(t *testing.T) {
	s, d, late := usagetest.New(t), newDirectory("acme"), newDirectory("acme")
	s.AddTenant("acme", "uid-of-acme")
	w, behind := newWriterFixture(s, "cp-0", newClock(), d), newWriterFixture(s, "cp-1", newClock(), late)
	w.use(t, "acme", 3)
	w.write(t)
	behind.use(t, "acme", 3)
	behind.write(t)
	first := s.Usage("acme").ObjectMeta.UID
	s.AddTenant("acme", "second")
	d.set("acme", "second")
	w.recorder.Check(tenanttest.ID(t, "acme"))
	w.use(t, "acme", 1)
	w.write(t)
	u := s.Usage("acme")
	if u.UID != "second" || u.ObjectMeta.UID == first || hoursOf(u, "cp-0") != "0:1/1" || hoursOf(u, "cp-1") != "" {
		t.Fatalf("%+v", u)
	}
	behind.use(t, "acme", 3)
	behind.write(t)
	if got := s.Usage("acme"); got.UID != "second" || hoursOf(got, "cp-0") != "0:1/1" || hoursOf(got, "cp-1") != "" {
		t.Errorf("a server with a stale cache wrote %+v", got)
	}
	late.set("acme", "second")
	behind.recorder.Check(tenanttest.ID(t, "acme"))
	behind.use(t, "acme", 2)
	behind.write(t)
	behind.use(t, "acme", 2)
	behind.write(t)
	if got := hoursOf(s.Usage("acme"), "cp-1"); got != "0:4/4" {
		t.Errorf("after the server has observed the new Tenant: %s; want 0:4/4", got)
	}
}

// TestWriterOfADeletedTenant checks that a server with a stale cache does not create the
// TenantUsage of a deleted Tenant again.
func TestWriterOfADeletedTenant(t *testing.T) {
	for name, now := range map[string]string{"deleted": "", "recreated": "second"} {
		t.Run(name, func(t *testing.T) {
			s, behind := usagetest.New(t), newDirectory("acme")
			if now != "" {
				s.AddTenant("acme", now)
			}
			w := newWriterFixture(s, "cp-0", newClock(), behind)
			w.use(t, "acme", 3)
			w.write(t)
			if got := s.Usage("acme"); got != nil {
				t.Errorf("the server wrote %+v", got)
			}
		})
	}
}

// TestWriterClockJumps checks that a clock that jumps causes neither invalid objects nor lost
// totals.
func TestWriterClockJumps(t *testing.T) {
	s, d := usagetest.New(t), newDirectory("acme")
	s.AddTenant("acme", "uid-of-acme")
	w := newWriterFixture(s, "cp-0", newClock(), d)
	for _, jump := range []time.Duration{0, -time.Hour, time.Hour, 100 * time.Hour, -100 * time.Hour, 0} {
		w.clock.add(jump)
		w.use(t, "acme", 1)
		w.write(t)
	}
	for _, h := range s.Usage("acme").Servers[0].Hours {
		if h.Requests < 0 || h.Denied > h.Requests {
			t.Errorf("%+v", h)
		}
	}
	// The hours before the jump appeared older than 48 hours for some time.
	if got := hoursOf(s.Usage("acme"), "cp-0"); got != "0:2/2 100:1/1" {
		t.Errorf("hours after jumps: %s", got)
	}
}

// TestServerName checks the default and the maximum length of the name of a server.
func TestServerName(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, c := range [][3]string{
		{"cp-0", "host", "cp-0"}, {"", "", usage.Unnamed}, {"", "Host", "host"}, {"", long, long[:usage.MaxServerName]},
	} {
		if got := usage.ServerName(c[0], c[1]); got != c[2] {
			t.Errorf("ServerName(%q, %q) = %q; want %q", c[0], c[1], got, c[2])
		}
	}
	if n := len(usage.FieldManager(usage.ServerName("", long))); n > 128 {
		t.Errorf("a field manager of %d bytes; want at most 128", n)
	}
}

// TestWriterOrder checks that the tenant with the most unsaved requests is written first.
func TestWriterOrder(t *testing.T) {
	s, d := usagetest.New(t), newDirectory("acme", "globex", "initech")
	for _, name := range []string{"acme", "globex", "initech"} {
		s.AddTenant(name, "uid-of-"+name)
	}
	var order []string
	s.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		order = append(order, a.(clienttesting.PatchAction).GetName())
		return false, nil, nil
	})
	w := newWriterFixture(s, "cp-0", newClock(), d)
	w.use(t, "globex", 100)
	w.write(t)
	w.use(t, "acme", 2)
	w.use(t, "globex", 1)
	w.use(t, "initech", 300)
	w.write(t)
	if got := strings.Join(order, " "); got != "globex initech globex acme" {
		t.Errorf("%s; want globex initech globex acme, because all requests of an hour are compared", got)
	}
}

// TestTenantUsageRemainsWhenTenantIsCreated checks that a tenant that gets a Tenant object retains
// its TenantUsage, including the totals that were not written before.
func TestTenantUsageRemainsWhenTenantIsCreated(t *testing.T) {
	s, d := usagetest.New(t), newDirectory()
	d.set("acme", "")
	w, other := newWriterFixture(s, "cp-0", newClock(), d), newWriterFixture(s, "cp-1", newClock(), d)
	w.use(t, "acme", 3)
	w.write(t)
	other.use(t, "acme", 5)
	other.write(t)
	first := s.Usage("acme").ObjectMeta.UID
	w.use(t, "acme", 1)
	w.clock.add(time.Hour)
	w.use(t, "acme", 2)
	s.AddTenant("acme", "uid-of-acme")
	d.set("acme", "uid-of-acme")
	w.use(t, "acme", 1)
	w.write(t)
	other.write(t)
	u := s.Usage("acme")
	if u.UID != "uid-of-acme" || u.ObjectMeta.UID != first || hoursOf(u, "cp-0") != "0:4/4 1:3/3" ||
		hoursOf(u, "cp-1") != "0:5/5" {
		t.Errorf("%+v; want all hours with the UID of the Tenant", u)
	}
	w.recorder.Check(tenanttest.ID(t, "acme"))
	w.use(t, "acme", 1)
	w.write(t)
	if got := hoursOf(s.Usage("acme"), "cp-0"); got != "0:4/4 1:4/4" {
		t.Errorf("%s; want 0:4/4 1:4/4", got)
	}
}

// TestWriterClockAhead checks that a clock that is set to a wrong time does not remove hours.
func TestWriterClockAhead(t *testing.T) {
	s, d := usagetest.New(t), newDirectory("acme")
	s.AddTenant("acme", "uid-of-acme")
	w := newWriterFixture(s, "cp-0", newClock(), d)
	w.recorder.SetElapsed(func() time.Duration { return time.Hour })
	w.use(t, "acme", 1)
	w.write(t)
	w.clock.add(time.Hour)
	w.use(t, "acme", 2)
	w.write(t)
	w.clock.add(1000 * time.Hour)
	w.use(t, "acme", 3)
	w.write(t)
	w.clock.add(-1000 * time.Hour)
	w.use(t, "acme", 4)
	w.write(t)
	if got := hoursOf(s.Usage("acme"), "cp-0"); got != "0:1/1 1:6/6 1001:3/3" {
		t.Errorf("%s; want 0:1/1 1:6/6 1001:3/3", got)
	}
}

// TestWriterSameName checks that two servers with the same name do not overwrite each other's
// hours. The server that wrote first stops writing and reports the conflict.
func TestWriterSameName(t *testing.T) {
	s, d := usagetest.New(t), newDirectory("acme", "initech")
	s.AddTenant("acme", "uid-of-acme")
	s.AddTenant("initech", "uid-of-initech")
	later := newClock()
	later.add(time.Second)
	first, second := newWriterFixture(s, "localhost", newClock(), d), newWriterFixture(s, "localhost", later, d)
	for range 3 {
		first.use(t, "acme", 3)
		first.write(t)
		second.use(t, "acme", 4)
		second.write(t)
	}
	if got := hoursOf(s.Usage("acme"), "localhost"); got != "0:15/15" {
		t.Errorf("%s; want 3 requests of the first process, and 12 of the second", got)
	}
	// Other tenants are not affected.
	first.use(t, "initech", 1)
	first.write(t)
	if got := hoursOf(s.Usage("initech"), "localhost"); got != "0:1/1" {
		t.Errorf("initech: %s; want 0:1/1", got)
	}
	// The next process becomes the owner of the entry.
	later.add(time.Second)
	third := newWriterFixture(s, "localhost", later, d)
	third.use(t, "acme", 1)
	third.write(t)
	if got := hoursOf(s.Usage("acme"), "localhost"); got != "0:16/16" {
		t.Errorf("%s; want 0:16/16", got)
	}
}

// TestWriterFailingTenants checks that TenantUsages that cannot be written do not delay the
// TenantUsages of other tenants.
func TestWriterFailingTenants(t *testing.T) {
	s, names := usagetest.New(t), []string{"acme"}
	for i := range 10 {
		names = append(names, fmt.Sprintf("deleted-%d", i)) // the server's cache is stale
	}
	s.AddTenant("acme", "uid-of-acme")
	w := newWriterFixture(s, "cp-0", newClock(), newDirectory(names...))
	for _, name := range names[1:] {
		w.use(t, name, 100)
	}
	w.use(t, "acme", 1)
	w.write(t)
	if got := hoursOf(s.Usage("acme"), "cp-0"); got != "0:1/1" {
		t.Errorf("%s; want 0:1/1", got)
	}
}

// TestWriterManyServers checks that a TenantUsage that already has the maximum number of servers
// does not delay other TenantUsages. The server writes its entry as soon as the TenantUsage has
// room.
func TestWriterManyServers(t *testing.T) {
	s, d := usagetest.New(t), newDirectory("acme", "initech")
	s.AddTenant("acme", "uid-of-acme")
	s.AddTenant("initech", "uid-of-initech")
	for i := range 100 {
		w := newWriterFixture(s, fmt.Sprintf("pod-%d", i), newClock(), d)
		w.use(t, "acme", 1)
		w.write(t)
	}
	w := newWriterFixture(s, "pod-100", newClock(), d)
	w.use(t, "acme", 5)
	w.use(t, "initech", 1)
	w.write(t)
	if got := hoursOf(s.Usage("initech"), "pod-100"); got != "0:1/1" {
		t.Errorf("initech: %s; want 0:1/1", got)
	}
	if got := hoursOf(s.Usage("acme"), "pod-100"); got != "" {
		t.Fatalf("acme: %s; want no entry", got)
	}
	if err := s.Tracker().Delete(usagetest.Usages(), "", "acme"); err != nil {
		t.Fatal(err)
	}
	w.write(t)
	if got := hoursOf(s.Usage("acme"), "pod-100"); got != "0:5/5" {
		t.Errorf("acme: %s; want 0:5/5", got)
	}
}

// TestTenantUsageSize checks the size of a TenantUsage of three servers with requests in each hour,
// as JSON without managed fields.
func TestTenantUsageSize(t *testing.T) {
	u := v1alpha1.TenantUsage{Tenant: "tenant-0001", UID: "6a0c2b1e-64a4-4d4c-9c54-0d0d9c6f3f55"}
	for i := range 3 {
		started := metav1.NewMicroTime(begin)
		server := v1alpha1.ServerUsage{Name: fmt.Sprintf("cp-%d", i), Started: &started}
		for hour := range usage.MaxHours {
			server.Hours = append(server.Hours, v1alpha1.HourUsage{
				Hour:             metav1.NewTime(at(hour)),
				Requests:         12345,
				Denied:           12,
				Limited:          3,
				Watches:          42,
				SeatMilliseconds: 123456,
			})
		}
		u.Servers = append(u.Servers, server)
	}
	data, err := json.Marshal(&u)
	if err != nil || len(data) > 20_000 {
		t.Errorf("%d bytes, %v; want at most 20,000", len(data), err)
	}
	t.Logf("%d bytes", len(data))
}
