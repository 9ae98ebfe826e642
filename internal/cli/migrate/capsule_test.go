// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/cluster/template"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/migrate"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// oil returns a Capsule Tenant named oil, with the given spec and the namespaces a and b.
func oil(spec string) string {
	return "apiVersion: capsule.clastix.io/v1beta2\nkind: Tenant\nmetadata: { name: oil }\n" +
		"spec: { ingressOptions: { allowWildcardHostnames: true }, " + spec + " }\nstatus: { namespaces: [a, b] }\n"
}

// oilReports returns the given reports, with the location of the tenant oil.
func oilReports(left ...string) (all []string) {
	for _, text := range left {
		all = append(all, "tenant oil: "+text)
	}
	return all
}

// flow returns a value as one line of JSON without quotes.
func flow(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), `"`, "")
}

// specOf returns the spec of the only object in a file, without the fields that every Tenant
// has.
func specOf(t *testing.T, text string) string {
	t.Helper()
	var object struct{ Spec map[string]any }
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"id", "deletionPolicy"} {
		delete(object.Spec, key)
	}
	return flow(t, object.Spec)
}

const (
	tenantsFile   = "cluster/2-tenants.yaml"
	templatesFile = "cluster/1-namespacetemplates.yaml"
	adoptedFile   = "after-adoption/tenants.yaml"
	configFile    = "configuration/tenancy.yaml"
	makesNone     = "spec.owners[0]: the owner could create namespaces; if it may also delete them, add it to spec.admins"
)

