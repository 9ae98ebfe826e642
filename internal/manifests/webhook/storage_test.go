// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/deploy"
	"github.com/kubetenant/kubetenant/internal/manifests/charts"
	"github.com/kubetenant/kubetenant/internal/manifests/webhook"
)

// storageOptions returns options with sections of a configuration and a type of storage.
func storageOptions(t *testing.T, sections string, storage webhook.Storage) webhook.Options {
	t.Helper()
	o := options(t)
	write(t, o.Config, "{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration, "+sections+"}")
	o.Storage, o.StorageSize = storage, "2Gi"
	return o
}

// TestStorageIsRequired checks that generate and the chart reject a configuration whose files would
// be lost with a Pod, or would be outside of the volume.
func TestStorageIsRequired(t *testing.T) {
	t.Parallel()
	const (
		audit    = "audit: {directory: /var/lib/kubetenant/audit}"
		endpoint = "usage: {directory: /var/lib/kubetenant/usage, endpoint: {url: https://billing.example.com}}"
		file     = "usage: {directory: /var/lib/kubetenant/usage, file: {path: /var/lib/kubetenant/records/usage.jsonl}}"
		none     = webhook.StorageNone
		emptyDir = webhook.StorageEmptyDir
		claim    = webhook.StorageClaim
	)
	directory := func(path string) string { return fmt.Sprintf("audit: {directory: %q}", path) }
	for name, c := range map[string]struct {
		sections string
		storage  webhook.Storage
		want     string // part of the error, or "" if it is valid
	}{
		"nothing to store":              {"", none, ""},
		"names only":                    {"usage: {cluster: eu1}", none, ""},
		"audit in a claim":              {audit, claim, ""},
		"audit in an emptyDir":          {audit, emptyDir, ""},
		"audit without a volume":        {audit, none, "section audit: set "},
		"records in a claim":            {file, claim, ""},
		"unsent records in a claim":     {endpoint, claim, ""},
		"records without a volume":      {file, none, "to Claim"},
		"unsent records in an emptyDir": {endpoint, emptyDir, "to Claim"},
		"over the configuration":        {directory("/etc/kubetenant/config/audit"), claim, "must be below /var/lib/"},
		"at the root":                   {directory("/audit"), claim, "must be below"},
		"a relative path":               {directory("audit"), claim, "must be below"},
		"the mount itself":              {directory("/var/lib/kubetenant"), claim, "must be below"},
		"the mount with a slash":        {directory("/var/lib/kubetenant/"), claim, "must be below"},
		"a path that leaves the volume": {directory("/var/lib/kubetenant/../../etc"), claim, "must be below"},
		"a neighbor":                    {directory("/var/lib/kubetenant2/audit"), claim, "must be below"},
		"a path of unsent records":      {strings.Replace(endpoint, "/var/lib/", "/var/log/", 1), claim, "usage.directory"},
		"a path of records":             {strings.Replace(file, "/kubetenant/records", "", 1), claim, "usage.file.path"},
		"an unknown type":               {audit, "HostPath", "must be EmptyDir or Claim"},
	} {
		t.Run(name, func(t *testing.T) {
			o := storageOptions(t, c.sections, c.storage)
			if _, err := webhook.Generate(o); !isProblem(err, c.want) {
				t.Errorf("generate returns %v, want %q", err, c.want)
			}
			if c.storage == "HostPath" {
				return // the schema of the values rejects it
			}
			if err := renderStorage(t, c.sections, c.storage); !isProblem(err, c.want) {
				t.Errorf("the chart returns %v, want %q", err, c.want)
			}
			o.External = true
			o.Image = ""
			if _, err := webhook.Generate(o); err != nil {
				t.Errorf("a service outside of the cluster: %v", err)
			}
		})
	}
	o := storageOptions(t, audit, claim)
	o.StorageSize = "large"
	if _, err := webhook.Generate(o); !isProblem(err, "--storage-size") {
		t.Errorf("a size that is not a quantity: %v", err)
	}
}

func isProblem(err error, want string) bool {
	if want == "" {
		return err == nil
	}
	return err != nil && strings.Contains(err.Error(), want)
}

