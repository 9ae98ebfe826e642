// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
)

const counted = corev1.ResourceName("count/configmaps")

func hard(n int64) corev1.ResourceList {
	return corev1.ResourceList{counted: *resource.NewQuantity(n, resource.DecimalSI)}
}

// server contains a quota and the stored objects. Updates of the quota are optimistic, as in etcd.
// Replicas read the quota from caches that may be outdated.
type server struct {
	mu      sync.Mutex
	state   *quota.State
	version int
	objects map[types.UID]bool
}

// replica is one of several API servers.
type replica struct {
	*server
	mu    sync.Mutex
	cache *quota.State
	rand  *rand.Rand
}

func (r *replica) States(context.Context, tenant.ID) ([]*quota.State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cache == nil || r.rand.IntN(3) == 0 {
		r.server.mu.Lock()
		r.cache = r.state
		r.server.mu.Unlock()
	}
	return []*quota.State{r.cache}, nil
}

func (r *replica) HasQuota(context.Context, tenant.ID) (bool, error) { return true, nil }

func (r *replica) Charge(_ context.Context, old, obj *quota.State) error {
	err := r.put(old, obj)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cache = nil
	return err
}

func (s *server) put(old, obj *quota.State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old.Version != s.state.Version {
		return quota.ErrConflict
	}
	s.version++
	next := *obj
	next.Version = fmt.Sprint(s.version)
	s.state = &next
	return nil
}

// recount updates the usage like a controller whose cache is outdated.
func (s *server) recount(known map[types.UID]bool, gone func(types.UID) bool, now time.Time) {
	s.mu.Lock()
	was := s.state
	s.mu.Unlock()
	var all []quota.CountedObject
	for uid := range known {
		all = append(all, quota.CountedObject{UID: uid, Namespace: "a--web", Usage: hard(1)})
	}
	is, _ := was.Recount(all, gone, []corev1.ResourceName{counted}, now)
	_ = s.put(was, is) // a conflict with another update is possible
}

// TestLimitsAreNeverExceeded checks that there are never more objects than the limit. Several
// servers create objects, some charged writes fail, objects are deleted, and the controller's cache
// is outdated. At the end, the usage must equal the number of objects.
func TestLimitsAreNeverExceeded(t *testing.T) {
	for seed := range uint64(40) {
		neverExceeded(t, rand.New(rand.NewPCG(seed, 1)))
	}
}

func neverExceeded(t *testing.T, random *rand.Rand) {
	const limit = 10
	now := time.Unix(1000, 0)
	clock := func() time.Time { return now }
	s := &server{
		state: &quota.State{
			Name:    "q",
			Version: "0",
			Hard:    hard(limit),
			Used:    hard(0),
		},
		objects: map[types.UID]bool{},
	}
	id, _ := tenant.Parse("a")
	owner := func(context.Context, string) (tenant.ID, error) { return id, nil }
	var plugins []admission.ValidationInterface
	for i := range uint64(2) {
		store := &replica{server: s, rand: rand.New(rand.NewPCG(i, 2))}
		plugins = append(plugins, quota.New(quota.Options{
			Owner:       owner,
			Store:       store,
			Reservation: time.Minute,
			Now:         clock,
		}))
	}
	seen, gone := map[types.UID]bool{}, map[types.UID]bool{}
	isGone := func(uid types.UID) bool { return gone[uid] }
	var pending []types.UID // admitted, but not stored yet
	for step := range 300 {
		switch random.IntN(6) {
		case 0, 1:
			uid := types.UID(fmt.Sprint(step))
			if plugins[random.IntN(2)].Validate(t.Context(), creating(uid), nil) == nil {
				pending = append(pending, uid)
			}
		case 2: // an admitted write is stored or lost
			if len(pending) > 0 {
				if random.IntN(4) > 0 {
					s.objects[pending[0]] = true
				}
				pending = pending[1:]
			}
		case 3: // deleted
			for uid := range s.objects {
				delete(s.objects, uid)
				if seen[uid] {
					delete(seen, uid)
					gone[uid] = true
				}
				break
			}
		case 4: // the counting controller sees some objects
			for uid := range s.objects {
				if random.IntN(2) == 0 {
					seen[uid] = true
				}
			}
			s.recount(seen, isGone, now)
		case 5:
			s.recount(seen, isGone, now)
		}
		if len(s.objects)+len(pending) > limit {
			t.Fatalf("%d objects and %d admitted writes, limit %d", len(s.objects), len(pending), limit)
		}
	}
	now = now.Add(2 * time.Minute) // all reservations have expired
	s.recount(s.objects, isGone, now)
	used := s.state.Used[counted]
	if used.Value() != int64(len(s.objects)) || len(s.state.Reserved) > 0 {
		t.Errorf("used %s with %d objects, %d reserved", used.String(), len(s.objects), len(s.state.Reserved))
	}
}

