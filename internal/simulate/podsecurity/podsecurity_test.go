// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package podsecurity_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/kubetenant/kubetenant/internal/simulate/podsecurity"
)

// plugin returns the plugin for a cluster with one namespace that has the given labels.
func plugin(t *testing.T, labels map[string]string) *podsecurity.Plugin {
	t.Helper()
	p, err := podsecurity.New(func(name string) (*corev1.Namespace, error) {
		if name != "acme--web" {
			return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
		}
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func enforce(level string) map[string]string {
	return map[string]string{podsecurity.LabelPrefix + "enforce": level}
}

// write returns the attributes of a write. It is an update if old is not nil.
func write(full string, object, old runtime.Object) admission.Attributes {
	resource, subresource, _ := strings.Cut(full, "/")
	gr := schema.ParseGroupResource(resource)
	operation := admission.Create
	if old != nil {
		operation = admission.Update
	}
	return admission.NewAttributesRecord(object, old, schema.GroupVersionKind{}, "acme--web", "x", gr.WithVersion("v1"),
		subresource, operation, nil, false,
		&user.DefaultInfo{Name: "alice"})
}

// restricted returns a Pod that every level admits, to which change was applied.
func restricted(change func(*corev1.Pod)) *corev1.Pod {
	container := corev1.Container{
		Name:  "c",
		Image: "i",
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(bool),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "acme--web"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{container},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   to(true),
				WindowsOptions: &corev1.WindowsSecurityContextOptions{},
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

func to[T any](value T) *T { return &value }

// violations contains, for each control, a change to a Pod that this control rejects.
func violations() map[policy.CheckID]func(*corev1.Pod) {
	return map[policy.CheckID]func(*corev1.Pod){
		"hostNamespaces":  func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"hostPathVolumes": volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}),
		"hostPorts":       func(p *corev1.Pod) { first(p).Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}} },
		"hostProbesAndHostLifecycle": func(p *corev1.Pod) {
			first(p).LivenessProbe = &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80), Host: "10.0.0.1"}},
			}
		},
		"privileged":           func(p *corev1.Pod) { first(p).SecurityContext.Privileged = to(true) },
		"procMount":            func(p *corev1.Pod) { first(p).SecurityContext.ProcMount = to(corev1.UnmaskedProcMount) },
		"procMount_restricted": func(p *corev1.Pod) { first(p).SecurityContext.ProcMount = to(corev1.UnmaskedProcMount) },
		"seLinuxOptions": func(p *corev1.Pod) {
			p.Spec.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Type: "t"}
		},
		"sysctls": func(p *corev1.Pod) {
			p.Spec.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}
		},
		"windowsHostProcess": func(p *corev1.Pod) { p.Spec.SecurityContext.WindowsOptions.HostProcess = to(true) },
		"appArmorProfile": func(p *corev1.Pod) {
			first(p).SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: "Unconfined"}
		},
		"capabilities_baseline": func(p *corev1.Pod) {
			first(p).SecurityContext.Capabilities.Add = []corev1.Capability{"NET_RAW"}
		},
		"seccompProfile_baseline": func(p *corev1.Pod) {
			p.Spec.SecurityContext.SeccompProfile.Type = corev1.SeccompProfileTypeUnconfined
		},
		"seccompProfile_restricted": func(p *corev1.Pod) { p.Spec.SecurityContext.SeccompProfile = nil },
		"allowPrivilegeEscalation":  func(p *corev1.Pod) { first(p).SecurityContext.AllowPrivilegeEscalation = nil },
		"capabilities_restricted":   func(p *corev1.Pod) { first(p).SecurityContext.Capabilities.Drop = nil },
		"restrictedVolumes":         volume(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}}),
		"runAsNonRoot":              func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsNonRoot = nil },
		"runAsUser":                 func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsUser = to[int64](0) },
	}
}

func first(p *corev1.Pod) *corev1.Container { return &p.Spec.Containers[0] }

func volume(source corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} }
}

