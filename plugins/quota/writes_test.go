// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
)

var errUnavailable = errors.New("away")

// ledger is a store of quotas without a cache.
type ledger struct {
	states      []*quota.State
	statesErr   error
	hasQuota    bool
	hasQuotaErr error
	charge      func(try int) error // if nil, Charge succeeds
	charged     int
	unreadable  bool // if true, States fails
}

func (l *ledger) States(context.Context, tenant.ID) ([]*quota.State, error) {
	if l.unreadable {
		return nil, errors.New("States was called")
	}
	return l.states, l.statesErr
}

func (l *ledger) HasQuota(context.Context, tenant.ID) (bool, error) { return l.hasQuota, l.hasQuotaErr }

func (l *ledger) Charge(_ context.Context, old, obj *quota.State) error {
	l.charged++
	if l.charge != nil {
		if err := l.charge(l.charged); err != nil {
			return err
		}
	}
	for i := range l.states {
		if l.states[i] == old {
			l.states[i] = obj
		}
	}
	return nil
}

func limited(name string, hard, used amounts) *quota.State {
	return &quota.State{Name: name, Hard: listOf(hard), Used: listOf(used)}
}

// newPlugin returns the plugin. The namespace kube-system belongs to the system tenant, and orphan
// is unowned. The owner of away is unknown. All other namespaces belong to tenant a.
func newPlugin(l *ledger, change func(*quota.Options)) admission.ValidationInterface {
	o := quota.Options{
		Subject:     func(context.Context, user.Info) (tenant.ID, error) { return tenant.Parse("a") },
		Store:       l,
		Reservation: time.Minute,
		Owner: func(_ context.Context, namespace string) (tenant.ID, error) {
			switch namespace {
			case "kube-system":
				return tenant.System(), nil
			case "orphan":
				return tenant.ID{}, nil
			case "away":
				id, _ := tenant.Parse("a")
				return id, errUnavailable
			}
			return tenant.Parse("a")
		},
	}
	if change != nil {
		change(&o)
	}
	return quota.New(o)
}

// write is a write. By default, it creates a Pod in the namespace a--web.
type write struct {
	resource         string // "resource" or "resource.group"
	kind             schema.GroupVersionKind
	namespace        string
	subresource      string
	obj, old         runtime.Object // if old is set, the write is an update
	dryRun, noObject bool           // if noObject is set, obj stays nil
}

func (w write) attributes() admission.Attributes {
	if w.resource == "" {
		w.resource = "pods"
	}
	if w.kind.Kind == "" {
		w.kind = corev1.SchemeGroupVersion.WithKind("Pod")
	}
	switch w.namespace {
	case "":
		w.namespace = "a--web"
	case "-":
		w.namespace = ""
	}
	if w.obj == nil && !w.noObject {
		w.obj = podOf(container(amounts{"cpu": "1"}, nil))
	}
	op := admission.Create
	if w.old != nil {
		op = admission.Update
	}
	return admission.NewAttributesRecord(w.obj, w.old, w.kind, w.namespace, "p",
		schema.ParseGroupResource(w.resource).WithVersion("v1"), w.subresource, op, nil, w.dryRun, nil)
}

// tenantNamespace returns a Namespace of a tenant, or of no tenant if the argument is empty.
func tenantNamespace(of string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", ResourceVersion: "1"}}
	if of != "" {
		ns.Labels = map[string]string{tenant.Label: of}
	}
	return ns
}

