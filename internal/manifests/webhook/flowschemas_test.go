// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/internal/manifests/webhook"
)

const flowControl = "flowcontrol.apiserver.k8s.io"

// flowSchemaOptions returns options of a set whose controller maintains FlowSchemas.
func flowSchemaOptions(t *testing.T) webhook.Options {
	t.Helper()
	o := options(t)
	o.FlowSchemas = true
	return o
}

// TestFlowSchemas checks that the controller has the flag, the rights and the policy only with
// the option FlowSchemas.
func TestFlowSchemas(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]webhook.Options{"off": options(t), "on": flowSchemaOptions(t)} {
		t.Run(name, func(t *testing.T) {
			files, err := webhook.Generate(o)
			if err != nil {
				t.Fatal(err)
			}
			var values struct {
				FlowSchemas map[string]bool `json:"flowSchemas"`
			}
			if err := yaml.Unmarshal(files["values.yaml"], &values); err != nil {
				t.Fatal(err)
			}
			if len(values.FlowSchemas) != 1 || values.FlowSchemas["enabled"] != o.FlowSchemas {
				t.Errorf("values: %v", values.FlowSchemas)
			}
			for _, d := range documents[appsv1.Deployment](t, files["cluster/deployment.yaml"], "Deployment") {
				has := slices.Contains(d.Spec.Template.Spec.Containers[0].Args, "--flow-schemas")
				if has != (o.FlowSchemas && d.Name == "kubetenant-controller") {
					t.Errorf("%s has %q", d.Name, d.Spec.Template.Spec.Containers[0].Args)
				}
			}
			want := map[string]string{}
			if o.FlowSchemas {
				want = map[string]string{
					"kubetenant-controller flowschemas":                 "create delete list update watch",
					"kubetenant-controller prioritylevelconfigurations": "create list watch",
				}
			}
			if got := flowControlRights(t, files["cluster/accounts.yaml"]); !maps.Equal(got, want) {
				t.Errorf("rights %v, want %v", got, want)
			}
			if has := bytes.Contains(files["cluster/policies.yaml"], []byte(flowControl)); has != o.FlowSchemas {
				t.Errorf("policies name the API group: %v", has)
			}
			expectFinding(t, name, findingsAfter(t, o, func(map[string][]byte) {}), "")
		})
	}
}

// flowControlRights returns the verbs of each role and resource of the API group.
func flowControlRights(t *testing.T, file []byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, role := range documents[rbacv1.ClusterRole](t, file, "ClusterRole") {
		for _, r := range role.Rules {
			if slices.Contains(r.APIGroups, flowControl) {
				all[role.Name+" "+strings.Join(r.Resources, ",")] = strings.Join(r.Verbs, " ")
			}
		}
	}
	return all
}

// TestFlowSchemaRightsNeedThePolicy checks that validation reports rights without the policy, a
// changed policy, and additional rights.
func TestFlowSchemaRightsNeedThePolicy(t *testing.T) {
	t.Parallel()
	without, err := webhook.Generate(options(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(map[string][]byte)
		want   string
	}{
		"no policy": {
			func(files map[string][]byte) { files["cluster/policies.yaml"] = without["cluster/policies.yaml"] },
			"flowschemas.kubetenant.dev",
		},
		"no rights": {
			func(files map[string][]byte) { files["cluster/accounts.yaml"] = without["cluster/accounts.yaml"] },
			"ClusterRole kubetenant-controller: the field rules differs",
		},
		"a weaker policy": {
			func(files map[string][]byte) {
				files["cluster/policies.yaml"] = bytes.ReplaceAll(files["cluster/policies.yaml"],
					[]byte("matchingPrecedence >= 8000"), []byte("matchingPrecedence >= 0"))
			},
			"ValidatingAdmissionPolicy flowschemas.kubetenant.dev: the field spec differs",
		},
		"more rights": {
			func(files map[string][]byte) {
				files["cluster/accounts.yaml"] = bytes.ReplaceAll(files["cluster/accounts.yaml"],
					[]byte("verbs: [create, list, watch]"), []byte("verbs: [create, list, update, watch]"))
			},
			"ClusterRole kubetenant-controller: the field rules differs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			expectFinding(t, name, findingsAfter(t, flowSchemaOptions(t), c.change), c.want)
		})
	}
}

