// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package attribution_test

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubetenant/kubetenant/plugins/attribution"
	"github.com/kubetenant/kubetenant/plugins/workload"
	"github.com/kubetenant/kubetenant/tenant"
)

var errUnavailable = errors.New("away")

// fakeCluster is a cluster with some objects. The tenant of a caller comes from the caller's extra.
type fakeCluster struct {
	objects     map[string]runtime.Object
	unavailable bool
	options     attribution.WorkloadUser
}

func (w *fakeCluster) find(
	_ context.Context,
	kind schema.GroupVersionKind,
	namespace, name string,
) (runtime.Object, error) {
	if w.unavailable {
		return nil, errUnavailable
	}
	object, ok := w.objects[kind.Kind+"/"+namespace+"/"+name]
	if !ok {
		return nil, nil
	}
	return object, nil
}

// admit calls Admit and Validate.
func (w *fakeCluster) admit(t *testing.T, a admission.Attributes) error {
	t.Helper()
	o := w.options
	if o.SystemUsers == nil {
		o.SystemUsers = []*regexp.Regexp{regexp.MustCompile(`\Asystem:.*-controller\z`)}
	}
	o.TrustControllers = !o.TrustControllers // on by default in the configuration
	owner := func(context.Context, string) (tenant.ID, error) { return tenant.Parse("a") }
	subject := func(_ context.Context, u user.Info) (tenant.ID, error) { return tenant.Of(u) }
	p := attribution.New(attribution.Options{
		Subject:      subject,
		Owner:        owner,
		Kinds:        workload.New(nil),
		Metadata:     w.find,
		Objects:      w.find,
		Creator:      true,
		WorkloadUser: o,
	})
	if err := p.Admit(t.Context(), a, nil); err != nil {
		return err
	}
	return p.Validate(t.Context(), a, nil)
}

func caller(name, id string, groups ...string) user.Info {
	return &user.DefaultInfo{
		Name:   name,
		UID:    "uid",
		Groups: groups,
		Extra:  map[string][]string{tenant.ExtraKey: {id}},
	}
}

var (
	alice      = caller("alice", "a", "dev", "tenant:a")
	controller = caller("system:replicaset-controller", "system")
)

func create(obj runtime.Object, u user.Info) admission.Attributes {
	gvks := map[string]schema.GroupVersionKind{}
	kind := gvks[""]
	switch obj.(type) {
	case *corev1.Pod:
		kind = corev1.SchemeGroupVersion.WithKind("Pod")
	case *appsv1.ReplicaSet:
		kind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	case *appsv1.Deployment:
		kind = appsv1.SchemeGroupVersion.WithKind("Deployment")
	case *batchv1.Job:
		kind = batchv1.SchemeGroupVersion.WithKind("Job")
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return admission.NewAttributesRecord(obj, nil, kind, "a--web", "x", resource, "", admission.Create, nil, false, u)
}

func update(obj, old runtime.Object, u user.Info) admission.Attributes {
	c := create(obj, u)
	return admission.NewAttributesRecord(obj, old, c.GetKind(), "a--web", "x", c.GetResource(), "", admission.Update, nil,
		false, u)
}

func ownedBy(kind, name string) metav1.ObjectMeta {
	yes := true
	group := "apps/v1"
	if kind == "CronJob" || kind == "Job" {
		group = "batch/v1"
	}
	return metav1.ObjectMeta{
		Name:      "x",
		Namespace: "a--web",
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: group,
			Kind:       kind,
			Name:       name,
			UID:        "uid-of-owner",
			Controller: &yes,
		}},
	}
}

// replicaSet returns a ReplicaSet that a Deployment of alice created. userInfo is the user of its
// template.
func replicaSet(userInfo string) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Name:        "rs",
		Namespace:   "a--web",
		UID:         "uid-of-owner",
		Annotations: map[string]string{tenant.CreatorAnnotation: "the controller", tenant.OnBehalfOfAnnotation: "alice"},
	}}
	if userInfo != "" {
		rs.Spec.Template.Annotations = map[string]string{tenant.WorkloadUserAnnotation: userInfo}
	}
	return rs
}

const bobUser = `{"user":"bob","groups":["dev"]}`

