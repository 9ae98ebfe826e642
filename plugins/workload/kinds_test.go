// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins/workload"
)

// TestBuiltInKinds checks that the template of each kind is found, in a versioned and in an
// unstructured object. A template of a versioned object shares memory with the object.
func TestBuiltInKinds(t *testing.T) {
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"l": "x"}},
		Spec:       corev1.PodSpec{NodeName: "n"},
	}
	apps, batch, core := appsv1.SchemeGroupVersion, batchv1.SchemeGroupVersion, corev1.SchemeGroupVersion
	for kind, c := range map[schema.GroupVersionKind]struct {
		obj  runtime.Object
		path string
	}{
		core.WithKind("Pod"):         {&corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}, ""},
		core.WithKind("PodTemplate"): {&corev1.PodTemplate{Template: template}, "template"},
		core.WithKind("ReplicationController"): {
			&corev1.ReplicationController{Spec: corev1.ReplicationControllerSpec{Template: &template}}, "spec.template",
		},
		apps.WithKind("DaemonSet"):  {&appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: template}}, "spec.template"},
		apps.WithKind("Deployment"): {&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: template}}, "spec.template"},
		apps.WithKind("ReplicaSet"): {&appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Template: template}}, "spec.template"},
		apps.WithKind("StatefulSet"): {
			&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Template: template}}, "spec.template",
		},
		batch.WithKind("Job"): {&batchv1.Job{Spec: batchv1.JobSpec{Template: template}}, "spec.template"},
		batch.WithKind("CronJob"): {
			&batchv1.CronJob{
				Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}}},
			},
			"spec.jobTemplate.spec.template",
		},
	} {
		t.Run(kind.Kind, func(t *testing.T) {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c.obj)
			if err != nil {
				t.Fatal(err)
			}
			for _, obj := range []runtime.Object{c.obj, &unstructured.Unstructured{Object: content}} {
				o, err := kinds().Read(obj, kind, nil)
				if err != nil || len(o.Templates) != 1 {
					t.Fatalf("as %T: %v", obj, err)
				}
				got := o.Templates[0]
				if got.Path != c.path || got.Spec.NodeName != "n" || got.Meta.Labels["l"] != "x" ||
					got.Field("x") != map[bool]string{true: "x", false: c.path + ".x"}[c.path == ""] {
					t.Errorf("as %T: %+v", obj, got)
				}
				if workload.IsPod(kind.GroupKind()) != (c.path == "") {
					t.Error("IsPod is wrong")
				}
				got.Spec.SchedulerName = "set"
				if err := o.Write(); err != nil {
					t.Errorf("as %T: %v", obj, err)
				}
				if again, err := kinds().Read(obj, kind, nil); err != nil || again.Templates[0].Spec.SchedulerName != "set" {
					t.Errorf("as %T: Write did not change the object: %v", obj, err)
				}
			}
		})
	}
	if o, err := kinds().Read(&corev1.ReplicationController{}, core.WithKind("ReplicationController"), nil); err != nil ||
		o == nil || len(o.Templates) > 0 {
		t.Errorf("no template: %v, %v", o, err)
	}
	if o, err := kinds().Read(nil, core.WithKind("Pod"), nil); err != nil || o != nil {
		t.Errorf("no object: %v, %v", o, err)
	}
}

// internal is a fake internal version of Pod.
type internal struct{ corev1.Pod }