// TestStaticPolicyOfFlowSchemas checks that the static manifests contain the policy of FlowSchemas
// with the same rules as the policy in the cluster.
func TestStaticPolicyOfFlowSchemas(t *testing.T) {
	t.Parallel()
	o := flowSchemaOptions(t)
	o.StaticPolicies = true
	files, err := webhook.Generate(o)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(files["control-plane/policies/policies.yaml"], []byte("flowschemas.kubetenant.static.k8s.io")) {
		t.Error("the static policies lack the policy of FlowSchemas")
	}
	expectFinding(t, "static", findingsAfter(t, o, func(map[string][]byte) {}), "")
}

// Resources of the requests in the tests below.
func flows() schema.GroupVersionResource { return resourceOf(flowControl, "flowschemas") }

func levels() schema.GroupVersionResource {
	return resourceOf(flowControl, "prioritylevelconfigurations")
}

// flowMetadata returns metadata with the given value of the managed label. more contains additional
// fields, in pairs of name and value.
func flowMetadata(managed string, more ...any) map[string]any {
	metadata := map[string]any{}
	if managed != "" {
		metadata["labels"] = map[string]any{"kubetenant.dev/managed": managed}
	}
	for i := 0; i < len(more); i += 2 {
		metadata[more[i].(string)] = more[i+1]
	}
	return metadata
}

func flowSpec(precedence int64, level string) map[string]any {
	return map[string]any{
		"matchingPrecedence":         precedence,
		"priorityLevelConfiguration": map[string]any{"name": level},
	}
}

func levelSpec(kind string, shares int64) map[string]any {
	return map[string]any{"type": kind, "limited": map[string]any{"nominalConcurrencyShares": shares}}
}

