package migrate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/cmd/internal/cli/migrate"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// oil is a Capsule Tenant of a spec, with two namespaces.
func oil(spec string) string {
	return "apiVersion: capsule.clastix.io/v1beta2\nkind: Tenant\nmetadata: { name: oil }\nspec: { ingressOptions: { allowWildcardHostnames: true }, " + spec + " }\nstatus: { namespaces: [a, b] }\n"
}

// inA returns the documents of a file that stand in the namespace a or in none, as JSON without kind and version.
func inA(t *testing.T, text string) (all []string) {
	t.Helper()
	for document := range strings.SplitSeq(text, "---\n") {
		o := map[string]any{}
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatal(err)
		}
		metadata, _ := o["metadata"].(map[string]any)
		if len(o) == 0 || metadata["namespace"] == "b" {
			continue
		}
		kind, name := o["kind"], metadata["name"]
		for _, key := range []string{"apiVersion", "kind", "metadata"} {
			delete(o, key)
		}
		rest, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		json, err := yaml.YAMLToJSON(rest)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s %s %s", kind, name, json))
	}
	return all
}

// TestCapsuleObjects: owners and others are bound in each of the tenant's namespaces, what limits a namespace stands in
// each, and what limits the tenant stands once with the smaller of two numbers.
func TestCapsuleObjects(t *testing.T) {
	const ref = `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},"subjects":[%s]}`
	bound := func(name, role, subject string) string {
		return "RoleBinding " + name + " {" + fmt.Sprintf(ref, role, subject)
	}
	const alice = `{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"alice"}`
	for name, c := range map[string]struct {
		spec       string
		want, left []string
	}{
		"an owner":             {`owners: [ { kind: User, name: alice } ]`, []string{bound("owner-0-admin", "admin", alice)}, nil},
		"an owner's roles":     {`owners: [ { kind: User, name: alice, clusterRoles: [ view, capsule-namespace-deleter, edit ] } ]`, []string{bound("owner-0-view", "view", alice), bound("owner-0-edit", "edit", alice)}, nil},
		"an owner of no roles": {`owners: [ { kind: User, name: alice, clusterRoles: [] } ]`, nil, nil},
		"a service account":    {`owners: [ { kind: ServiceAccount, name: "system:serviceaccount:ci:robot" } ]`, []string{bound("owner-0-admin", "admin", `{"kind":"ServiceAccount","name":"robot","namespace":"ci"}`)}, nil},
		"no service account":   {`owners: [ { kind: ServiceAccount, name: robot }, { kind: User, name: alice } ]`, []string{bound("owner-1-admin", "admin", alice)}, []string{"the owner robot is no service account"}},
		"another binding":      {`additionalRoleBindings: [ { clusterRoleName: view, subjects: [ { kind: Group, name: dev } ] } ]`, []string{bound("additional-0-view", "view", `{"kind":"Group","name":"dev"}`)}, nil},
		"a quota of each":      {`resourceQuotas: { scope: Namespace, items: [ { hard: { pods: "1" } }, { hard: { pods: "2" } } ] }`, []string{`ResourceQuota tenant-0 {"spec":{"hard":{"pods":"1"}}}`, `ResourceQuota tenant-1 {"spec":{"hard":{"pods":"2"}}}`}, nil},
		"a quota of all":       {`resourceQuotas: { items: [ { hard: { pods: "2", services: "1" } }, { hard: { pods: "10" } }, { hard: { pods: "1" } } ] }`, []string{`TenantQuota oil {"spec":{"hard":{"pods":"1","services":"1"},"tenant":"oil"}}`}, nil},
		"a quota of some pods": {`resourceQuotas: { scope: Tenant, items: [ { hard: { pods: "1" }, scopes: [ BestEffort ] }, { hard: { pods: "2" }, scopeSelector: {} } ] }`, nil, []string{"spec.resourceQuotas: an item for some pods only", "spec.resourceQuotas: an item for some pods only"}},
		"limits":               {`limitRanges: { items: [ { limits: [ { type: Pod } ] } ] }`, []string{`LimitRange tenant-0 {"spec":{"limits":[{"type":"Pod"}]}}`}, nil},
		"network policies":     {`networkPolicies: { items: [ { podSelector: {}, policyTypes: [ Ingress ] } ] }`, []string{`NetworkPolicy tenant-0 {"spec":{"podSelector":{},"policyTypes":["Ingress"]}}`}, nil},
		"what is not said":     {`cordoned: false, preventDeletion: true`, nil, []string{"spec.cordoned", "spec.preventDeletion"}},
	} {
		r := converted(t, "capsule", oil(c.spec))
		text := r.Files["oil.yaml"]
		same(t, name, c.want, inA(t, text))
		if n := strings.Count(text, "namespace: b\n"); n != strings.Count(text, "namespace: a\n") {
			t.Errorf("%s: %d objects in the other namespace\n%s", name, n, text)
		}
		same(t, name+": left", told(c.left...), slices.Compact(r.Left))
		same(t, name+": next", []string{"kubectl tenant adopt a b --tenant oil --dry-run=server", "kubectl apply -f oil.yaml"}, r.Next)
		if config, is := r.Files["tenancy.yaml"]; is {
			t.Errorf("%s: a configuration\n%s", name, config)
		}
	}
}