// TestControls checks that each control of the library rejects a Pod only at its own level and at
// stricter levels, for typed and untyped Pods.
func TestControls(t *testing.T) {
	tried := violations()
	for _, check := range policy.DefaultChecks() {
		change := tried[check.ID]
		if change == nil {
			t.Errorf("no Pod violates the control %s", check.ID)
			continue
		}
		delete(tried, check.ID)
		pod := restricted(change)
		if check.Versions[len(check.Versions)-1].CheckPod(&pod.ObjectMeta, &pod.Spec).Allowed {
			t.Errorf("%s: the Pod does not violate it", check.ID)
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
		if err != nil {
			t.Fatal(err)
		}
		untyped := &unstructured.Unstructured{Object: content}
		untyped.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		for _, level := range []api.Level{api.LevelPrivileged, api.LevelBaseline, api.LevelRestricted} {
			refused := level != api.LevelPrivileged && api.CompareLevels(level, check.Level) >= 0
			if level == api.LevelBaseline && check.Level == api.LevelRestricted && check.ID == "procMount_restricted" {
				refused = true // checks the same field as procMount at baseline
			}
			p := plugin(t, enforce(string(level)))
			for _, object := range []runtime.Object{pod, untyped} {
				err := p.Validate(t.Context(), write("pods", object, nil), nil)
				if (err != nil) != refused ||
					refused && !strings.Contains(err.Error(), `violates PodSecurity "`+string(level)+`:latest": `) {
					t.Errorf("%s: %T at %s: %v", check.ID, object, level, err)
				}
			}
		}
	}
	for id := range tried {
		t.Errorf("there is no control %s", id)
	}
	if err := plugin(t, enforce("restricted")).Validate(t.Context(),
		write("pods", restricted(nil), nil), nil); err != nil {
		t.Errorf("a Pod that violates nothing: %v", err)
	}
}

// TestLevels checks that the labels of the namespace determine level and version, and that invalid
// labels mean the strictest level.
func TestLevels(t *testing.T) {
	privileged, unmeant := restricted(violations()["privileged"]), restricted(violations()["runAsNonRoot"])
	sysctl := restricted(func(p *corev1.Pod) {
		// allowed since v1.27
		p.Spec.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "net.ipv4.ip_local_reserved_ports", Value: "1"}}
	})
	at := func(level, version string) map[string]string {
		labels := enforce(level)
		labels[podsecurity.LabelPrefix+"enforce-version"] = version
		return labels
	}
	for name, c := range map[string]struct {
		labels map[string]string
		pod    *corev1.Pod
		want   string
	}{
		"no label":      {nil, privileged, ""},
		"another label": {map[string]string{"pod-security.kubernetes.io": "restricted"}, privileged, ""},
		"warn and audit": {
			map[string]string{podsecurity.LabelPrefix + "warn": "baseline", podsecurity.LabelPrefix + "audit": "baseline"},
			privileged,
			"",
		},
		"baseline": {enforce("baseline"), unmeant, ""},
		"restricted": {
			enforce("restricted"), unmeant, `violates PodSecurity "restricted:latest": runAsNonRoot != true`,
		},
		"a bad level":      {enforce("strict"), unmeant, `violates PodSecurity "restricted:latest"`},
		"an old version":   {at("baseline", "v1.26"), sysctl, `violates PodSecurity "baseline:v1.26": forbidden sysctls`},
		"a newer version":  {at("baseline", "v1.27"), sysctl, ""},
		"a future version": {at("baseline", "v1.99"), privileged, `violates PodSecurity "baseline:v1.99": privileged`},
		"a bad version":    {at("baseline", "1"), privileged, `violates PodSecurity "baseline:latest": privileged`},
		"a port of the host": {enforce("baseline"), restricted(func(p *corev1.Pod) {
			p.Spec.HostNetwork, first(p).Ports = true, []corev1.ContainerPort{{ContainerPort: 80}}
		}), `host namespaces (hostNetwork=true), hostPort (container "c" uses hostPort 80)`},
	} {
		t.Run(name, func(t *testing.T) {
			err := plugin(t, c.labels).Validate(t.Context(), write("pods", c.pod, nil), nil)
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

// TestWrites checks that updates, subresources and ephemeral containers are evaluated as on the
// server.
func TestWrites(t *testing.T) {
	bad, good := restricted(violations()["privileged"]), restricted(nil)
	image := restricted(func(p *corev1.Pod) { violations()["privileged"](p); first(p).Image = "another" })
	debugging := restricted(func(p *corev1.Pod) {
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name:            "debug",
			SecurityContext: &corev1.SecurityContext{Privileged: to(true)},
		}}}
	})
	labeled := restricted(func(p *corev1.Pod) { violations()["privileged"](p); p.Labels = map[string]string{"l": "x"} })
	for name, c := range map[string]struct {
		resource    string
		object, old runtime.Object
		refused     bool
	}{
		"a Pod":                            {"pods", bad, nil, true},
		"a new image":                      {"pods", image, bad, true},
		"a new label":                      {"pods", labeled, bad, false},
		"an ephemeral container":           {"pods/ephemeralcontainers", debugging, good, true},
		"an unchanged ephemeral container": {"pods/ephemeralcontainers", debugging, debugging, false},
		"an ephemeral container in a Pod":  {"pods", debugging, good, true},
		"a resize":                         {"pods/resize", image, bad, true},
		"a status":                         {"pods/status", image, bad, false},
		"an eviction":                      {"pods/eviction", &corev1.ConfigMap{}, nil, false},
		"a Secret":                         {"secrets", &corev1.Secret{}, nil, false},
		"a Deployment": {
			"deployments.apps",
			&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: bad.Spec}}},
			nil,
			false,
		},
		"a namespace with a bad level": {
			"namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: enforce("strict")}}, nil, true,
		},
		"a namespace": {
			"namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: enforce("baseline")}}, nil, false,
		},
		"no Pod": {"pods", &corev1.ConfigMap{}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := plugin(t, enforce("baseline")).Validate(t.Context(),
				write(c.resource, c.object, c.old), nil); (err != nil) != c.refused {
				t.Errorf("%v; refused %t", err, c.refused)
			}
		})
	}
}