// TestControllersInheritCreatorAndUser checks that an object that a controller creates names the
// creator of its owner in the annotation on-behalf-of, and has the user of its owner.
func TestControllersInheritCreatorAndUser(t *testing.T) {
	other := replicaSet(bobUser)
	other.UID = "another"
	elsewhere := replicaSet(bobUser)
	elsewhere.Namespace = "b--web"
	for name, c := range map[string]struct {
		owner        runtime.Object
		supplied     string
		by           user.Info
		suspicious   bool // controllers are not trusted
		user, behalf string
		denied       string
	}{
		"no value": {
			owner:  replicaSet(bobUser),
			by:     controller,
			user:   bobUser,
			behalf: "alice",
		},
		"the owner's value": {
			owner:    replicaSet(bobUser),
			supplied: bobUser,
			by:       controller,
			user:     bobUser,
			behalf:   "alice",
		},
		"another value, trusted controller": {
			owner:    replicaSet(bobUser),
			supplied: `{"user":"eve"}`,
			by:       controller,
			user:     `{"user":"eve"}`,
			behalf:   "alice",
		},
		"the owner's value, controller not trusted": {
			owner:      replicaSet(bobUser),
			supplied:   bobUser,
			by:         controller,
			suspicious: true,
			user:       bobUser,
			behalf:     "alice",
		},
		"another value, controller not trusted": {
			owner:      replicaSet(bobUser),
			supplied:   `{"user":"eve"}`,
			by:         controller,
			suspicious: true,
			denied:     "is not allowed to set user annotation",
		},
		"an owner without a value": {
			owner:  replicaSet(""),
			by:     controller,
			user:   `{"user":"system:replicaset-controller"}`,
			behalf: "alice",
		},
		"no owner": {by: controller, user: `{"user":"system:replicaset-controller"}`},
		"an owner with another UID": {
			owner: other,
			by:    controller,
			user:  `{"user":"system:replicaset-controller"}`,
		},
		"an owner in another namespace": {owner: elsewhere, by: controller, user: `{"user":"system:replicaset-controller"}`},
		"a tenant's caller that names an owner": {
			owner: replicaSet(bobUser),
			by:    alice,
			user:  `{"user":"alice","groups":["dev","tenant:a"]}`,
		},
		"a tenant's caller that names an owner and its user": {
			owner:    replicaSet(bobUser),
			supplied: bobUser,
			by:       alice,
			denied:   "user alice with groups [dev,tenant:a] is not allowed to set user annotation",
		},
		"a tenant's caller with the name of a controller": {
			owner: replicaSet(bobUser),
			by:    caller("system:replicaset-controller", "a"),
			user:  `{"user":"system:replicaset-controller"}`,
		},
		"a controller without a tenant": {
			owner: replicaSet(bobUser),
			by:    &user.DefaultInfo{Name: "system:replicaset-controller"},
			user:  `{"user":"system:replicaset-controller"}`,
		},
		"a system caller that is not a controller": {
			owner:  replicaSet(bobUser),
			by:     caller("root", "system"),
			user:   `{"user":"root"}`,
			behalf: "alice",
		},
		"a controller with an invalid value": {
			owner:    replicaSet(bobUser),
			supplied: "{}",
			by:       controller,
			denied:   "the user annotation must be",
		},
		"a controller with the owner's invalid value": {
			owner:    replicaSet("{}"),
			supplied: "{}",
			by:       controller,
			user:     "{}",
			behalf:   "alice",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &fakeCluster{
				objects: map[string]runtime.Object{},
				options: attribution.WorkloadUser{TrustControllers: c.suspicious},
			}
			if c.owner != nil {
				w.objects["ReplicaSet/a--web/rs"] = c.owner
			}
			pod := &corev1.Pod{ObjectMeta: ownedBy("ReplicaSet", "rs")}
			if c.supplied != "" {
				pod.Annotations = map[string]string{tenant.WorkloadUserAnnotation: c.supplied}
			}
			err := w.admit(t, create(pod, c.by))
			if c.denied != "" {
				if err == nil || !strings.Contains(err.Error(), c.denied) {
					t.Errorf("%v, want %s", err, c.denied)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := pod.Annotations[tenant.WorkloadUserAnnotation]; got != c.user {
				t.Errorf("user %s, want %s", got, c.user)
			}
			if got := pod.Annotations[tenant.OnBehalfOfAnnotation]; got != c.behalf {
				t.Errorf("on behalf of %q, want %q", got, c.behalf)
			}
		})
	}
}

// TestControllerTemplatesEqualTheOwnerTemplate checks that the server does not change a template
// that a controller copied from the owner. Otherwise, the controller would create the object again
// and again.
func TestControllerTemplatesEqualTheOwnerTemplate(t *testing.T) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "a--web", UID: "uid-of-owner"}}
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "a--web", UID: "uid-of-owner"}}
	cron.Spec.JobTemplate.Spec.Template.Annotations = map[string]string{tenant.WorkloadUserAnnotation: bobUser}
	w := &fakeCluster{
		objects: map[string]runtime.Object{"Deployment/a--web/d": deployment, "CronJob/a--web/c": cron},
		options: attribution.WorkloadUser{TrustControllers: true},
	}
	rs := &appsv1.ReplicaSet{ObjectMeta: ownedBy("Deployment", "d")}
	if err := w.admit(t, create(rs, controller)); err != nil || rs.Spec.Template.Annotations != nil {
		t.Errorf("%v, %v", rs.Spec.Template.Annotations, err)
	}
	job := &batchv1.Job{ObjectMeta: ownedBy("CronJob", "c")}
	job.Spec.Template.Annotations = map[string]string{tenant.WorkloadUserAnnotation: bobUser}
	if err := w.admit(t, create(job, controller)); err != nil ||
		job.Spec.Template.Annotations[tenant.WorkloadUserAnnotation] != bobUser {
		t.Errorf("%v, %v", job.Spec.Template.Annotations, err)
	}
}