// renderStorage renders the Deployments of the chart, as Helm does.
func renderStorage(t *testing.T, sections string, storage webhook.Storage) error {
	t.Helper()
	v, err := charts.Defaults(deploy.Files, "chart")
	if err != nil {
		t.Fatal(err)
	}
	v["image"], v["clientCA"] = "example.com/kubetenant-webhook:1", "-----BEGIN CERTIFICATE-----"
	v["config"] = map[string]string{"tenancy.yaml": "{" + sections + "}"}
	v["storage"] = map[string]any{"type": string(storage), "size": "2Gi", "className": ""}
	data, err := charts.Data(deploy.Files, "chart", "kubetenant-system", v)
	if err != nil {
		t.Fatal(err)
	}
	templates, err := fs.Sub(deploy.Files, "chart/templates")
	if err != nil {
		t.Fatal(err)
	}
	_, err = charts.RenderOne(templates, "deployment.yaml", data)
	return err
}

// TestStorage checks the volume of the service. With a claim, a volume belongs to the name of a
// replica, so that a new Pod has the files of the Pod that it replaces.
func TestStorage(t *testing.T) {
	t.Parallel()
	const audit = "audit: {directory: /var/lib/kubetenant/audit}"
	o := storageOptions(t, audit, webhook.StorageClaim)
	o.StorageClass = "fast"
	files, err := webhook.Generate(o)
	if err != nil {
		t.Fatal(err)
	}
	sets := documents[appsv1.StatefulSet](t, files["cluster/deployment.yaml"], "StatefulSet")
	if len(sets) != 1 || sets[0].Name != "kubetenant-webhook" || len(sets[0].Spec.VolumeClaimTemplates) != 1 {
		t.Fatalf("StatefulSets: %+v", sets)
	}
	set := sets[0].Spec
	claim := set.VolumeClaimTemplates[0]
	if size := claim.Spec.Resources.Requests[corev1.ResourceStorage]; claim.Name != "storage" || size.String() != "2Gi" ||
		*claim.Spec.StorageClassName != "fast" || set.PodManagementPolicy != appsv1.ParallelPodManagement {
		t.Errorf("the claim is %+v of %+v", claim, set)
	}
	if !isMounted(&set.Template.Spec) || set.Template.Spec.SecurityContext.FSGroupChangePolicy == nil {
		t.Errorf("the Pod is %+v", set.Template.Spec)
	}
	for _, d := range documents[appsv1.Deployment](t, files["cluster/deployment.yaml"], "Deployment") {
		if d.Name == "kubetenant-webhook" || isMounted(&d.Spec.Template.Spec) {
			t.Errorf("Deployment %s: %+v", d.Name, d.Spec.Template.Spec)
		}
	}
	files, err = webhook.Generate(storageOptions(t, audit, webhook.StorageEmptyDir))
	if err != nil {
		t.Fatal(err)
	}
	deployments := documents[appsv1.Deployment](t, files["cluster/deployment.yaml"], "Deployment")
	pod := deployments[0].Spec.Template.Spec
	requests := pod.Containers[0].Resources.Requests
	if deployments[0].Name != "kubetenant-webhook" || !isMounted(&pod) || requests.StorageEphemeral().String() != "2Gi" ||
		requests.Cpu().IsZero() || requests.Memory().IsZero() {
		t.Errorf("the Pod is %+v", pod)
	}
	for _, v := range pod.Volumes {
		if v.Name == "storage" && (v.EmptyDir == nil || v.EmptyDir.SizeLimit.String() != "2Gi") {
			t.Errorf("the volume is %+v", v)
		}
	}
	values := struct{ Storage map[string]string }{}
	if err := yaml.Unmarshal(files["values.yaml"], &values); err != nil || values.Storage["type"] != "EmptyDir" {
		t.Errorf("the values are %+v (%v)", values, err)
	}
}

func isMounted(pod *corev1.PodSpec) bool {
	for _, m := range pod.Containers[0].VolumeMounts {
		if m.Name == "storage" {
			return m.MountPath == "/var/lib/kubetenant" && !m.ReadOnly
		}
	}
	return false
}