// TestPolicyOfFlowSchemas checks that an attacker who controls the controller cannot change other
// FlowSchemas, exempt requests, or use the priority level of system components.
func TestPolicyOfFlowSchemas(t *testing.T) {
	t.Parallel()
	const (
		mine, level    = "kubetenant-tenant-acme", "kubetenant-tenants"
		named          = "may only write objects whose names begin with kubetenant-"
		kinds, limited = "may only write FlowSchemas, and create", "a matchingPrecedence of at least 8000"
		onlyLevel      = "may only create the PriorityLevelConfiguration kubetenant-tenants"
		owners         = "may not set owners and finalizers"
		relabeled      = "may only change the label kubetenant.dev/tenant"
	)
	const create, update, remove = admission.Create, admission.Update, admission.Delete
	ours, spec, old := flowMetadata("fair-use"), flowSpec(8000, level), flowSpec(8001, level)
	owner := []any{map[string]any{"kind": "ConfigMap", "name": "x"}}
	on, off := generatedSet(t, flowSchemaOptions(t)), generatedSet(t, options(t))
	for name, c := range map[string]struct {
		operation     admission.Operation
		resource      schema.GroupVersionResource
		subresource   string
		name          string
		was, is       map[string]any // metadata
		wasSpec, spec map[string]any
		denied        string
	}{
		"a FlowSchema": {create, flows(), "", mine, nil, ours, nil, spec, ""},
		"the FlowSchema of namespaces": {
			create,
			flows(),
			"",
			"kubetenant-namespaces",
			nil,
			ours,
			nil,
			flowSpec(8500, level),
			"",
		},
		"another priority level":   {create, flows(), "", mine, nil, ours, nil, flowSpec(8000, "kubetenant-gold"), ""},
		"without the label":        {create, flows(), "", mine, nil, flowMetadata(""), nil, spec, named},
		"with another value":       {create, flows(), "", mine, nil, flowMetadata("tenant"), nil, spec, named},
		"with another name":        {create, flows(), "", "acme", nil, ours, nil, spec, named},
		"with the service's name":  {create, flows(), "", "kubetenant", nil, ours, nil, spec, named},
		"exempt":                   {create, flows(), "", mine, nil, ours, nil, flowSpec(8000, "exempt"), limited},
		"a level of the system":    {create, flows(), "", mine, nil, ours, nil, flowSpec(8000, "workload-high"), limited},
		"before system components": {create, flows(), "", mine, nil, ours, nil, flowSpec(7999, level), limited},
		"with an owner": {
			create,
			flows(),
			"",
			mine,
			nil,
			flowMetadata("fair-use", "ownerReferences", owner),
			nil,
			spec,
			owners,
		},
		"with a finalizer": {
			create,
			flows(),
			"",
			mine,
			nil,
			flowMetadata("fair-use", "finalizers", []any{"x.dev/y"}),
			nil,
			spec,
			owners,
		},

		"an update": {update, flows(), "", mine, ours, ours, flowSpec(1, "exempt"), spec, ""},
		"an update of an owned FlowSchema": {
			update,
			flows(),
			"",
			mine,
			flowMetadata("fair-use", "ownerReferences", owner),
			flowMetadata("fair-use", "ownerReferences", owner),
			old,
			spec,
			"",
		},
		"update of a foreign object":  {update, flows(), "", mine, flowMetadata(""), flowMetadata(""), old, spec, named},
		"update that adds the label":  {update, flows(), "", mine, flowMetadata(""), ours, spec, spec, named},
		"update without the label":    {update, flows(), "", mine, ours, flowMetadata(""), spec, spec, named},
		"update of upstream's object": {update, flows(), "", "system-nodes", ours, ours, old, spec, named},
		"update to exempt":            {update, flows(), "", mine, ours, ours, spec, flowSpec(8000, "exempt"), limited},
		"update to come first":        {update, flows(), "", mine, ours, ours, spec, flowSpec(1, level), limited},
		"update of a status":          {update, flows(), "status", mine, ours, ours, spec, spec, kinds},
		"a deletion":                  {remove, flows(), "", mine, ours, nil, flowSpec(1, "exempt"), nil, ""},
		"deletion of foreign object":  {remove, flows(), "", mine, flowMetadata(""), nil, spec, nil, named},
		"deletion of upstream object": {remove, flows(), "", "exempt", ours, nil, spec, nil, named},
		"deletion of service object":  {remove, flows(), "", "kubetenant", ours, nil, spec, nil, named},

		"the level": {create, levels(), "", level, nil, ours, nil, levelSpec("Limited", 100), ""},
		"the level without the label": {
			create,
			levels(),
			"",
			level,
			nil,
			flowMetadata(""),
			nil,
			levelSpec("Limited", 100),
			named,
		},
		"another level with the prefix": {
			create,
			levels(),
			"",
			"kubetenant-gold",
			nil,
			ours,
			nil,
			levelSpec("Limited", 100),
			onlyLevel,
		},
		"a level with all shares": {
			create,
			levels(),
			"",
			level,
			nil,
			ours,
			nil,
			levelSpec("Limited", 1000000),
			onlyLevel,
		},
		"an exempt level": {create, levels(), "", level, nil, ours, nil, levelSpec("Exempt", 100), onlyLevel},
		"a change of the level": {
			update,
			levels(),
			"",
			level,
			ours,
			ours,
			levelSpec("Limited", 100),
			levelSpec("Limited", 1),
			kinds,
		},
		"a deletion of the level": {remove, levels(), "", level, ours, nil, levelSpec("Limited", 100), nil, kinds},
		"a status of the level": {
			update,
			levels(),
			"status",
			level,
			ours,
			ours,
			levelSpec("Limited", 100),
			levelSpec("Limited", 100),
			kinds,
		},
		"another kind of the group": {create, resourceOf(flowControl, "others"), "", mine, nil, ours, nil, spec, kinds},
		"a FlowSchema elsewhere": {
			create,
			resourceOf("example.com", "flowschemas"),
			"",
			mine,
			nil,
			ours,
			nil,
			spec,
			relabeled,
		},
		"a namespace with the label": {create, resourceOf("", "namespaces"), "", mine, nil, ours, nil, spec, relabeled},
	} {
		t.Run(name, func(t *testing.T) {
			a := attempt{
				operation:   c.operation,
				resource:    c.resource,
				subresource: c.subresource,
				name:        c.name,
				oldMetadata: c.was,
				metadata:    c.is,
				oldSpec:     c.wasSpec,
				spec:        c.spec,
				by:          &user.DefaultInfo{Name: "system:serviceaccount:" + own + ":kubetenant-controller"},
			}
			expectDenial(t, name, on.denialMessages(t, &a), c.denied)
			if len(off.denialMessages(t, &a)) == 0 {
				t.Error("not denied without the option")
			}
			a.by = &user.DefaultInfo{Name: "admin", Groups: []string{"system:masters"}}
			expectDenial(t, name+", by an administrator", on.denialMessages(t, &a), "")
		})
	}
}