func creating(uid types.UID) admission.Attributes {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: string(uid), Namespace: "a--web", UID: uid}}
	return admission.NewAttributesRecord(object, nil, corev1.SchemeGroupVersion.WithKind("ConfigMap"), "a--web",
		string(uid),
		corev1.SchemeGroupVersion.WithResource("configmaps"), "", admission.Create, nil, false, nil)
}

// TestConcurrentWrites checks that concurrent writes through two servers succeed exactly up to the
// limit.
func TestConcurrentWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the fake clock does not depend on the load of the machine
		const limit, tries = 50, 200
		s := &server{
			state: &quota.State{
				Name:    "q",
				Version: "0",
				Hard:    hard(limit),
				Used:    hard(0),
			},
			objects: map[types.UID]bool{},
		}
		id, _ := tenant.Parse("a")
		owner := func(context.Context, string) (tenant.ID, error) { return id, nil }
		var plugins []admission.ValidationInterface
		for i := range uint64(2) {
			plugins = append(plugins, quota.New(quota.Options{
				Owner:       owner,
				Reservation: time.Minute,
				Store:       &replica{server: s, rand: rand.New(rand.NewPCG(i, 2))},
			}))
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		ok := 0
		for i := range tries {
			all.Go(func() {
				if plugins[i%2].Validate(t.Context(), creating(types.UID(fmt.Sprint(i))), nil) == nil {
					mu.Lock()
					defer mu.Unlock()
					ok++
				}
			})
		}
		all.Wait()
		if ok != limit {
			t.Errorf("%d succeeded, want %d", ok, limit)
		}
	})
}

// panicking is a store whose Charge method panics.
type panicking struct{ *replica }

func (panicking) Charge(context.Context, *quota.State, *quota.State) error { panic("a defect") }

// TestPanicDeniesTheWrites checks that a panic during a charge denies the write and does not stop
// the server.
func TestPanicDeniesTheWrites(t *testing.T) {
	id, _ := tenant.Parse("a")
	s := &server{state: &quota.State{
		Name:    "q",
		Version: "0",
		Hard:    hard(9),
		Used:    hard(0),
	}}
	p := quota.New(quota.Options{
		Owner:       func(context.Context, string) (tenant.ID, error) { return id, nil },
		Reservation: time.Minute,
		Store:       panicking{&replica{server: s, rand: rand.New(rand.NewPCG(1, 2))}},
	})
	for range 2 { // the second write must not wait forever
		if err := p.Validate(t.Context(), creating("x"), nil); err == nil {
			t.Error("a write was admitted")
		}
	}
}