// told returns what is left out of the tenant oil.
func told(left ...string) (all []string) {
	for _, text := range left {
		all = append(all, "tenant oil: "+text)
	}
	return slices.Compact(all)
}

// TestCapsuleAdmission: what objects may ask for becomes rules of the tenant; what cannot be said allows nothing.
func TestCapsuleAdmission(t *testing.T) {
	const unsaid = ": list what is meant"
	for name, c := range map[string]struct {
		spec, want string
		left       []string
	}{
		"node selector":         {`nodeSelector: { pool: oil }`, `placement: defaults: {nodeSelector: {pool: oil}}`, nil},
		"priority classes":      {`priorityClasses: { allowed: [ high ] }`, `placement: priorityClassName: {allowed: [high], policy: AllowListed}`, nil},
		"a default":             {`priorityClasses: { allowed: [ high ], default: low }`, `placement: priorityClassName: {allowed: [high, low], policy: AllowListed}`, told("spec.priorityClasses.default: allowed, and put into nothing")},
		"runtime classes":       {`runtimeClasses: { allowedRegex: "^kata" }`, `placement: runtimeClassName: {policy: Forbid}`, told("spec.runtimeClasses.allowedRegex" + unsaid)},
		"storage classes":       {`storageClasses: { allowed: [ fast, slow, fast ] }`, `policy: storageClasses: {allowed: [fast, slow], policy: AllowListed}`, nil},
		"a selector":            {`storageClasses: { matchExpressions: [ { key: tier, operator: Exists } ] }`, `policy: storageClasses: {policy: Forbid}`, told("spec.storageClasses: a selector; list the names it selects")},
		"registries":            {`containerRegistries: { allowed: [ Quay.io/oil, nginx ] }`, `policy: imageRegistries: {allowed: [quay.io/oil], policy: AllowListed}`, told("spec.containerRegistries: nginx: " + v1alpha1.PolicyEntryProblem("imageRegistries", "nginx"))},
		"pull policies":         {`imagePullPolicies: [ Always ]`, `policy: imagePullPolicies: {allowed: [Always], policy: AllowListed}`, nil},
		"ingress classes":       {`ingressOptions: { allowWildcardHostnames: true, allowedClasses: { allowed: [ public ] } }`, `policy: ingressClasses: {allowed: [public], policy: AllowListed}`, nil},
		"hosts":                 {`ingressOptions: { allowedHostnames: { allowed: [ oil.example.com, "*.oil.example.com" ] } }`, `policy: hosts: {allowed: [oil.example.com], policy: AllowListed}`, told("spec.ingressOptions.allowedHostnames: *.oil.example.com: one host there, all beneath it here; list them")},
		"wildcards":             {`ingressOptions: {}`, "", told("hosts with a wildcard, which Capsule refuses: list the tenant's in admission.policy.hosts")},
		"gateway classes":       {`gatewayOptions: { allowedClasses: { allowed: [ shared ] } }`, `policy: gatewayClasses: {allowed: [shared], policy: AllowListed}`, nil},
		"services":              {`serviceOptions: { allowedServices: { nodePort: false, externalName: true } }`, `policy: serviceTypes: {allowed: [LoadBalancer, ExternalName], policy: AllowListed}`, nil},
		"no services":           {`serviceOptions: { allowedServices: { nodePort: false, externalName: false, loadBalancer: false } }`, `policy: serviceTypes: {policy: Forbid}`, nil},
		"all services":          {`serviceOptions: { allowedServices: { nodePort: true } }`, "", nil},
		"options that are none": {`serviceOptions: { externalIPs: {} }, gatewayOptions: { x: {} }`, "", told("spec.gatewayOptions.x", "spec.serviceOptions.externalIPs")},
	} {
		text := oil(c.spec)
		if strings.Contains(c.spec, "ingressOptions") {
			text = strings.Replace(text, "ingressOptions: { allowWildcardHostnames: true }, ", "", 1)
		}
		r := converted(t, "capsule", text)
		got := ""
		if file := r.Files["tenancy.yaml"]; file != "" {
			got = tenants(t, file)
		}
		same(t, name, c.want, got)
		same(t, name+": left", c.left, r.Left)
		if next := "put what tenancy.yaml says of admission into the configuration"; slices.Contains(r.Next, next) != (got != "") {
			t.Errorf("%s: next %q", name, r.Next)
		}
	}
}