// TestConversion checks that an internal object is converted before it is read, and that changes
// are converted back.
func TestConversion(t *testing.T) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.ConfigMap{})
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Version: runtime.APIVersionInternal, Kind: "Pod"}, &internal{})
	for _, err := range []error{
		scheme.AddConversionFunc((*internal)(nil), (*corev1.Pod)(nil), func(a, b any, _ conversion.Scope) error {
			a.(*internal).DeepCopyInto(b.(*corev1.Pod))
			return nil
		}),
		scheme.AddConversionFunc((*corev1.Pod)(nil), (*internal)(nil), func(a, b any, _ conversion.Scope) error {
			a.(*corev1.Pod).DeepCopyInto(&b.(*internal).Pod)
			return nil
		}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	o := admission.NewObjectInterfacesFromScheme(scheme)
	pod, kind := &internal{corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}}}, corev1.SchemeGroupVersion.WithKind("Pod")
	got, err := kinds().Read(pod, kind, o)
	if err != nil || len(got.Templates) != 1 || got.Templates[0].Spec.NodeName != "n" {
		t.Fatal(got, err)
	}
	got.Templates[0].Spec.SchedulerName = "set"
	if pod.Spec.SchedulerName != "" {
		t.Error("changed before Write")
	}
	if err := got.Write(); err != nil || pod.Spec.SchedulerName != "set" {
		t.Errorf("%v, %+v", err, pod.Spec)
	}
	for name, obj := range map[string]runtime.Object{
		"not convertible": &corev1.ConfigMap{},
		"another Go type": &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := kinds().Read(obj, kind, o); err == nil || got != nil {
				t.Errorf("%v", got)
			}
		})
	}
}

// TestClaims checks that templates of claims in StatefulSets and in ephemeral volumes are
// identified by name, at any position in a list.
func TestClaims(t *testing.T) {
	set := &appsv1.StatefulSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"}}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{
		{ObjectMeta: metav1.ObjectMeta{Name: "one"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "two"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "v"}},
	}
	set.Spec.Template.Spec.Volumes = []corev1.Volume{
		{Name: "none"},
		{Name: "bare", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		{
			Name: "e",
			VolumeSource: corev1.VolumeSource{
				Ephemeral: &corev1.EphemeralVolumeSource{
					VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
						Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "w"},
					},
				},
			},
		},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(set)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"spec.template.spec.volumes[2].ephemeral.volumeClaimTemplate spec.template.volume e w",
		"spec.volumeClaimTemplates[0] template one ", "spec.volumeClaimTemplates[1] template two v",
	}
	for _, obj := range []runtime.Object{set, &unstructured.Unstructured{Object: content}} {
		o, err := kinds().Read(obj, appsv1.SchemeGroupVersion.WithKind("StatefulSet"), nil)
		if err != nil {
			t.Fatal(err)
		}
		claims, err := o.Claims()
		var got []string
		for _, c := range claims {
			got = append(got, c.Path+" "+c.Key+" "+c.Spec.VolumeName)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%T: %q, %v", obj, got, err)
		}
	}
	// Only a StatefulSet has volumeClaimTemplates.
	for kind, refused := range map[string]bool{"StatefulSet": true, "Deployment": false} {
		t.Run(kind, func(t *testing.T) {
			u := object(t,
				`{"apiVersion":"apps/v1","kind":"`+kind+`","spec":{"volumeClaimTemplates":"x","template":{"spec":{}}}}`)
			o, err := kinds().Read(u, appsv1.SchemeGroupVersion.WithKind(kind), nil)
			if err != nil {
				t.Fatal(err)
			}
			if claims, err := o.Claims(); (err != nil) != refused || len(claims) > 0 {
				t.Errorf("%v, %v", claims, err)
			}
		})
	}
}