// TestOlderVersionsDoNotReleaseReservations checks that an older version of an object does not
// release the reservation of an update. The usage of a limit name that was not counted does not
// change.
func TestOlderVersionsDoNotReleaseReservations(t *testing.T) {
	now := time.Unix(1000, 0)
	other := corev1.ResourceName("count/secrets")
	s := &quota.State{
		Name: "q",
		Hard: corev1.ResourceList{counted: resource.MustParse("9"), other: resource.MustParse("9")},
		Used: corev1.ResourceList{counted: resource.MustParse("5"), other: resource.MustParse("4")},
		Reserved: []quota.Reservation{{
			UID:     "x",
			Expires: now.Add(time.Minute),
			Usage:   hard(5),
			After:   "20",
		}},
	}
	for version, left := range map[string]int{
		"10": 1,
		"20": 1,
		"21": 0,
		"":   1,
	} {
		t.Run(version, func(t *testing.T) {
			got, _ := s.Recount([]quota.CountedObject{{
				UID:       "x",
				Namespace: "n",
				Version:   version,
				Usage:     hard(5),
			}}, func(types.UID) bool { return false }, []corev1.ResourceName{counted}, now)
			kept := got.Used[other]
			if len(got.Reserved) != left || kept.Value() != 4 {
				t.Errorf("version %q: %d reserved, want %d; %s of the other name", version, len(got.Reserved), left, kept.String())
			}
		})
	}
}

// TestRetriesAreChargedOnce checks that retries with the same name are charged once, because at
// most one of them is stored. Failing writes with other names cannot make the quota object larger
// than allowed.
func TestRetriesAreChargedOnce(t *testing.T) {
	s := &server{
		state: &quota.State{
			Name:    "q",
			Version: "0",
			Hard:    hard(10000),
			Used:    hard(0),
		},
		objects: map[types.UID]bool{},
	}
	id, _ := tenant.Parse("a")
	p := quota.New(quota.Options{
		Owner:       func(context.Context, string) (tenant.ID, error) { return id, nil },
		Reservation: time.Minute,
		Store:       &replica{server: s, rand: rand.New(rand.NewPCG(1, 2))},
	})
	for i := range 20 {
		a := creating("same")
		a.GetObject().(*corev1.ConfigMap).UID = types.UID(fmt.Sprint(i))
		if err := p.Validate(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
	}
	if used := s.state.Used[counted]; used.Value() != 1 || len(s.state.Reserved) != 1 {
		t.Errorf("used %s, %d reserved", used.String(), len(s.state.Reserved))
	}
	refused := 0
	for i := range 600 {
		if p.Validate(t.Context(), creating(types.UID(fmt.Sprintf("other-%d", i))), nil) != nil {
			refused++
		}
	}
	if len(s.state.Reserved) != 500 || refused != 101 {
		t.Errorf("%d reserved, %d refused", len(s.state.Reserved), refused)
	}
}

// TestUpdatesAndReservations checks that the reserved usage of an object applies until the object
// is counted with this usage, the object is deleted, or the reservation expires.
func TestUpdatesAndReservations(t *testing.T) {
	now := time.Unix(1000, 0)
	reserved := []quota.Reservation{
		{UID: "grew", Expires: now.Add(time.Minute), Usage: hard(5)},
		{UID: "new", Expires: now.Add(time.Minute), Usage: hard(2)},
		{UID: "lost", Expires: now, Usage: hard(7)},
		{UID: "gone", Expires: now.Add(time.Minute), Usage: hard(7)},
		{UID: "seen", Expires: now.Add(time.Minute), Usage: hard(1)},
	}
	objects := []quota.CountedObject{
		{UID: "grew", Namespace: "x", Usage: hard(3)}, {UID: "seen", Namespace: "y", Usage: hard(1)},
	}
	s := &quota.State{
		Name:     "q",
		Hard:     hard(100),
		Used:     hard(50),
		Reserved: reserved,
	}
	got, namespaces := s.Recount(objects, func(uid types.UID) bool { return uid == "gone" },
		[]corev1.ResourceName{counted}, now)
	if used := got.Used[counted]; used.Value() != 5+2+1 {
		t.Errorf("used %s", used.String())
	}
	if len(got.Reserved) != 2 || got.Reserved[0].UID != "grew" || got.Reserved[1].UID != "new" {
		t.Errorf("reserved %v", got.Reserved)
	}
	x := namespaces["x"][counted]
	if x.Value() != 3 || len(namespaces) != 2 {
		t.Errorf("namespaces %v", namespaces)
	}
}