// TestTemplates checks that workloads of every kind are accepted, and that TemplateViolation
// reports whether their Pods would be rejected. The result does not depend on the warning labels of
// the namespace.
func TestTemplates(t *testing.T) {
	template := func(pod *corev1.Pod) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	}
	kinds := map[string]func(corev1.PodTemplateSpec) runtime.Object{
		"podtemplates": func(of corev1.PodTemplateSpec) runtime.Object { return &corev1.PodTemplate{Template: of} },
		"replicationcontrollers": func(of corev1.PodTemplateSpec) runtime.Object {
			return &corev1.ReplicationController{Spec: corev1.ReplicationControllerSpec{Template: &of}}
		},
		"replicasets.apps": func(of corev1.PodTemplateSpec) runtime.Object {
			return &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Template: of}}
		},
		"deployments.apps": func(of corev1.PodTemplateSpec) runtime.Object {
			return &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: of}}
		},
		"statefulsets.apps": func(of corev1.PodTemplateSpec) runtime.Object {
			return &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Template: of}}
		},
		"daemonsets.apps": func(of corev1.PodTemplateSpec) runtime.Object {
			return &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: of}}
		},
		"jobs.batch": func(of corev1.PodTemplateSpec) runtime.Object {
			return &batchv1.Job{Spec: batchv1.JobSpec{Template: of}}
		},
		"cronjobs.batch": func(of corev1.PodTemplateSpec) runtime.Object {
			return &batchv1.CronJob{
				Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: of}}},
			}
		},
	}
	silent := enforce("baseline")
	silent[podsecurity.LabelPrefix+"warn"], silent[podsecurity.LabelPrefix+"audit"] = "privileged", "privileged"
	for resource, of := range kinds {
		t.Run(resource, func(t *testing.T) {
			for _, labels := range []map[string]string{enforce("baseline"), silent} {
				p := plugin(t, labels)
				for id, change := range violations() {
					a := write(resource, of(template(restricted(change))), nil)
					if err := p.Validate(t.Context(), a, nil); err != nil {
						t.Errorf("%s is refused: %v", resource, err)
					}
					got := p.TemplateViolation(t.Context(), a)
					pod := p.Validate(t.Context(), write("pods", restricted(change), nil), nil)
					if (got != "") != (pod != nil) || got != "" && !strings.HasSuffix(pod.Error(), got) {
						t.Errorf("%s, %s: %q; the Pod itself: %v", resource, id, got, pod)
					}
				}
				a := write(resource, of(template(restricted(violations()["privileged"]))), nil)
				if got := plugin(t, nil).TemplateViolation(t.Context(), a); got != "" {
					t.Errorf("%s without a level: %q", resource, got)
				}
			}
		})
	}
	p := plugin(t, enforce("baseline"))
	for name, a := range map[string]admission.Attributes{
		"a controller without a template": write("replicationcontrollers", &corev1.ReplicationController{}, nil),
		"a subresource": write("deployments.apps/status",
			&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: template(restricted(violations()["privileged"]))}}, nil),
		"a Pod":            write("pods", restricted(violations()["privileged"]), nil),
		"another resource": write("secrets", &corev1.Secret{}, nil),
	} {
		t.Run(name, func(t *testing.T) {
			if got := p.TemplateViolation(t.Context(), a); got != "" {
				t.Errorf("%q", got)
			}
		})
	}
}