// TestCapsuleTenant checks that the new Tenant has exactly the settings of the Capsule Tenant
// that can be converted.
func TestCapsuleTenant(t *testing.T) {
	const alice, dev = `{apiGroup:rbac.authorization.k8s.io,kind:User,name:alice}`,
		`{apiGroup:rbac.authorization.k8s.io,kind:Group,name:dev}`
	for name, c := range map[string]struct {
		spec, want string
		left       []string
	}{
		"owner with the default roles": {`owners: [ { kind: User, name: alice } ]`, `{admins:[` + alice + `]}`, nil},
		"owner that may not delete namespaces": {
			`owners: [ { kind: User, name: alice, clusterRoles: [ admin ] } ]`,
			`{bindings:[{clusterRole:admin,subjects:[` + alice + `]}]}`,
			[]string{makesNone},
		},
		"owner without the role admin": {
			`owners: [ { kind: User, name: alice, clusterRoles: [ view, capsule-namespace-deleter ] } ]`,
			`{bindings:[{clusterRole:view,subjects:[` + alice + `]}]}`,
			[]string{
				"spec.owners[0].clusterRoles[1]: only spec.admins may create and delete namespaces of a tenant; if the owner may " +
					"be an admin, add it there", makesNone,
			},
		},
		"admin with another role": {
			`owners: [ { kind: User, name: alice, clusterRoles: [ admin, capsule-namespace-deleter, edit ] } ]`,
			`{admins:[` + alice + `],bindings:[{clusterRole:edit,subjects:[` + alice + `]}]}`,
			nil,
		},
		"owner without roles": {`owners: [ { kind: User, name: alice, clusterRoles: [] } ]`, `{}`, []string{makesNone}},
		"bindings of a role are merged": {
			`additionalRoleBindings: [ { clusterRoleName: view, subjects: [ { kind: Group, name: dev } ] }, ` +
				`{ clusterRoleName: view, subjects: [ { kind: User, name: alice }, { kind: Group, name: dev } ] } ]`,
			`{bindings:[{clusterRole:view,subjects:[` + dev + `,` + alice + `]}]}`,
			nil,
		},
		"invalid role": {
			`additionalRoleBindings: [ { clusterRoleName: a/b, subjects: [ { kind: Group, name: dev } ] } ]`,
			`{}`,
			[]string{
				"spec.additionalRoleBindings[0].subjects[0]: the name of the ClusterRole is not valid; correct it",
				"spec.additionalRoleBindings[0].clusterRoleName: none of its subjects was converted; see the messages about them",
			},
		},
		"two quotas for a resource": {
			`resourceQuotas: { items: [ { hard: { pods: "2", services: "1" } }, { hard: { pods: 10 } }, ` +
				`{ hard: { pods: "1" } } ] }`,
			`{quota:{pods:1,services:1}}`,
			nil,
		},
		"quota with scopes": {
			`resourceQuotas: { items: [ { hard: { pods: "1" }, scopes: [ BestEffort ] } ] }`,
			`{}`,
			[]string{
				"spec.resourceQuotas.items[0]: a limit for selected Pods can only apply to a namespace; use a ResourceQuota in a " +
					"NamespaceTemplate",
			},
		},
		"protected":    {`preventDeletion: true`, `{}`, nil},
		"cordoned":     {`cordoned: true`, `{access:ReadOnly}`, nil},
		"not cordoned": {`cordoned: false, preventDeletion: false`, `{}`, nil},
		"namespaces": {
			`namespaceOptions: { quota: 3, additionalMetadata: { labels: { cost: "4" } } }`,
			`{namespaces:{labels:{cost:4},max:3}}`,
			nil,
		},
		"pod security label": {
			`namespaceOptions: { additionalMetadataList: [ { labels: { pod-security.kubernetes.io/enforce: restricted } } ] }`,
			`{namespaces:{podSecurity:restricted}}`,
			nil,
		},
		"invalid number of namespaces": {
			`namespaceOptions: { quota: 70000 }`,
			`{}`,
			[]string{
				"spec.namespaceOptions.quota: a Tenant can limit its namespaces to a number from 0 to 10000; set " +
					"spec.namespaces.max",
			},
		},
		"a reserved label": {
			`namespaceOptions: { additionalMetadata: { labels: { kubetenant.dev/tenant: gas } } }`,
			`{}`,
			[]string{
				`spec.namespaceOptions.additionalMetadata.labels["kubetenant.dev/tenant"]: the label is reserved, or has no ` +
					"effect without Capsule; remove it from the file",
			},
		},
		"a template in a label": {
			`namespaceOptions: { additionalMetadata: { labels: { a: "{{ tenant.name }}" } } }`,
			`{}`,
			[]string{
				"spec.namespaceOptions.additionalMetadata.labels.a: it is not a valid label, and Capsule's templates are not " +
					"supported; set spec.namespaces.labels",
			},
		},
		"prefix required": {
			`forceTenantPrefix: true`,
			`{namespaces:{prefix:Required}}`,
			[]string{
				`spec.forceTenantPrefix: new namespaces must begin with "oil--" instead of "oil-"; existing ones keep their ` +
					`names, and the condition Ready reports OtherNames`,
			},
		},
		"prefix not required": {
			`forceTenantPrefix: false`,
			`{}`,
			[]string{
				"spec.forceTenantPrefix: a Tenant cannot override the configured rule for namespace names; if tenants may choose " +
					"names, set admission.namespace.namespacePrefix to None",
			},
		},
		"fields of the wrong type": {
			`owners: { kind: User }, cordoned: "true"`,
			`{}`,
			[]string{
				"spec.cordoned: the field or its value is not supported; look up its effect and set it up by hand",
				"spec.owners.kind: the field or its value is not supported; look up its effect and set it up by hand",
			},
		},
		"keys that look like another path": {
			`"owners[0].name": alice, "cordoned.x": { y: true }`,
			`{}`,
			[]string{
				`spec["cordoned.x"]: the field or its value is not supported; look up its effect and set it up by hand`,
				`spec["owners[0].name"]: the field or its value is not supported; look up its effect and set it up by hand`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := converted(t, "capsule", oil(c.spec))
			same(t, name, strings.NewReplacer("namespaces:{}", "", ",}", "}").Replace(c.want),
				strings.NewReplacer(",namespaces:{}", "", "namespaces:{},", "", "namespaces:{}", "").Replace(
					specOf(t, r.Files[tenantsFile]),
				))
			same(t, name+": left", oilReports(c.left...), r.Unconverted)
			checkFiles(t, r.Files)
		})
	}
}