// TestIsFinalizing checks that the old object must already be in deletion, and that only finalizers
// may change.
func TestIsFinalizing(t *testing.T) {
	stays, leaves := &corev1.Pod{}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}}
	changed := leaves.DeepCopy()
	changed.Spec.NodeName = "n"
	for name, c := range map[string]struct {
		is, was runtime.Object
		op      admission.Operation
		want    bool
	}{
		"an object that is being deleted":         {leaves, leaves, admission.Update, true},
		"no deletion timestamp in the new object": {stays, leaves, admission.Update, true},
		"an additional value":                     {changed, leaves, admission.Update, false},
		"a removed value":                         {leaves, changed, admission.Update, false},
		"an object that was not being deleted":    {leaves, stays, admission.Update, false},
		"a deletion":                              {leaves, leaves, admission.Delete, false},
		"a creation":                              {leaves, nil, admission.Create, false},
		"an update without the old object":        {leaves, nil, admission.Update, false},
		"an update without the new object":        {nil, leaves, admission.Update, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isFinalizing(c.is, c.was, c.op); got != c.want {
				t.Errorf("%t, want %t", got, c.want)
			}
		})
	}
	of := reflect.TypeFor[metav1.ObjectMeta]()
	for i := range of.NumField() {
		is := leaves.DeepCopy()
		fill(reflect.ValueOf(&is.ObjectMeta).Elem().Field(i))
		upkeep := []string{
			"Finalizers", "ManagedFields", "ResourceVersion", "DeletionTimestamp", "DeletionGracePeriodSeconds",
		}
		if got, want := isFinalizing(is, leaves, admission.Update), slices.Contains(upkeep, of.Field(i).Name); got != want {
			t.Errorf("a change of %s: %t", of.Field(i).Name, got)
		}
	}
}

func isFinalizing(obj, old runtime.Object, op admission.Operation) bool {
	return workload.IsFinalizing(
		admission.NewAttributesRecord(obj, old, corev1.SchemeGroupVersion.WithKind("Pod"), "n", "p",
			schema.GroupVersionResource{}, "", op, nil, false, nil),
	)
}

// fill sets a field of the metadata to a value that no other part of the test uses.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Int64:
		v.SetInt(7)
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"x": "y"}))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Struct:
		v.Set(reflect.ValueOf(metav1.NewTime(time.Unix(7, 0))))
	}
}

// TestScheduling checks that the configuration of groups of Pods is found in a Job and in the Job
// template of a CronJob, in a versioned and in an unstructured object.
func TestScheduling(t *testing.T) {
	configured := batchv1.JobSpec{Scheduling: &batchv1.JobSchedulingConfiguration{
		ResourceClaims: []schedulingv1alpha3.WorkloadPodGroupResourceClaim{{Name: "x"}},
	}}
	job, cronJob := batchv1.SchemeGroupVersion.WithKind("Job"), batchv1.SchemeGroupVersion.WithKind("CronJob")
	for name, c := range map[string]struct {
		kind schema.GroupVersionKind
		obj  runtime.Object
		path string // path of the configuration, or empty if there is none
	}{
		"a configured Job":    {job, &batchv1.Job{Spec: configured}, "spec.scheduling"},
		"an unconfigured Job": {job, &batchv1.Job{}, ""},
		"a configured CronJob": {
			cronJob,
			&batchv1.CronJob{Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: configured}}},
			"spec.jobTemplate.spec.scheduling",
		},
		"an unconfigured CronJob": {cronJob, &batchv1.CronJob{}, ""},
		"another kind":            {appsv1.SchemeGroupVersion.WithKind("Deployment"), &appsv1.Deployment{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c.obj)
			if err != nil {
				t.Fatal(err)
			}
			u := &unstructured.Unstructured{Object: content}
			u.SetGroupVersionKind(c.kind)
			for _, obj := range []runtime.Object{c.obj, u} {
				o, err := kinds().Read(obj, c.kind, nil)
				if err != nil {
					t.Fatal(err)
				}
				path, got, err := o.Scheduling()
				if err != nil || (got == nil) != (c.path == "") ||
					got != nil && (path != c.path || got["resourceClaims"] == nil) {
					t.Errorf("as %T: %s, %v, %v", obj, path, got, err)
				}
			}
		})
	}
	u := object(t, `{"apiVersion":"batch/v1","kind":"Job","spec":{"scheduling":"x","template":{"spec":{}}}}`)
	o, err := kinds().Read(u, job, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, got, err := o.Scheduling(); err == nil {
		t.Errorf("a configuration of another type: %v", got)
	}
}