// TestUnreadableOwnerIsDenied checks that a Pod of a controller is denied if its owner cannot be
// read.
func TestUnreadableOwnerIsDenied(t *testing.T) {
	w := &fakeCluster{unavailable: true}
	if err := w.admit(t, create(&corev1.Pod{ObjectMeta: ownedBy("ReplicaSet", "rs")}, controller)); err == nil {
		t.Error("admitted")
	}
	if err := w.admit(t, create(&corev1.Pod{ObjectMeta: ownedBy("ReplicaSet", "rs")}, alice)); err != nil {
		t.Error("the owner of a Pod that a tenant creates was looked up:", err)
	}
}

// TestBypassAuth checks that BypassAuth lets a tenant's caller supply any valid value.
func TestBypassAuth(t *testing.T) {
	w := &fakeCluster{options: attribution.WorkloadUser{BypassAuth: true}}
	for value, valid := range map[string]bool{
		bobUser:                   true,
		`{"user":"system:admin"}`: true,
		"{}":                      false,
		"null":                    false,
		"bob":                     false,
	} {
		t.Run(value, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{tenant.WorkloadUserAnnotation: value}},
			}
			if err := w.admit(t, create(pod, alice)); (err == nil) != valid {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestChangesAfterAdmitAreDenied checks that Validate denies a change that a webhook makes after
// Admit.
func TestChangesAfterAdmitAreDenied(t *testing.T) {
	w := &fakeCluster{}
	o := attribution.Options{
		Subject:  func(_ context.Context, u user.Info) (tenant.ID, error) { return tenant.Of(u) },
		Owner:    func(context.Context, string) (tenant.ID, error) { return tenant.Parse("a") },
		Kinds:    workload.New(nil),
		Metadata: w.find,
		Objects:  w.find,
		Creator:  true,
	}
	p := attribution.New(o)
	for key, value := range map[string]string{
		tenant.CreatorAnnotation:      `{"user":"root"}`,
		tenant.OnBehalfOfAnnotation:   "x",
		tenant.WorkloadUserAnnotation: bobUser,
	} {
		t.Run(key, func(t *testing.T) {
			for _, remove := range []bool{false, true} {
				pod := &corev1.Pod{}
				a := create(pod, alice)
				if err := p.Admit(t.Context(), a, nil); err != nil {
					t.Fatal(err)
				}
				if remove {
					delete(pod.Annotations, key)
				} else {
					pod.Annotations[key] = value
				}
				if err := p.Validate(t.Context(), a, nil); (err == nil) != (remove && key == tenant.OnBehalfOfAnnotation) {
					t.Errorf("%s, removed %t: %v", key, remove, err)
				}
			}
		})
	}
}

type warnings []string

func (h *warnings) AddWarning(_, text string) { *h = append(*h, text) }

// TestChangedCreatorWarns checks that the creator cannot be changed, and that an attempt causes a
// warning.
func TestChangedCreatorWarns(t *testing.T) {
	for name, c := range map[string]struct {
		is   map[string]string
		want int
	}{
		"changed": {map[string]string{tenant.CreatorAnnotation: "y"}, 1},
		"omitted": {nil, 0},
		"same":    {map[string]string{tenant.CreatorAnnotation: "x"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var told warnings
			ctx := warning.WithWarningRecorder(t.Context(), &told)
			w := &fakeCluster{}
			p := attribution.New(attribution.Options{
				Subject:  func(_ context.Context, u user.Info) (tenant.ID, error) { return tenant.Of(u) },
				Kinds:    workload.New(nil),
				Metadata: w.find,
				Objects:  w.find,
				Creator:  true,
			})
			old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{tenant.CreatorAnnotation: "x"}}}
			is := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: c.is}}
			if err := p.Admit(ctx, update(is, old, alice), nil); err != nil {
				t.Fatal(err)
			}
			if is.Annotations[tenant.CreatorAnnotation] != "x" || len(told) != c.want {
				t.Errorf("%v, warnings %q", is.Annotations, told)
			}
		})
	}
}