// TestCapsuleSubjects checks that subjects that a tenant may not bind are reported with a
// reason. Service accounts of the tenant are bound only in the file for after the adoption,
// because the server rejects them before.
func TestCapsuleSubjects(t *testing.T) {
	const unsure, foreign = "it is unknown whether namespace ", " belongs to the tenant; use a service account from a " +
		"namespace of the tenant"
	for name, c := range map[string]struct{ subject, why, adopted string }{
		"service account of the tenant": {
			`{ kind: ServiceAccount, name: "system:serviceaccount:a:robot" }`,
			"",
			`{kind:ServiceAccount,name:robot,namespace:a}`,
		},
		"service account as a user": {
			`{ kind: User, name: "system:serviceaccount:b:robot" }`, "", `{kind:ServiceAccount,name:robot,namespace:b}`,
		},
		"service accounts of a namespace": {
			`{ kind: Group, name: "system:serviceaccounts:a" }`,
			"",
			`{apiGroup:rbac.authorization.k8s.io,kind:Group,name:system:serviceaccounts:a}`,
		},
		"service account of another namespace": {
			`{ kind: ServiceAccount, name: "system:serviceaccount:ci:robot" }`, unsure + "ci" + foreign, "",
		},
		"service account of a system namespace": {
			`{ kind: User, name: "system:serviceaccount:kube-system:robot" }`, unsure + "kube-system" + foreign, "",
		},
		"invalid service account": {
			`{ kind: ServiceAccount, name: robot }`,
			"the name is not that of a service account (system:serviceaccount:<namespace>:<name>); correct it",
			"",
		},
		"service accounts of another namespace": {
			`{ kind: Group, name: "system:serviceaccounts:ci" }`,
			"the group contains service accounts outside the tenant's namespaces; use service accounts of the tenant",
			"",
		},
		"all service accounts": {
			`{ kind: Group, name: "system:serviceaccounts" }`, "the group is reserved; use a group of the tenant", "",
		},
		"all callers": {
			`{ kind: Group, name: "system:authenticated" }`, "the group is reserved; use a group of the tenant", "",
		},
		"the cluster's admins": {
			`{ kind: Group, name: "kubeadm:cluster-admins" }`, "the group is reserved; use a group of the tenant", "",
		},
		"callers of another tenant": {
			`{ kind: Group, name: "tenant:gas" }`, "the group is reserved; use a group of the tenant", "",
		},
		"group of Capsule's users": {
			`{ kind: Group, name: capsule.clastix.io }`,
			"the group contains the Capsule users of all tenants; use a group of the tenant",
			"",
		},
		"newer group of Capsule's users": {
			`{ kind: Group, name: projectcapsule.dev }`,
			"the group contains the Capsule users of all tenants; use a group of the tenant",
			"",
		},
		"reserved user name": {
			`{ kind: User, name: "system:kube-scheduler" }`,
			"the user name is reserved for the cluster; use a user of the tenant",
			"",
		},
		"white space": {`{ kind: User, name: " alice" }`, "the name is not valid; correct it", ""},
		"no name":     {`{ kind: User }`, "the name is not valid; correct it", ""},
		"another kind": {
			`{ kind: Robot, name: x }`, "the subject is not a user, a group or a service account; correct it", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := converted(t, "capsule", oil(`owners: [ `+c.subject+` ]`))
			var left []string
			if c.why != "" {
				left = oilReports("spec.owners[0]: " + c.why)
			}
			same(t, name+": left", left, r.Unconverted)
			if tenants := r.Files[tenantsFile]; strings.Contains(tenants, "admins") || strings.Contains(tenants, "bindings") {
				t.Errorf("the Tenant binds a role before the adoption:\n%s", tenants)
			}
			if adopted, ok := r.Files[adoptedFile]; ok != (c.adopted != "") ||
				ok && !strings.Contains(specOf(t, adopted), "admins:["+c.adopted+"]") {
				t.Errorf("after the adoption: %s", adopted)
			}
			if apply := "kubectl apply -f after-adoption/"; slices.Contains(r.Next, apply) != (c.adopted != "") {
				t.Errorf("next: %q", r.Next)
			}
		})
	}
}

// TestCapsuleRoleAnnotations checks that owners in v1beta1 whose roles are in annotations do not
// become admins.
func TestCapsuleRoleAnnotations(t *testing.T) {
	text := strings.NewReplacer("v1beta2", "v1beta1", "name: oil", "name: oil, annotations: "+
		"{ clusterrolenames.capsule.clastix.io/user.alice: view }, labels: { capsule.clastix.io/cordon: enabled }").
		Replace(oil(`owners: [ { kind: User, name: alice } ]`))
	r := converted(t, "capsule", text)
	if tenants := r.Files[tenantsFile]; strings.Contains(tenants, "alice") ||
		!strings.Contains(tenants, "access: ReadOnly") {
		t.Errorf("unexpected Tenant:\n%s", tenants)
	}
	if !slices.ContainsFunc(r.Unconverted, func(line string) bool {
		return strings.HasPrefix(line, "tenant oil: spec.owners[0]: its ClusterRoles are in an annotation")
	}) {
		t.Errorf("left: %q", r.Unconverted)
	}
}

// objectsOf returns the objects of the only NamespaceTemplate in a file.
func objectsOf(t *testing.T, text string) (all []string) {
	t.Helper()
	stored := &v1alpha1.NamespaceTemplate{}
	if err := yaml.UnmarshalStrict([]byte(text), stored); err != nil {
		t.Fatal(err)
	}
	parsed, err := template.Parse(stored)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range parsed.Objects {
		name, _ := object["metadata"].(map[string]any)["name"].(string)
		all = append(all, name+" "+flow(t, object["spec"]))
	}
	return all
}

