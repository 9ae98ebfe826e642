// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/kubetenant/kubetenant/cluster"
	"github.com/kubetenant/kubetenant/deploy"
	"github.com/kubetenant/kubetenant/tenant"
)

const tenantsName = "tenants.kubetenant.dev"

// installOver installs the definitions in a cluster. If installed is not nil, the cluster has this
// definition of Tenants. installOver returns the names of the written definitions, the resource
// version in the write of the definition of Tenants, and the log.
func installOver(t *testing.T, installed *unstructured.Unstructured) (written []string, version, log string) {
	t.Helper()
	client := fakeDefinitions()
	if installed != nil {
		installed.SetResourceVersion("7")
		client = fakeDefinitions(installed)
	}
	client.PrependReactor("patch", crds.Resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		patch := a.(clienttesting.PatchAction)
		written = append(written, patch.GetName())
		var sent metav1.PartialObjectMetadata
		if err := json.Unmarshal(patch.GetPatch(), &sent); err != nil {
			t.Fatal(err)
		}
		if patch.GetName() == tenantsName {
			version = sent.ResourceVersion
		}
		return true, &unstructured.Unstructured{}, nil
	})
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	if err := cluster.InstallCRDs(klog.NewContext(context.Background(), logger), client); err != nil {
		t.Fatal(err)
	}
	return written, version, logger.GetSink().(ktesting.Underlier).GetBuffer().String()
}

// TestInstallKeepsLaterDefinitions checks that InstallCRDs replaces every definition except one
// from a later release, because that would drop stored fields. It replaces a later definition only
// if its annotation allows this.
func TestInstallKeepsLaterDefinitions(t *testing.T) {
	spec := []string{"properties", "spec", "properties"}
	later := func(u *unstructured.Unstructured) {
		schemaOf(u, spec...)["later"] = map[string]any{"type": "string"}
	}
	for name, c := range map[string]struct {
		change func(*unstructured.Unstructured)
		kept   string // a name in the log, or "" if the definition is replaced
	}{
		"of this release":    {change: func(*unstructured.Unstructured) {}},
		"with another field": {later, "spec.later"},
		"with another field in a list": {func(u *unstructured.Unstructured) {
			schemaOf(u, append(spec, "bindings", "items", "properties")...)["later"] = map[string]any{"type": "string"}
		}, "spec.bindings[].later"},
		"with a field that preserves unknown fields": {func(u *unstructured.Unstructured) {
			schemaOf(u, spec...)["suspension"] = map[string]any{
				"type": "object", "x-kubernetes-preserve-unknown-fields": true,
			}
		}, "spec.suspension.*"},
		"with another version": {func(u *unstructured.Unstructured) {
			versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
			next := runtime.DeepCopyJSONValue(versions[0]).(map[string]any)
			next["name"], next["storage"] = "v1beta1", false
			_ = unstructured.SetNestedSlice(u.Object, append(versions, next), "spec", "versions")
		}, "the version v1beta1"},
		"with another field and without one of ours": {change: func(u *unstructured.Unstructured) {
			later(u)
			delete(schemaOf(u, spec...), "suspension")
		}},
		"without one of our fields": {change: func(u *unstructured.Unstructured) {
			delete(schemaOf(u, spec...), "suspension")
		}},
		"with another field and the annotation": {change: func(u *unstructured.Unstructured) {
			later(u)
			u.SetAnnotations(map[string]string{tenant.AllowFieldRemovalAnnotation: "true"})
		}},
		"with another field and another value of the annotation": {func(u *unstructured.Unstructured) {
			later(u)
			u.SetAnnotations(map[string]string{tenant.AllowFieldRemovalAnnotation: "false"})
		}, "spec.later"},
		"with another field and of another project": {change: func(u *unstructured.Unstructured) {
			schemaOf(u, "properties", "spec")["properties"] = map[string]any{"landlord": map[string]any{"type": "string"}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			installed := definition(t, deploy.Definitions()["tenants.yaml"])
			c.change(installed)
			written, version, log := installOver(t, installed)
			replaced := slices.Contains(written, tenantsName)
			if want := c.kept == ""; replaced != want {
				t.Errorf("replaced: %v, want %v", replaced, want)
			}
			if replaced && version != "7" {
				t.Errorf("a definition that changed after the read is replaced: resource version %q", version)
			}
			if len(written) < len(deploy.Definitions())-1 {
				t.Errorf("only %v are written", written)
			}
			if c.kept == "" && log != "" || !strings.Contains(log, c.kept) {
				t.Errorf("log %q; want it to name %q", log, c.kept)
			}
		})
	}
}

// TestInstallCreates checks that InstallCRDs creates the missing definitions.
func TestInstallCreates(t *testing.T) {
	written, version, log := installOver(t, nil)
	if len(written) != len(deploy.Definitions()) || version != "" || log != "" {
		t.Errorf("written %v, version %q, log %q", written, version, log)
	}
}