// TestChargedWrites checks that creations in a tenant's namespace, and updates that can increase
// the usage, are charged. A write that stores no object is not charged.
func TestChargedWrites(t *testing.T) {
	big, bigger := podOf(container(amounts{"cpu": "1"}, nil)), podOf(container(amounts{"cpu": "3"}, nil))
	service := func(kind corev1.ServiceType) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Port: 1}}}}
	}
	claim := func(storage string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			Spec: corev1.PersistentVolumeClaimSpec{
				Resources: corev1.VolumeResourceRequirements{Requests: listOf(amounts{"storage": storage})},
			},
		}
	}
	allocated := claim("1")
	allocated.Status.AllocatedResources = listOf(amounts{"storage": "5"})
	port, ports := service(corev1.ServiceTypeClusterIP), service(corev1.ServiceTypeNodePort)
	for name, c := range map[string]struct {
		write
		limit corev1.ResourceName
		want  string // the usage after the write, "0" for none
	}{
		"a pod":                {write{}, "requests.cpu", "1"},
		"a system namespace":   {write{namespace: "kube-system"}, "requests.cpu", "0"},
		"an unowned namespace": {write{namespace: "orphan"}, "requests.cpu", "0"},
		"no namespace":         {write{resource: "nodes", namespace: "-"}, "count/nodes", "0"},
		"a dry run":            {write{dryRun: true}, "requests.cpu", "0"},
		"another limit":        {write{}, "count/secrets", "0"},
		"a binding": {
			write{resource: "pods", subresource: "binding", kind: corev1.SchemeGroupVersion.WithKind("Binding")}, "pods", "0",
		},
		"an eviction": {
			write{subresource: "eviction", kind: schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}},
			"pods",
			"0",
		},
		"a pod that grows":      {write{obj: bigger, old: big, subresource: "resize"}, "requests.cpu", "2"},
		"a pod that shrinks":    {write{obj: big, old: bigger, subresource: "resize"}, "requests.cpu", "0"},
		"a pod that is changed": {write{obj: bigger, old: big}, "requests.cpu", "0"},
		"a pod's status":        {write{obj: bigger, old: big, subresource: "status"}, "requests.cpu", "0"},
		"a service's type":      {write{resource: "services", obj: ports, old: port}, "services.nodeports", "1"},
		"a service's old type":  {write{resource: "services", obj: port, old: ports}, "services.nodeports", "0"},
		"a service's status": {
			write{
				resource:    "services",
				obj:         ports,
				old:         port,
				subresource: "status",
			},
			"services.nodeports",
			"0",
		},
		"a claim that grows": {
			write{resource: "persistentvolumeclaims", obj: claim("4"), old: claim("1")},
			"requests.storage",
			"3",
		},
		"a claim of a larger volume": {
			write{
				resource:    "persistentvolumeclaims",
				obj:         allocated,
				old:         claim("1"),
				subresource: "status",
			},
			"requests.storage",
			"4",
		},
		"a claim's other subresource": {
			write{
				resource:    "persistentvolumeclaims",
				obj:         claim("4"),
				old:         claim("1"),
				subresource: "other",
			},
			"requests.storage",
			"0",
		},
		"a deployment that changes": {
			write{resource: "deployments.apps", obj: big, old: bigger},
			"count/deployments.apps",
			"0",
		},
		"a namespace": {
			write{resource: "namespaces", namespace: "-", obj: tenantNamespace("a")},
			"count/namespaces",
			"1",
		},
		"a namespace without a tenant": {
			write{resource: "namespaces", namespace: "-", obj: tenantNamespace("")},
			"count/namespaces",
			"0",
		},
		"a namespace of the system tenant": {
			write{resource: "namespaces", namespace: "-", obj: tenantNamespace("system")},
			"count/namespaces",
			"0",
		},
		"a namespace assigned to a tenant": {
			write{resource: "namespaces", obj: tenantNamespace("a"), old: tenantNamespace("")},
			"count/namespaces",
			"1",
		},
		"a namespace with a new owner": {
			write{resource: "namespaces", obj: tenantNamespace("a"), old: tenantNamespace("b")},
			"count/namespaces",
			"1",
		},
		"a namespace released by a tenant": {
			write{resource: "namespaces", obj: tenantNamespace(""), old: tenantNamespace("a")},
			"count/namespaces",
			"0",
		},
		"a namespace that is changed": {
			write{resource: "namespaces", obj: tenantNamespace("a"), old: tenantNamespace("a")},
			"count/namespaces",
			"0",
		},
		"a namespace's status": {
			write{
				resource:    "namespaces",
				obj:         tenantNamespace("a"),
				old:         tenantNamespace(""),
				subresource: "status",
			},
			"count/namespaces",
			"1",
		},
		"a finalized namespace": {
			write{
				resource:    "namespaces",
				obj:         tenantNamespace("a"),
				old:         tenantNamespace(""),
				subresource: "finalize",
			},
			"count/namespaces",
			"1",
		},
		"a dry run for a namespace": {
			write{
				resource:  "namespaces",
				namespace: "-",
				obj:       tenantNamespace("a"),
				dryRun:    true,
			},
			"count/namespaces",
			"0",
		},
		"a pod's log": {write{subresource: "log"}, "pods", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{states: []*quota.State{limited("q", amounts{c.limit: "10"}, amounts{c.limit: "0"})}}
			if err := newPlugin(l, nil).Validate(t.Context(), c.attributes(), nil); err != nil {
				t.Errorf("%v", err)
			}
			if got := textOf(l.states[0].Used)[c.limit]; got != c.want || (l.charged > 0) != (c.want != "0") {
				t.Errorf("%s of %s after %d charges, want %s", got, c.limit, l.charged, c.want)
			}
		})
	}
}