// TestCapsuleTemplate checks that the NamespaceTemplate of the Tenant contains the objects that
// Capsule created in each namespace. Selectors have the tenant label of this project instead of
// Capsule's. An object is either converted completely or reported.
func TestCapsuleTemplate(t *testing.T) {
	const untranslated = " has no equivalent and selects nothing without Capsule; " +
		"correct the selector in cluster/1-namespacetemplates.yaml"
	from := func(selector string) string {
		return `networkPolicies: { items: [ { podSelector: {}, ingress: [ { from: [ { namespaceSelector: ` + selector +
			` } ] } ] } ] }`
	}
	policy := func(selector string) string {
		return `tenant-network-0 {ingress:[{from:[{namespaceSelector:` + selector + `}]}],podSelector:{}}`
	}
	const at = "spec.networkPolicies.items[0].ingress[0].from[0].namespaceSelector."
	for name, c := range map[string]struct {
		spec       string
		want, left []string
	}{
		"limits": {
			`limitRanges: { items: [ { limits: [ { type: Pod } ] } ] }`, []string{`tenant-limits-0 {limits:[{type:Pod}]}`}, nil,
		},
		"quota for each namespace": {
			`resourceQuotas: { scope: Namespace, items: [ { hard: { pods: "1" } }, { hard: { pods: "2" }, ` +
				`scopes: [ BestEffort ] } ] }`,
			[]string{`tenant-quota-0 {hard:{pods:1}}`, `tenant-quota-1 {hard:{pods:2},scopes:[BestEffort]}`},
			nil,
		},
		"tenant label": {
			from(`{ matchLabels: { capsule.clastix.io/tenant: oil } }`),
			[]string{policy(`{matchLabels:{kubetenant.dev/tenant:oil}}`)},
			nil,
		},
		"newer tenant label": {
			from(`{ matchLabels: { projectcapsule.dev/tenant: oil, a: b } }`),
			[]string{policy(`{matchLabels:{a:b,kubetenant.dev/tenant:oil}}`)},
			nil,
		},
		"tenant label in an expression": {
			from(`{ matchExpressions: [ { key: capsule.clastix.io/tenant, operator: In, values: [ oil, gas ] } ] }`),
			[]string{policy(`{matchExpressions:[{key:kubetenant.dev/tenant,operator:In,values:[oil,gas]}]}`)},
			nil,
		},
		"label of any tenant": {
			from(`{ matchExpressions: [ { key: capsule.clastix.io/tenant, operator: Exists } ] }`),
			[]string{
				policy(`{matchExpressions:[{key:kubetenant.dev/tenant,operator:Exists},{key:kubetenant.dev/tenant,operator:NotIn,` +
					`values:[system]}]}`),
			},
			nil,
		},
		"Pods with the tenant label": {
			`networkPolicies: { items: [ { podSelector: { matchLabels: { capsule.clastix.io/tenant: oil } } } ] }`,
			[]string{`tenant-network-0 {podSelector:{matchLabels:{kubetenant.dev/tenant:oil}}}`},
			nil,
		},
		"label of the system tenant": {
			from(`{ matchLabels: { capsule.clastix.io/tenant: system } }`),
			[]string{policy(`{matchLabels:{capsule.clastix.io/tenant:system}}`)},
			[]string{at + `matchLabels: the label "capsule.clastix.io/tenant"` + untranslated},
		},
		"two tenant labels": {
			from(`{ matchLabels: { capsule.clastix.io/tenant: oil, projectcapsule.dev/tenant: gas } }`),
			[]string{policy(`{matchLabels:{kubetenant.dev/tenant:oil,projectcapsule.dev/tenant:gas}}`)},
			[]string{at + `matchLabels: the label "projectcapsule.dev/tenant"` + untranslated},
		},
		"another label of Capsule": {
			from(`{ matchExpressions: [ { key: capsule.clastix.io/x, operator: Exists } ] }`),
			[]string{policy(`{matchExpressions:[{key:capsule.clastix.io/x,operator:Exists}]}`)},
			[]string{at + `matchExpressions: the label "capsule.clastix.io/x"` + untranslated},
		},
		"unknown field": {
			`networkPolicies: { items: [ { podSelector: {}, audit: x } ] }`,
			nil,
			[]string{
				`spec.networkPolicies.items[0]: it is not a valid NetworkPolicy (unknown field "spec.audit"); add it to a ` +
					"NamespaceTemplate by hand",
			},
		},
		"placeholder": {
			`networkPolicies: { items: [ { podSelector: { matchLabels: { a: "${tenant}" } } } ] }`,
			nil,
			[]string{
				"spec.networkPolicies.items[0]: ${tenant} and ${namespace} would be replaced; write the NetworkPolicy by hand",
			},
		},
		"negative limit": {
			`resourceQuotas: { scope: Namespace, items: [ { hard: { pods: "-1" } } ] }`,
			nil,
			[]string{"spec.resourceQuotas.items[0]: a limit is negative; correct it"},
		},
		"unknown scope": {
			`resourceQuotas: { scope: Cluster, items: [ { hard: { pods: "1" } } ] }`,
			nil,
			[]string{"spec.resourceQuotas: the scope must be Tenant or Namespace; correct it"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := converted(t, "capsule", oil(c.spec))
			text, ok := r.Files[templatesFile]
			var got []string
			if ok {
				got = objectsOf(t, text)
			}
			same(t, name, c.want, got)
			same(t, name+": left", oilReports(c.left...), r.Unconverted)
			if named := strings.Contains(r.Files[tenantsFile], "- oil-capsule\n"); named != ok {
				t.Errorf("the Tenant names a template: %t, want %t", named, ok)
			}
			checkFiles(t, r.Files)
		})
	}
}