// TestScheduling checks that Pods that do not name a scheduler, an application and a queue get
// the configured ones.
func TestScheduling(t *testing.T) {
	w := &fakeCluster{
		options: attribution.WorkloadUser{
			Scheduling: &attribution.Scheduling{SchedulerName: "yunikorn", Queue: "root.{tenant}.{namespace}"},
		},
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName}}
	if err := w.admit(t, create(pod, alice)); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"yunikorn.apache.org/app-id": "yunikorn-a--web-autogen",
		"applicationId":              "yunikorn-a--web-autogen",
		"queue":                      "root.a.a--web",
	}
	for key, value := range want {
		if pod.Labels[key] != value {
			t.Errorf("%s is %q, want %q", key, pod.Labels[key], value)
		}
	}
	if pod.Spec.SchedulerName != "yunikorn" {
		t.Error(pod.Spec.SchedulerName)
	}
	own := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"applicationId": "mine", "queue": "root.a.a--web.x"}},
		Spec:       corev1.PodSpec{SchedulerName: "other"},
	}
	if err := w.admit(t, create(own, alice)); err != nil {
		t.Fatal(err)
	}
	if own.Labels["yunikorn.apache.org/app-id"] != "mine" || own.Labels["queue"] != "root.a.a--web.x" ||
		own.Spec.SchedulerName != "other" {
		t.Errorf("%v %s", own.Labels, own.Spec.SchedulerName)
	}
}

// TestCreatorRecordSize checks the maximum size of the record of a creator.
func TestCreatorRecordSize(t *testing.T) {
	id, _ := tenant.Parse("a")
	if _, err := attribution.CreatorRecord(caller(strings.Repeat("x", 5000), "a"), id); err == nil {
		t.Error("recorded")
	}
	many := slices.Repeat([]string{"a-group-of-some-length"}, 400)
	text, err := attribution.CreatorRecord(caller("alice", "a", many...), id)
	var got attribution.Creator
	if err != nil || json.Unmarshal([]byte(text), &got) != nil || got.GroupCount != 400 || got.Groups != nil ||
		len(text) > attribution.MaxCreatorBytes {
		t.Errorf("%s, %v", text, err)
	}
}

// FuzzUserInfo checks that an accepted value has a user without a reserved name, and only the
// fields user and groups.
func FuzzUserInfo(f *testing.F) {
	for _, text := range []string{
		bobUser, "{}", "null", `{"user":"a","groups":null}`, `{"user":"a"}{}`, `{"User":"a"}`, "[]", ` {"user":"x"} `,
	} {
		f.Add(text)
	}
	w := &fakeCluster{options: attribution.WorkloadUser{ExternalUsers: []*regexp.Regexp{regexp.MustCompile(`\Aalice\z`)}}}
	f.Fuzz(func(t *testing.T, text string) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{tenant.WorkloadUserAnnotation: text}}}
		if err := w.admit(t, create(pod, alice)); err != nil {
			return
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal([]byte(pod.Annotations[tenant.WorkloadUserAnnotation]), &fields); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		var name string
		if err := json.Unmarshal(fields["user"], &name); err != nil || name == "" || strings.HasPrefix(name, "system:") {
			t.Errorf("%q: user %q, %v", text, name, err)
		}
		for key := range fields {
			if key != "user" && key != "groups" {
				t.Errorf("%q: field %q", text, key)
			}
		}
	})
}