// TestManagedObjectsAreNotCharged checks that objects that the server manages are not charged. On
// objects of other kinds, the label has no effect.
func TestManagedObjectsAreNotCharged(t *testing.T) {
	managed := func(obj metav1.Object) runtime.Object {
		obj.SetLabels(map[string]string{tenant.ManagedLabel: "template"})
		return obj.(runtime.Object)
	}
	for name, c := range map[string]struct {
		write
		limit corev1.ResourceName
		want  string
	}{
		"managed":              {write{resource: "configmaps", obj: managed(&corev1.ConfigMap{})}, "count/configmaps", "0"},
		"not managed":          {write{resource: "configmaps", obj: &corev1.ConfigMap{}}, "count/configmaps", "1"},
		"a pod with its label": {write{obj: managed(podOf(container(amounts{"cpu": "1"}, nil)))}, "requests.cpu", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{states: []*quota.State{limited("q", amounts{c.limit: "10"}, amounts{c.limit: "0"})}}
			p := newPlugin(l, func(o *quota.Options) {
				o.Managed = func(r schema.GroupResource) bool { return r.Resource == "configmaps" }
			})
			if err := p.Validate(t.Context(), c.attributes(), nil); err != nil {
				t.Errorf("%v", err)
			}
			if got := textOf(l.states[0].Used)[c.limit]; got != c.want {
				t.Errorf("%s of %s, want %s", got, c.limit, c.want)
			}
		})
	}
}

// TestDeniedWrites checks writes that exceed the quota, and writes whose usage is unknown or
// negative.
func TestDeniedWrites(t *testing.T) {
	withInit := podOf(container(amounts{"cpu": "1"}, nil))
	withInit.Spec.InitContainers = []corev1.Container{container(nil, nil)}
	whole := podOf(container(nil, nil))
	whole.Spec.Resources = &corev1.ResourceRequirements{Requests: listOf(amounts{"cpu": "1"})}
	zero := amounts{
		"cpu":                      "0",
		"requests.cpu":             "0",
		"limits.cpu":               "0",
		"requests.memory":          "0",
		"pods":                     "0",
		"requests.example.com/gpu": "0",
	}
	limitless := podOf(container(amounts{"cpu": "1", "memory": "1"}, nil))
	negative := podOf(container(amounts{"cpu": "1", "memory": "-1"}, nil))
	for name, c := range map[string]struct {
		write
		hard amounts
		want string // part of the error, or empty if there is none
	}{
		"fits exactly": {write{}, amounts{"requests.cpu": "1"}, ""},
		"too much": {
			write{},
			amounts{"requests.cpu": "900m"},
			"exceeded quota: q, requested: requests.cpu=1, used: requests.cpu=0, limited: requests.cpu=900m",
		},
		"too much, dry run":      {write{dryRun: true}, amounts{"requests.cpu": "900m"}, "exceeded"},
		"one of two is too much": {write{}, amounts{"requests.cpu": "900m", "pods": "5"}, "requested: requests.cpu=1, used"},
		"memory is not specified": {
			write{},
			amounts{"requests.memory": "9", "limits.cpu": "9"},
			"must specify limits.cpu for: c; requests.memory for: c",
		},
		"no init request":       {write{obj: withInit}, amounts{"requests.cpu": "9"}, "must specify requests.cpu for: c"},
		"requests of the Pod":   {write{obj: whole}, amounts{"requests.cpu": "9"}, ""},
		"no limit is required":  {write{obj: limitless}, amounts{"requests.cpu": "9", "requests.memory": "9"}, ""},
		"no device is required": {write{}, amounts{"requests.example.com/gpu": "9"}, ""},
		"negative": {
			write{obj: negative},
			amounts{"requests.cpu": "9"},
			"quota usage is negative for resource(s): memory,requests.memory",
		},
		"failed owner lookup": {write{namespace: "away"}, amounts{}, "away"},
		"no object":           {write{noObject: true}, amounts{"pods": "1"}, "no object"},
		"invalid old object":  {write{old: &metav1.Status{}, subresource: "resize"}, amounts{"pods": "1"}, "object"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{states: []*quota.State{limited("q", c.hard, zero)}}
			err := newPlugin(l, nil).Validate(t.Context(), c.attributes(), nil)
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err != nil && l.charged > 0 {
				t.Error("denied, but charged")
			}
		})
	}
}