// TestCapsuleManyObjects checks that a template contains at most as many objects as its
// CustomResourceDefinition allows, and that the remaining objects are reported.
func TestCapsuleManyObjects(t *testing.T) {
	r := converted(t, "capsule",
		oil(`limitRanges: { items: [ `+strings.Repeat(`{ limits: [ { type: Pod } ] }, `, 33)+` ] }`))
	if n := len(objectsOf(t, r.Files[templatesFile])); n != 32 {
		t.Errorf("%d objects", n)
	}
	same(
		t,
		"left",
		oilReports(
			"spec.limitRanges.items[32]: a NamespaceTemplate has at most 32 objects; create another one",
		),
		r.Unconverted,
	)
}

// TestCapsuleAdmission checks that allowed values become policy rules for the tenant. A value
// that a rule cannot express is not allowed.
func TestCapsuleAdmission(t *testing.T) {
	const unsupported = ": regular expressions are not supported; list the names that it matches"
	for name, c := range map[string]struct {
		spec, want string
		left       []string
	}{
		"node selector": {`nodeSelector: { pool: oil }`, `placement.defaults {nodeSelector:{pool:oil}}`, nil},
		"priority classes": {
			`priorityClasses: { allowed: [ high ] }`, `placement.priorityClassName {allowed:[high],policy:AllowListed}`, nil,
		},
		"default class": {
			`priorityClasses: { allowed: [ high ], default: low }`,
			`placement.priorityClassName {allowed:[high,low],policy:AllowListed}`,
			[]string{
				"spec.priorityClasses.default: the name is allowed, but is not the default for objects without one; use a " +
					"mutating admission policy",
			},
		},
		"runtime classes": {
			`runtimeClasses: { allowedRegex: "^kata" }`,
			`placement.runtimeClassName {policy:Forbid}`,
			[]string{"spec.runtimeClasses.allowedRegex" + unsupported},
		},
		"storage classes": {
			`storageClasses: { allowed: [ slow, fast, slow ] }`,
			`policy.storageClasses {allowed:[fast,slow],policy:AllowListed}`,
			nil,
		},
		"empty list": {`storageClasses: {}`, `policy.storageClasses {policy:Forbid}`, nil},
		"label selector": {
			`storageClasses: { matchExpressions: [ { key: tier, operator: Exists } ] }`,
			`policy.storageClasses {policy:Forbid}`,
			[]string{"spec.storageClasses.matchExpressions: selecting classes by label is not supported; list the names of " +
				"the classes"},
		},
		"registries": {
			`containerRegistries: { allowed: [ Quay.io/oil, nginx ] }`,
			`policy.imageRegistries {allowed:[quay.io/oil],policy:AllowListed}`,
			[]string{
				`spec.containerRegistries.allowed[1]: "nginx" is not allowed, because it ` +
					configv1alpha1.PolicyEntryProblem("imageRegistries", "nginx") + "; correct it",
			},
		},
		"placeholder": {
			`containerRegistries: { allowed: [ "quay.io/{tenant}" ] }`,
			`policy.imageRegistries {policy:Forbid}`,
			[]string{
				"spec.containerRegistries.allowed[0]: {tenant} would be replaced by the name of the tenant; use the name itself",
			},
		},
		"pull policies": {
			`imagePullPolicies: [ Always ]`, `policy.imagePullPolicies {allowed:[Always],policy:AllowListed}`, nil,
		},
		"ingress classes": {
			`ingressOptions: { allowWildcardHostnames: true, allowedClasses: { allowed: [ public ] } }`,
			`policy.ingressClasses {allowed:[public],policy:AllowListed}`,
			nil,
		},
		"hosts": {
			`ingressOptions: { allowedHostnames: { allowed: [ oil.example.com, "*.oil.example.com" ] } }`,
			`policy.hosts {allowed:[oil.example.com],policy:AllowListed}`,
			[]string{
				"spec.ingressOptions.allowedHostnames.allowed[1]: *.oil.example.com is one host in Capsule, but matches all " +
					"hosts below it in kubetenant; list the hosts",
			},
		},
		"wildcards": {
			`ingressOptions: {}`,
			"",
			[]string{
				"spec.ingressOptions.allowWildcardHostnames: Capsule refuses hosts with a wildcard, but kubetenant allows them; " +
					"list the tenant's hosts in admission.policy.hosts",
			},
		},
		"gateway classes": {
			`gatewayOptions: { allowedClasses: { allowed: [ shared ] } }`,
			`policy.gatewayClasses {allowed:[shared],policy:AllowListed}`,
			nil,
		},
		"services": {
			`serviceOptions: { allowedServices: { nodePort: false, externalName: true } }`,
			`policy.serviceTypes {allowed:[LoadBalancer,ExternalName],policy:AllowListed}`,
			nil,
		},
		"no services": {
			`serviceOptions: { allowedServices: { nodePort: false, externalName: false, loadBalancer: false } }`,
			`policy.serviceTypes {policy:Forbid}`,
			nil,
		},
		"all services": {`serviceOptions: { allowedServices: { nodePort: true } }`, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			text := oil(c.spec)
			if strings.Contains(c.spec, "ingressOptions") {
				text = strings.Replace(text, "ingressOptions: { allowWildcardHostnames: true }, ", "", 1)
			}
			r := converted(t, "capsule", text)
			checkFiles(t, r.Files)
			same(t, name, c.want, settingsOf(t, r.Files[configFile]))
			same(t, name+": left", oilReports(c.left...), r.Unconverted)
			validate, add := "kubectl tenant validate configuration/tenancy.yaml",
				"add the section admission of configuration/tenancy.yaml to the configuration of the server"
			if slices.Contains(r.Next, validate) != (c.want != "") || slices.Contains(r.Next, add) != (c.want != "") {
				t.Errorf("next %q", r.Next)
			}
		})
	}
}