// tenants returns the settings of a configuration that is only about the tenant oil's admission.
func tenants(t *testing.T, file string) string {
	t.Helper()
	var c struct {
		APIVersion, Kind string
		Admission        map[string]map[string][]map[string]any
	}
	if err := yaml.UnmarshalStrict([]byte(file), &c); err != nil || c.Kind != v1alpha1.KindTenancyConfiguration || c.APIVersion != "kubetenant.dev/v1alpha1" {
		t.Fatalf("%v\n%s", err, file)
	}
	var all []string
	for plugin, of := range c.Admission {
		for _, rules := range of["tenants"] {
			same(t, "tenants", any([]any{"oil"}), rules["tenants"])
			delete(rules, "tenants")
			for field, rule := range rules {
				all = append(all, plugin+": "+field+": "+flow(rule))
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// flow returns a value on one line.
func flow(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var all []string
		for key, value := range v {
			all = append(all, key+": "+flow(value))
		}
		slices.Sort(all)
		return "{" + strings.Join(all, ", ") + "}"
	case []any:
		var all []string
		for _, value := range v {
			all = append(all, flow(value))
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	return fmt.Sprint(v)
}

// TestCapsuleFiles: a file may hold several Tenants, and Lists of them; what is none, or has no name or namespaces here, is
// said.
func TestCapsuleFiles(t *testing.T) {
	const list = "apiVersion: v1\nkind: List\nitems:\n" +
		"- { apiVersion: capsule.clastix.io/v1beta1, kind: Tenant, metadata: { name: gas }, spec: { ingressOptions: { allowWildcardHostnames: true }, nodeSelector: { pool: gas } } }\n" +
		"- { apiVersion: v1, kind: ConfigMap, metadata: { name: x } }\n" +
		"- { apiVersion: example.com/v1, kind: Tenant, metadata: { name: x } }\n" +
		"- { apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: { name: system }, status: { namespaces: [ a ] } }\n" +
		"- { apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: { name: all }, status: { namespaces: [ a ] } }\n"
	r := converted(t, "capsule", oil("nodeSelector: { pool: oil }")+"---\n"+list)
	same(t, "left", []string{
		"tenant gas: the status names no namespaces: get the Tenant from the cluster, with its status",
		"document 2: a ConfigMap of v1",
		"document 3: a Tenant of example.com/v1",
		"tenant system: its name is none here",
		"tenant all: its name is none here",
	}, r.Left)
	for _, next := range r.Next {
		if strings.Contains(next, "gas") || strings.Contains(next, "system") {
			t.Errorf("next: %s", next)
		}
	}
	if config := r.Files["tenancy.yaml"]; strings.Count(config, "pool: oil") != 1 || strings.Count(config, "pool: gas") != 1 {
		t.Errorf("a configuration of both:\n%s", config)
	}
	for text, want := range map[string]string{
		"kind: [":                         "document 0: ",
		oil("owners: { kind: User }"):     "tenant oil: ",
		oil("storageClasses: [ fast ]"):   "tenant oil: ",
		"kind: Tenant\nstatus: [ a, b ]":  "document 0: ",
		oil("") + "---\nkind: [\n---\n{}": "document 1: ",
	} {
		if _, err := migrate.From()["capsule"]([]byte(text), migrate.Options{}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