// TestUpdatesRetainTheUser checks that an update of a template neither removes nor changes the
// user, and that an update that changes the user of a Pod is denied.
func TestUpdatesRetainTheUser(t *testing.T) {
	p := attribution.New(attribution.Options{
		Subject:  func(_ context.Context, u user.Info) (tenant.ID, error) { return tenant.Of(u) },
		Owner:    func(context.Context, string) (tenant.ID, error) { return tenant.Parse("a") },
		Kinds:    workload.New(nil),
		Metadata: (&fakeCluster{}).find,
		Objects:  (&fakeCluster{}).find,
	})
	deployment := func(value string) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "a--web"}}
		if value != "" {
			d.Spec.Template.Annotations = map[string]string{tenant.WorkloadUserAnnotation: value}
		}
		return d
	}
	for name, c := range map[string]struct {
		was, is, want string
		told          int
	}{
		"omitted":      {bobUser, "", bobUser, 0},
		"the same":     {bobUser, bobUser, bobUser, 0},
		"the caller":   {bobUser, `{"user":"alice","groups":["dev","tenant:a"]}`, bobUser, 1},
		"another user": {bobUser, `{"user":"eve"}`, bobUser, 1},
		"invalid":      {bobUser, "x", bobUser, 1},
		"added":        {"", bobUser, "", 1},
		"none":         {"", "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var told warnings
			ctx := warning.WithWarningRecorder(t.Context(), &told)
			is := deployment(c.is)
			for range 2 { // admission can run again after a webhook
				a := update(is, deployment(c.was), alice)
				if err := p.Admit(ctx, a, nil); err != nil {
					t.Fatalf("%v", err)
				}
				if err := p.Validate(ctx, a, nil); err != nil {
					t.Errorf("%v", err)
				}
			}
			if got := is.Spec.Template.Annotations[tenant.WorkloadUserAnnotation]; got != c.want || len(told) != c.told {
				t.Errorf("%q, warnings %q", got, told)
			}
		})
	}
	var told warnings
	by := update(deployment(""), deployment(bobUser), alice)
	by = admission.NewAttributesRecord(by.GetObject(), by.GetOldObject(), by.GetKind(), "a--web", "x", by.GetResource(),
		"", admission.Update, &metav1.UpdateOptions{FieldManager: "kubectl-edit"}, false, alice)
	if err := p.Admit(warning.WithWarningRecorder(t.Context(), &told), by, nil); err != nil || len(told) != 1 ||
		!strings.HasSuffix(told[0], ": the annotation "+tenant.WorkloadUserAnnotation+
			" is managed by the server and was not removed") {
		t.Errorf("omitted with kubectl: %v, %q", err, told)
	}
	pod := func(value string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{tenant.WorkloadUserAnnotation: value}},
		}
	}
	left := &corev1.Pod{}
	if a := update(left, pod(bobUser), alice); p.Admit(t.Context(), a, nil) != nil ||
		p.Validate(t.Context(), a, nil) != nil || left.Annotations[tenant.WorkloadUserAnnotation] != bobUser {
		t.Errorf("Pod update that omits the user: %v", left.Annotations)
	}
	if a := update(pod(`{"user":"eve"}`), pod(bobUser), alice); p.Admit(t.Context(), a, nil) != nil ||
		p.Validate(t.Context(), a, nil) == nil {
		t.Error("the user of a Pod was changed")
	}
}