// settingsOf returns the admission settings in a configuration file, which must be for the
// tenant oil.
func settingsOf(t *testing.T, file string) string {
	t.Helper()
	var c struct {
		Admission map[string]map[string][]map[string]any
	}
	if err := yaml.Unmarshal([]byte(file), &c); err != nil {
		t.Fatal(err)
	}
	var all []string
	for plugin, of := range c.Admission {
		for _, rules := range of["tenants"] {
			same(t, "tenants", any([]any{"oil"}), rules["tenants"])
			delete(rules, "tenants")
			for field, rule := range rules {
				all = append(all, plugin+"."+field+" "+flow(t, rule))
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// TestCapsuleNamespaces checks that a namespace is adopted if its claims name exactly one
// tenant. A claim is in the Tenant's status, or in the Namespace's label or owner reference.
func TestCapsuleNamespaces(t *testing.T) {
	const none = "tenant oil: its namespaces are unknown; get the Tenant from the cluster with its status, or add its " +
		"Namespaces to the file"
	tenantOf := func(name, status string) string {
		return "{ apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: { name: " + name +
			" }, spec: { owners: [ { kind: User, name: alice } ], ingressOptions: { allowWildcardHostnames: true } }, " +
			"status: {" + status + "} }\n"
	}
	namespace := func(name, metadata string) string {
		return "---\n{ apiVersion: v1, kind: Namespace, metadata: { name: " + name + metadata +
			" }, spec: { finalizers: [ kubernetes ] } }\n"
	}
	const owner = ", ownerReferences: [ { apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, name: oil, uid: x } ]"
	for name, c := range map[string]struct {
		text, want string
		left       []string
	}{
		"status.namespaces": {tenantOf("oil", "namespaces: [ b, a ]"), "a b", nil},
		"status.spaces":     {tenantOf("oil", "spaces: [ { name: a } ], namespaces: [ a ]"), "a", nil},
		"label":             {tenantOf("oil", "") + namespace("a", ", labels: { capsule.clastix.io/tenant: oil }"), "a", nil},
		"owner reference":   {tenantOf("oil", "") + namespace("a", owner), "a", nil},
		"all claims": {
			tenantOf("oil", "namespaces: [ a ]") + namespace("a", ", labels: { capsule.clastix.io/tenant: oil }"+owner),
			"a",
			nil,
		},
		"no claim": {tenantOf("oil", ""), "", []string{none}},
		"owner reference to another project's Tenant": {
			tenantOf("oil",
				"") + namespace("a", ", ownerReferences: [ { apiVersion: example.com/v1, kind: Tenant, name: oil } ]"),
			"",
			[]string{
				"object 2 (Namespace a): it belongs to no Tenant of Capsule; remove it from the file, or assign it to a tenant " +
					"with kubectl tenant adopt", none,
			},
		},
		"claims of two tenants": {
			tenantOf("oil", "namespaces: [ a, b ]") + "---\n" + tenantOf("gas", "namespaces: [ b, c ]"),
			"a c",
			[]string{
				"tenant oil: status.namespaces[1]: namespace b is not adopted: the file names the tenants oil and gas for it; " +
					"correct the Namespace in the cluster",
				"tenant gas: status.namespaces[0]: namespace b is not adopted: the file names the tenants oil and gas for it; " +
					"correct the Namespace in the cluster",
			},
		},
		"label and owner reference differ": {
			tenantOf("oil", "") + namespace("a", ", labels: { capsule.clastix.io/tenant: gas }"+owner),
			"",
			[]string{
				`object 2 (Namespace a): metadata.labels["capsule.clastix.io/tenant"]: namespace a is not adopted: the file ` +
					`names the tenants gas and oil for it; correct the Namespace in the cluster`,
				`object 2 (Namespace a): metadata.ownerReferences[0].name: namespace a is not adopted: the file names the ` +
					`tenants gas and oil for it; correct the Namespace in the cluster`, none,
			},
		},
		"claim of a tenant that is not in the file": {
			tenantOf("oil", "namespaces: [ a ]") + namespace("b", ", labels: { capsule.clastix.io/tenant: gas }"),
			"a",
			[]string{
				`object 2 (Namespace b): metadata.labels["capsule.clastix.io/tenant"]: namespace b is not adopted: its tenant ` +
					"was not converted; migrate that tenant first",
			},
		},
		"system namespaces": {
			tenantOf("oil", "namespaces: [ kube-system, default, kube-x, capsule-system ]"),
			"",
			[]string{
				"tenant oil: status.namespaces[3]: namespace capsule-system is not adopted: it is a system namespace; no " +
					"tenant can own it",
				"tenant oil: status.namespaces[1]: namespace default is not adopted: it is a system namespace; no tenant " +
					"can own it",
				"tenant oil: status.namespaces[0]: namespace kube-system is not adopted: it is a system namespace; no " +
					"tenant can own it",
				"tenant oil: status.namespaces[2]: namespace kube-x is not adopted: it is a system namespace; no tenant " +
					"can own it", none,
			},
		},
		"label of another kubetenant tenant": {
			tenantOf("oil", "namespaces: [ a ]") + namespace("a", ", labels: { kubetenant.dev/tenant: gas }"+owner),
			"",
			[]string{
				"tenant oil: status.namespaces[0]: namespace a is not adopted: its label kubetenant.dev/tenant already names " +
					"another tenant",
				"object 2 (Namespace a): metadata.ownerReferences[0].name: namespace a is not adopted: " +
					"its label kubetenant.dev/tenant already names another tenant", none,
			},
		},
		"name that contains a command": {
			tenantOf("oil", `namespaces: [ "a; rm -rf x" ]`),
			"",
			[]string{
				"tenant oil: status.namespaces[0]: namespace a; rm -rf x is not adopted: this is not a valid namespace name", none,
			},
		},
		"cordoned": {
			tenantOf("oil", "") + namespace("a", `, labels: { projectcapsule.dev/cordoned: "true" }`+owner),
			"a",
			[]string{
				`object 2 (Namespace a): metadata.labels["projectcapsule.dev/cordoned"]: a single namespace cannot be cordoned; ` +
					`set spec.access of the Tenant to ReadOnly`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := converted(t, "capsule", c.text)
			var adopted []string
			for _, step := range r.Next {
				if command, ok := strings.CutPrefix(step, "kubectl tenant adopt "); ok &&
					!strings.HasSuffix(command, "--dry-run=server") {
					names, _, _ := strings.Cut(command, " --tenant")
					adopted = append(adopted, names)
				}
			}
			same(t, name, c.want, strings.Join(adopted, " "))
			same(t, name+": left", c.left, r.Unconverted)
			if !strings.Contains(r.Files[tenantsFile], "name: alice") {
				t.Errorf("the Tenant is not complete:\n%s", r.Files[tenantsFile])
			}
		})
	}
}

// TestCapsuleNext checks that the next steps are complete and in a working order.
func TestCapsuleNext(t *testing.T) {
	r, err := migrate.From()["capsule"]([]byte(oil(`nodeSelector: { pool: oil }, `+
		`owners: [ { kind: ServiceAccount, name: "system:serviceaccount:a:robot" } ]`)), migrate.Options{Dir: "my out"})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "next", []string{
		"kubectl tenant validate 'my out/configuration/tenancy.yaml'",
		"add the section admission of 'my out/configuration/tenancy.yaml' to the configuration of the server",
		"stop Capsule's controller and delete its webhook configurations",
		"kubectl apply -f 'my out/cluster'/",
		"kubectl tenant adopt a b --tenant oil --dry-run=server",
		"kubectl tenant adopt a b --tenant oil",
		"kubectl apply -f 'my out/after-adoption'/",
		`kubectl patch namespace a --type=merge -p '{"metadata":{"ownerReferences":null}}'`,
		`kubectl patch namespace b --type=merge -p '{"metadata":{"ownerReferences":null}}'`,
		"delete Capsule's Tenants and CustomResourceDefinitions last: this also deletes every namespace that a Capsule " +
			"Tenant still owns",
	}, r.Next)
}

// TestCapsuleFiles checks that a file may contain several objects and Lists. Objects that are
// not converted are reported.
func TestCapsuleFiles(t *testing.T) {
	const open = "spec: { ingressOptions: { allowWildcardHostnames: true } }, status: { namespaces: [ %s ] } }\n"
	const list = "apiVersion: v1\nkind: List\nmetadata: { resourceVersion: \"\" }\nitems:\n" +
		"- { apiVersion: capsule.clastix.io/v1beta1, kind: Tenant, metadata: { name: gas }, " + open +
		"- { apiVersion: v1, kind: ConfigMap, metadata: { name: x } }\n" +
		"- { apiVersion: example.com/v1, kind: Tenant, metadata: { name: x } }\n" +
		"- { apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: { name: system } }\n" +
		"- { apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: { name: All } }\n" +
		"- { apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: { name: two }, status: { namespaces: " +
		"[ d ] } }\n" +
		"- { apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: { name: two } }\n" +
		"- { apiVersion: capsule.clastix.io/v1beta2, kind: GlobalTenantResource, metadata: { name: all }, spec: " +
		"{ resyncPeriod: 60s, resources: [ { rawItems: [ {} ] } ] } }\n" +
		"- { apiVersion: capsule.clastix.io/v1beta2, kind: Future, metadata: { name: x, labels: { a: b } }, spec: { a: " +
		"1 }, data: 2 }\n"
	r := converted(t, "capsule",
		oil("nodeSelector: { pool: oil }")+"---\n"+strings.ReplaceAll(list, "%s", "c")+"--- \n# nothing\n---\n")
	const unknown = "the whole object: kind "
	same(t, "left", []string{
		"object 3 (ConfigMap x): " + unknown + "ConfigMap of v1 is not supported; set it up by hand",
		"object 4 (Tenant x): " + unknown + "Tenant of example.com/v1 is not supported; set it up by hand",
		"object 10 (Future x): " + unknown + "Future of capsule.clastix.io/v1beta2 is not supported; set it up by hand",
		"tenant system: the whole Tenant: system is the reserved name of the system tenant; create the tenant under " +
			"another name",
		"tenant All: the whole Tenant: metadata.name is not a valid tenant ID (invalid tenant: reserved name); " +
			"create the tenant under another name",
		"tenant two: the whole Tenant: the file contains 2 Tenants of this name; keep one",
		"tenant two: the whole Tenant: the file contains 2 Tenants of this name; keep one",
		"object 9 (GlobalTenantResource all): spec.resources[0].rawItems[0]: the object has no name; set metadata.name",
	}, r.Unconverted)
	if text := r.Files[tenantsFile]; strings.Count(text, "kind: Tenant") != 2 || strings.Contains(text, "two") {
		t.Errorf("Tenants:\n%s", text)
	}
	for text, want := range map[string]string{
		"kind: [":                              "document 1: ",
		"- kind: Tenant\n":                     "document 1: it is not an object",
		oil("") + "---\nkind: [\n":             "document 2: ",
		oil("") + "...\n" + oil(""):            "document 1: each --- must be on a line of its own",
		oil("cordoned: true, cordoned: false"): "document 1: ",
		"kind: List\nmore: 1\nitems: [ {} ]\n": "document 1: a List may only have apiVersion, kind, metadata and items",
		"":                                     "the file contains no Tenant of capsule.clastix.io",
		"apiVersion: v1\nkind: ConfigMap\n":    "the file contains no Tenant of capsule.clastix.io",
	} {
		t.Run(text, func(t *testing.T) {
			if _, err := migrate.From()["capsule"]([]byte(text), migrate.Options{}); err == nil ||
				!strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}