// TestReservations checks the UID, the key and the expiry of a reservation.
func TestReservations(t *testing.T) {
	now := time.Unix(1000, 0)
	created, nameless, grown := podOf(), podOf(), podOf(container(amounts{"cpu": "3"}, nil))
	created.UID, nameless.Name = "u", ""
	grown.UID, grown.ResourceVersion = "u", "8"
	old := podOf(container(amounts{"cpu": "1"}, nil))
	old.UID, old.ResourceVersion = "u", "7"
	for name, c := range map[string]struct {
		write
		limit corev1.ResourceName
		want  quota.Reservation
	}{
		"a create": {write{obj: created}, "pods", quota.Reservation{UID: "u", Key: "pods/a--web/p"}},
		"no name":  {write{obj: nameless}, "pods", quota.Reservation{UID: "?"}},
		"an update": {
			write{obj: grown, old: old, subresource: "resize"}, "requests.cpu", quota.Reservation{UID: "u", After: "7"},
		},
		"no UID": {write{obj: podOf()}, "pods", quota.Reservation{UID: "?", Key: "pods/a--web/p"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{states: []*quota.State{limited("q", amounts{c.limit: "10"}, amounts{c.limit: "0"})}}
			p := newPlugin(l, func(o *quota.Options) { o.Now = func() time.Time { return now } })
			if err := p.Validate(t.Context(), c.attributes(), nil); err != nil || len(l.states[0].Reserved) != 1 {
				t.Errorf("%v, %+v", err, l.states[0])
				return
			}
			got := l.states[0].Reserved[0]
			if c.want.UID == "?" && got.UID != "" {
				got.UID = "?"
			}
			if got.UID != c.want.UID || got.Key != c.want.Key || got.After != c.want.After ||
				!got.Expires.Equal(now.Add(time.Minute)) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestSeveralQuotas checks that a write is not charged unless it fits all quotas of the tenant.
func TestSeveralQuotas(t *testing.T) {
	roomy, full, other := limited("roomy", amounts{"pods": "9"}, amounts{"pods": "0"}), limited("full",
		amounts{"pods": "1"}, amounts{"pods": "1"}), limited("other", amounts{"secrets": "1"}, amounts{"secrets": "1"})
	l := &ledger{states: []*quota.State{other, roomy, full}}
	if err := newPlugin(l, nil).Validate(t.Context(), write{}.attributes(), nil); err == nil ||
		!strings.Contains(err.Error(), "full") || l.charged > 0 {
		t.Errorf("%v, %d charges", err, l.charged)
	}
	l.states = []*quota.State{other, roomy}
	if err := newPlugin(l, nil).Validate(t.Context(), write{}.attributes(), nil); err != nil || l.charged != 1 ||
		l.states[0] != other {
		t.Errorf("%v, %d charges", err, l.charged)
	}
}

// TestStoreErrors checks that a conflict is retried a limited number of times, and that any other
// error denies the write immediately. The response does not contain the error of the store.
func TestStoreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		of     error
		charge func(int) error
		want   string
		tries  int
	}{
		"States fails": {errUnavailable, nil, "could not be read", 0},
		"Charge fails": {nil, func(int) error { return errUnavailable }, "could not be charged", 1},
		"a conflict": {
			nil, func(try int) error { return map[bool]error{true: quota.ErrConflict}[try < 3] }, "", 3,
		},
		"only conflicts": {
			nil, func(int) error { return fmt.Errorf("again: %w", quota.ErrConflict) }, "could not be charged", 20,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &ledger{
					statesErr: c.of,
					charge:    c.charge,
					states:    []*quota.State{limited("q", amounts{"pods": "9"}, amounts{"pods": "0"})},
				}
				err := newPlugin(l, nil).Validate(t.Context(), write{}.attributes(), nil)
				if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) || l.charged != c.tries {
					t.Errorf("%v after %d tries", err, l.charged)
				}
				if err != nil &&
					(strings.Contains(err.Error(), "away") || !apierrors.IsTooManyRequests(err) ||
						err.(apierrors.APIStatus).Status().Details.RetryAfterSeconds != 0) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// TestWritesWaitForTheFirstCount checks that a write waits for the first count of a new quota for a
// short time, but not longer than its request.
func TestWritesWaitForTheFirstCount(t *testing.T) {
	for name, c := range map[string]struct {
		counted, cancelled time.Duration
		ok                 bool
		after              time.Duration // at most
	}{
		"counted soon":         {counted: time.Second, ok: true, after: 1100 * time.Millisecond},
		"never counted":        {counted: time.Hour, after: 2200 * time.Millisecond},
		"request is cancelled": {counted: time.Hour, cancelled: 550 * time.Millisecond, after: 550 * time.Millisecond},
		"counted too late":     {counted: 3 * time.Second, after: 2200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.cancelled > 0 {
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, c.cancelled)
					defer stop()
				}
				start := time.Now()
				l := &counting{
					ledger: ledger{states: []*quota.State{limited("q", amounts{"pods": "9"}, amounts{"pods": "0"})}},
					at:     start.Add(c.counted),
				}
				p := newPlugin(nil, func(o *quota.Options) { o.Store = l })
				err := p.Validate(ctx, write{}.attributes(), nil)
				if took := time.Since(start); (err == nil) != c.ok || !c.ok && !apierrors.IsTooManyRequests(err) ||
					took > c.after ||
					!c.ok && took < c.after-200*time.Millisecond {
					t.Errorf("%v after %v", err, took)
				}
				synctest.Wait()
			})
		})
	}
}