// TestTemplatesInListsAreMatched checks that templates in a list are matched by their users. If the
// number of templates did not change, they are also matched by their positions.
func TestTemplatesInListsAreMatched(t *testing.T) {
	group := schema.GroupKind{Group: "example.com", Kind: "Farm"}
	p := attribution.New(attribution.Options{
		Subject:  func(_ context.Context, u user.Info) (tenant.ID, error) { return tenant.Of(u) },
		Owner:    func(context.Context, string) (tenant.ID, error) { return tenant.Parse("a") },
		Kinds:    workload.New(map[schema.GroupKind][]string{group: {"spec.groups.*.template"}}),
		Metadata: (&fakeCluster{}).find,
		Objects:  (&fakeCluster{}).find,
	})
	farm := func(users ...string) *unstructured.Unstructured {
		var groups []any
		for _, u := range users {
			annotations := map[string]any{}
			if u != "" {
				annotations[tenant.WorkloadUserAnnotation] = u
			}
			groups = append(groups, map[string]any{
				"template": map[string]any{"metadata": map[string]any{"annotations": annotations}, "spec": map[string]any{}},
			})
		}
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1",
			"kind":       "Farm",
			"metadata":   map[string]any{"name": "f", "namespace": "a--web"},
			"spec":       map[string]any{"groups": groups},
		}}
	}
	const bob, eve, mine = `{"user":"bob"}`, `{"user":"eve"}`, `{"user":"alice","groups":["dev","tenant:a"]}`
	for name, c := range map[string]struct{ was, is, want []string }{
		"omitted":                 {[]string{bob, eve}, []string{"", ""}, []string{bob, eve}},
		"moved":                   {[]string{bob, eve}, []string{eve, bob}, []string{eve, bob}},
		"one added":               {[]string{bob}, []string{bob, ""}, []string{bob, mine}},
		"one added in front":      {[]string{bob}, []string{"", bob}, []string{mine, bob}},
		"one added, all omitted":  {[]string{bob}, []string{"", ""}, []string{mine, mine}},
		"one removed":             {[]string{bob, eve}, []string{eve}, []string{eve}},
		"changed to another user": {[]string{bob, eve}, []string{`{"user":"x"}`, eve}, []string{bob, eve}},
		"changed to the caller":   {[]string{bob, eve}, []string{mine, eve}, []string{mine, eve}},
		"moved, and one omitted":  {[]string{bob, eve}, []string{eve, ""}, []string{eve, mine}},
		"two equal users":         {[]string{bob, bob}, []string{bob, bob}, []string{bob, bob}},
	} {
		t.Run(name, func(t *testing.T) {
			obj := farm(c.is...)
			a := admission.NewAttributesRecord(obj, farm(c.was...), group.WithVersion("v1"), "a--web", "f",
				schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "farms"}, "",
				admission.Update, nil, false, alice)
			if err := p.Admit(t.Context(), a, nil); err != nil {
				t.Errorf("%v", err)
			}
			if err := p.Validate(t.Context(), a, nil); err != nil {
				t.Errorf("%v", err)
			}
			if diff := cmp.Diff(farm(c.want...).Object, obj.Object); diff != "" {
				t.Errorf("%s", diff)
			}
		})
	}
	copied := farm(bob, bob) // only one of the two existed before
	if err := p.Admit(t.Context(), admission.NewAttributesRecord(copied, farm(bob), group.WithVersion("v1"), "a--web", "f",
		schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "farms"}, "", admission.Update, nil,
		false, alice), nil); err == nil {
		t.Error("the user of another template was copied onto a new template")
	}
	var told warnings
	fresh := farm(mine)
	if err := p.Admit(warning.WithWarningRecorder(t.Context(), &told),
		admission.NewAttributesRecord(fresh, farm(), group.WithVersion("v1"), "a--web", "f",
			schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "farms"}, "", admission.Update, nil,
			false, alice), nil); err != nil || len(told) > 0 {
		t.Errorf("new template with the caller: %v, warnings %q", err, told)
	}
	obj := farm(bob, eve, `{"user":"x"}`) // the number of templates changed, and no old one has this user
	a := admission.NewAttributesRecord(obj, farm(bob, eve), group.WithVersion("v1"), "a--web", "f",
		schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "farms"}, "",
		admission.Update, nil, false, alice)
	if err := p.Admit(t.Context(), a, nil); err == nil {
		t.Error("a new template with another user was admitted")
	}
}

// TestRolloutUndoDoesNotWarn checks that kubectl rollout undo causes no warning. This command
// copies the annotations of a ReplicaSet onto its Deployment.
func TestRolloutUndoDoesNotWarn(t *testing.T) {
	p := attribution.New(attribution.Options{
		Subject:  func(_ context.Context, u user.Info) (tenant.ID, error) { return tenant.Of(u) },
		Kinds:    workload.New(nil),
		Metadata: (&fakeCluster{}).find,
		Objects:  (&fakeCluster{}).find,
		Creator:  true,
	})
	for says, want := range map[string]int{"x": 0, "y": 1} {
		t.Run(says, func(t *testing.T) {
			var told warnings
			old := &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{tenant.CreatorAnnotation: "x"}},
			}
			obj := old.DeepCopy()
			obj.Annotations[tenant.OnBehalfOfAnnotation] = says
			a := update(obj, old, alice)
			if err := p.Admit(warning.WithWarningRecorder(t.Context(), &told), a, nil); err != nil {
				t.Fatal(err)
			}
			if _, ok := obj.Annotations[tenant.OnBehalfOfAnnotation]; ok || len(told) != want {
				t.Errorf("%v, warnings %q", obj.Annotations, told)
			}
		})
	}
}