// counting is a store whose quota is counted at the time at.
type counting struct {
	ledger
	at time.Time
}

func (c *counting) States(ctx context.Context, id tenant.ID) ([]*quota.State, error) {
	if time.Now().Before(c.at) {
		return []*quota.State{limited("q", amounts{"pods": "9"}, nil)}, nil
	}
	return c.ledger.States(ctx, id)
}

// TestQuotaObjects checks that each limit of a quota must be a quantity and apply to some object,
// and that a tenant can have at most one quota.
func TestQuotaObjects(t *testing.T) {
	of := func(spec any) runtime.Object {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "q"}, "spec": spec}}
	}
	hard := func(names ...string) map[string]any {
		all := map[string]any{}
		for _, name := range names {
			all[name] = "1"
		}
		return map[string]any{"tenant": "a", "hard": all}
	}
	limit := func(pods any) map[string]any {
		return map[string]any{"tenant": "a", "hard": map[string]any{"pods": pods}}
	}
	for name, c := range map[string]struct {
		write
		taken    bool
		takenErr error
		want     string
	}{
		"the first":         {write{obj: of(hard("pods", "count/secrets"))}, false, nil, ""},
		"a second":          {write{obj: of(hard("pods"))}, true, nil, "already has a quota"},
		"an invalid second": {write{obj: of(map[string]any{"tenant": "A B"})}, true, nil, ""},
		"an update":         {write{obj: of(hard("pods")), old: of(hard())}, true, nil, ""},
		"failed lookup":     {write{obj: of(hard("pods"))}, false, errUnavailable, "could not be read"},
		"an unknown name": {
			write{obj: of(hard("pods", "wood"))},
			false, nil,
			"spec.hard[wood]: no object uses this resource",
		},
		"unknown names, no quantity": {
			write{obj: of(map[string]any{"hard": map[string]any{"wood": "1", "iron": "1", "pods": "x"}})},
			false, nil,
			"[spec.hard[iron]: no object uses this resource, spec.hard[pods]: ",
		},
		"a number":    {write{obj: of(limit(int64(10)))}, false, nil, ""},
		"no quantity": {write{obj: of(limit("1e1.5"))}, false, nil, "spec.hard[pods]"},
		"changed to an unknown name": {
			write{obj: of(hard("wood")), old: of(hard())},
			false,
			nil,
			"no object uses this resource",
		},
		"cluster-scoped":         {write{obj: of(hard("count/nodes"))}, false, nil, "spec.hard[count/nodes]"},
		"limits of another type": {write{obj: of(map[string]any{"hard": "x"})}, false, nil, "hard"},
		"its status":             {write{obj: of(hard("wood")), old: of(hard()), subresource: "status"}, false, nil, ""},
		"no object":              {write{noObject: true}, false, nil, "no object"},
	} {
		t.Run(name, func(t *testing.T) {
			c.resource, c.namespace = "tenantquotas."+tenant.Domain, "-"
			p := newPlugin(&ledger{hasQuota: c.taken, hasQuotaErr: c.takenErr, unreadable: true}, func(o *quota.Options) {
				o.ClusterScoped = func(of schema.GroupResource) bool { return of == groupResource("nodes") }
			})
			err := p.Validate(t.Context(), c.attributes(), nil)
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) ||
				apierrors.IsTooManyRequests(err) != (c.takenErr != nil) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	nodes := write{resource: "tenantquotas." + tenant.Domain, namespace: "-", obj: of(hard("count/nodes"))}
	if err := newPlugin(&ledger{}, nil).Validate(t.Context(), nodes.attributes(), nil); err != nil {
		t.Errorf("without ClusterScoped: %v", err)
	}
}

// TestRepeatedUpdatesAreChargedOnce checks that repeated updates of an object have one reservation,
// with the largest usage.
func TestRepeatedUpdatesAreChargedOnce(t *testing.T) {
	version := func(n int, cpu string) *corev1.Pod {
		pod := podOf(container(amounts{"cpu": cpu}, nil))
		pod.UID, pod.ResourceVersion = types.UID("u"), fmt.Sprint(n)
		return pod
	}
	l := &ledger{states: []*quota.State{limited("q", amounts{"requests.cpu": "10"}, amounts{"requests.cpu": "1"})}}
	p := newPlugin(l, nil)
	for _, c := range []struct{ name, is, used, reserved string }{
		{"the first update", "3", "3", "3"},
		{"a larger update", "5", "5", "5"},
		{"a smaller update", "2", "5", "5"},
		{"the largest update again", "5", "5", "5"},
	} {
		if !t.Run(c.name, func(t *testing.T) {
			if err := p.Validate(t.Context(),
				write{obj: version(2, c.is), old: version(1, "1"), subresource: "resize"}.attributes(), nil); err != nil {
				t.Fatal(err)
			}
			s := l.states[0]
			if len(s.Reserved) != 1 || textOf(s.Used)["requests.cpu"] != c.used ||
				textOf(s.Reserved[0].Usage)["requests.cpu"] != c.reserved {
				t.Errorf("used %v, reserved %v", textOf(s.Used), s.Reserved)
			}
		}) {
			return
		}
	}
}
