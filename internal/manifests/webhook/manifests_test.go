// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/client-go/kubernetes/scheme"
	clientcmdapiv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/internal/manifests"
	"github.com/kubetenant/kubetenant/internal/manifests/webhook"
)

// options returns the options of a cluster with default settings.
func options(t *testing.T) webhook.Options {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "tenancy.yaml"), `{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration,
authentication: {sources: [{name: tokens, tokenFile: {path: files/tokens.csv}}]}}`)
	write(t, filepath.Join(dir, "files", "tokens.csv"), "tok,alice,u1,dev,,a\n")
	write(t, filepath.Join(dir, "ca.crt"), "-----BEGIN CERTIFICATE-----\n")
	return webhook.Options{
		Config:            filepath.Join(dir, "tenancy.yaml"),
		Image:             "example.com/kubetenant-webhook:1",
		Namespace:         "kubetenant-system",
		URL:               "https://10.0.0.9:9443",
		ClientCA:          filepath.Join(dir, "ca.crt"),
		SelfManaged:       true,
		Directory:         "/etc/kubernetes/kubetenant",
		ClientCertificate: "/etc/kubernetes/kubetenant/client.crt",
		ClientKey:         "/etc/kubernetes/kubetenant/client.key",
		Authorizers:       []string{"Node", "RBAC"},
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFilesDecodeStrictly checks that servers can strictly decode all generated files.
func TestFilesDecodeStrictly(t *testing.T) {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiserverv1.AddToScheme} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()
	foreign := []string{"monitoring.yaml", "kubeadm-patch.yaml"} // kubeconform and the server check these and definitions
	for name, change := range map[string]func(*webhook.Options){
		"in the cluster":  func(*webhook.Options) {},
		"everything":      func(o *webhook.Options) { o.Monitoring, o.StaticPolicies = true, true },
		"own certificate": func(o *webhook.Options) { o.SelfManaged, o.ServingCA = false, o.ClientCA },
		"outside":         func(o *webhook.Options) { o.External, o.Image = true, "" },
		"claim": func(o *webhook.Options) {
			o.Storage, o.StorageSize, o.StorageClass = webhook.StorageClaim, "1Gi", "fast"
		},
		"emptyDir": func(o *webhook.Options) { o.Storage, o.StorageSize = webhook.StorageEmptyDir, "1Gi" },
		"sync":     func(o *webhook.Options) { *o = keystoneOptions(t, createsTenants) },
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			change(&o)
			files, err := webhook.Generate(o)
			if err != nil {
				t.Fatalf("%v", err)
			}
			for _, path := range slices.Sorted(maps.Keys(files)) {
				if slices.Contains(foreign, filepath.Base(path)) || filepath.Dir(path) == "crds" || path == "values.yaml" ||
					filepath.Ext(path) != ".yaml" && filepath.Ext(path) != ".kubeconfig" {
					continue
				}
				for i, doc := range bytes.Split(files[path], []byte("\n---\n")) {
					if len(bytes.TrimSpace(bytes.Trim(bytes.TrimSpace(doc), "-"))) == 0 {
						continue
					}
					if filepath.Ext(path) == ".kubeconfig" {
						err = yaml.UnmarshalStrict(doc, &clientcmdapiv1.Config{})
					} else {
						_, _, err = decoder.Decode(doc, nil, nil)
					}
					if err != nil {
						t.Errorf("%s, document %d: %v\n%s", path, i, err, doc)
					}
				}
			}
		})
	}
}

// TestServiceRightsAreListed compares the rights of the service and the controller with an explicit
// list.
func TestServiceRightsAreListed(t *testing.T) {
	files, err := webhook.Generate(options(t))
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for doc := range bytes.SplitSeq(files["cluster/accounts.yaml"], []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(doc, &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind != "ClusterRole" && role.Kind != "Role" {
			continue
		}
		for _, r := range role.Rules {
			got.WriteString(role.Kind + " " + role.Name + ": " + strings.Join(r.Verbs, ",") + " " +
				strings.Join(r.Resources, ",") + " of " +
				strings.Join(r.APIGroups, ",") + " " + strings.Join(r.ResourceNames, ",") + "\n")
		}
	}
	golden := filepath.Join("testdata", "rights.golden")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		write(t, golden, got.String())
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the rights changed (make golden):\n%s\nwant:\n%s", got.String(), want)
	}
}

// TestOnlySystemIdentitiesAreExempt checks that only identities that the configuration assigns to
// the system tenant bypass the service.
func TestOnlySystemIdentitiesAreExempt(t *testing.T) {
	o := options(t)
	write(t, o.Config, `{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration, authorization: {
systemSubjects: {users: ["system:dns"], userPrefixes: [], groups: ["system:masters"]}, systemNamespaces: [kube-system],
unboundAllow: {paths: [/livez]}}}`)
	files, err := webhook.Generate(o)
	if err != nil {
		t.Fatal(err)
	}
	// A policy contains these names. Its preceding condition requires that the caller is exempt
	// or belongs to the system tenant.
	emptying := []byte(`"system:serviceaccount:kube-system:generic-garbage-collector", "system:kube-controller-manager"`)
	if !bytes.Contains(files["cluster/policies.yaml"], emptying) {
		t.Errorf("no policy names %s", emptying)
	}
	for _, path := range []string{"control-plane/authorization.yaml", "cluster/webhooks.yaml", "cluster/policies.yaml"} {
		for _, name := range []string{
			"system:serviceaccount:kube-public:", "system:serviceaccount:kube-node-lease:", "system:serviceaccount:default:",
			"system:kube-dns", "/readyz",
		} {
			policies := bytes.ReplaceAll(files[path], emptying, nil)
			if bytes.Contains(policies, []byte(`"`+name+`"`)) {
				t.Errorf("%s exempts %s", path, name)
			}
		}
		for _, name := range []string{
			"system:dns", "system:kube-controller-manager", "system:serviceaccount:kube-system:", "system:bootstrap:",
			"system:nodes",
		} {
			if !bytes.Contains(files[path], []byte(`"`+name+`"`)) {
				t.Errorf("%s does not exempt %s", path, name)
			}
		}
	}
}

func TestInvalidOptionsAreRejected(t *testing.T) {
	for want, change := range map[string]func(*webhook.Options){
		"image is required":        func(o *webhook.Options) { o.Image = "" },
		"URL":                      func(o *webhook.Options) { o.URL = "http://10.0.0.9" },
		"no such file":             func(o *webhook.Options) { o.ClientCA += "x" },
		"either --serving-ca-file": func(o *webhook.Options) { o.SelfManaged = false },
		"only files in the folder of the configuration": func(o *webhook.Options) {
			write(t, o.Config,
				`{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration, authentication: {sources: [{name: tokens, `+
					`tokenFile: {path: ../tokens.csv}}]}}`)
		},
		"unknown field": func(o *webhook.Options) {
			write(t, o.Config, `{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration, nope: 1}`)
		},
	} {
		t.Run(want, func(t *testing.T) {
			o := options(t)
			change(&o)
			if _, err := webhook.Generate(o); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestCheck checks that the output of generate has no findings, and that each of the unsafe changes
// is reported.
func TestCheck(t *testing.T) {
	o := options(t)
	good, err := webhook.Generate(o)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file, old, new string
		want           string
	}{
		"unchanged": {"", "", "", ""},
		// authorization
		"Deckhouse 4678: an unavailable service allows": {
			"control-plane/authorization.yaml", "failurePolicy: Deny", "failurePolicy: NoOpinion", "RBAC alone decides",
		},
		"RBAC runs first": {
			"control-plane/authorization.yaml",
			"authorizers:\n",
			"authorizers:\n- { type: RBAC, name: first }\n",
			"authorizer first runs before the service",
		},
		"everything is allowed": {
			"control-plane/authorization.yaml",
			"- type: Node\n  name: node\n",
			"- type: AlwaysAllow\n  name: all\n",
			"allows every request",
		},
		"decisions are cached": {
			"control-plane/authorization.yaml",
			"cacheAuthorizedRequests: false\n    authorizedTTL: 0s",
			"cacheAuthorizedRequests: true\n    authorizedTTL: 5m",
			"decisions are cached",
		},
		"Deckhouse 17644: the control plane waits for the service": {
			"control-plane/authorization.yaml",
			`"system:kube-controller-manager",`,
			"",
			"do not exempt system:kube-controller-manager",
		},
		"the service is not exempt": {
			"control-plane/authorization.yaml",
			`"system:serviceaccount:kubetenant-system:kubetenant-webhook",`,
			"",
			"do not exempt system:serviceaccount:kubetenant-system:kubetenant-webhook",
		},
		"nodes are not exempt": {
			"control-plane/authorization.yaml", `"system:masters","system:nodes"`, `"system:masters"`, "do not exempt nodes",
		},
		"probes are not exempt": {"control-plane/authorization.yaml", `"/livez",`, "", "do not exempt probes of /livez"},
		"all callers are exempt": {
			"control-plane/authorization.yaml",
			`"system:masters","system:nodes"`,
			`"system:masters","system:nodes","system:authenticated"`,
			"exempt alice",
		},
		"service accounts are exempt": {
			"control-plane/authorization.yaml",
			`"system:serviceaccount:kube-system:","`,
			`"system:serviceaccount:","`,
			"exempt system:serviceaccount:acme--web:default",
		},
		"resources are exempt": {
			"control-plane/authorization.yaml",
			"    matchConditions:\n",
			"    matchConditions:\n    - expression: \"!has(request.resourceAttributes)\"\n",
			"exempt alice",
		},
		"missing authorizer": {
			"control-plane/authorization.yaml",
			"  name: kubetenant\n",
			"  name: other\n",
			"there is no webhook authorizer named kubetenant",
		},
		// flags
		"tokens are cached": {"control-plane/flags.txt", "cache-ttl=1s", "cache-ttl=2m", "must be at most 1s"},
		"authorization modes": {
			"control-plane/flags.txt",
			"--authorization-config",
			"--authorization-mode=RBAC\n--authorization-config",
			"mutually exclusive",
		},
		"an older review": {"control-plane/flags.txt", "webhook-version=v1", "webhook-version=v1beta1", "sends v1beta1"},
		"no authorization file": {
			"control-plane/flags.txt",
			"--authorization-config=/etc/kubernetes/kubetenant/authorization.yaml",
			"--authorization-mode=RBAC,Webhook",
			"--authorization-config is missing",
		},
		// kubeconfigs
		"unverified": {
			"control-plane/webhook-authorize.kubeconfig",
			"certificate-authority:",
			"insecure-skip-tls-verify: true #",
			"verified HTTPS",
		},
		"without TLS": {"control-plane/webhook-authenticate.kubeconfig", "https://", "http://", "verified HTTPS"},
		"no certificate": {
			"control-plane/webhook-authenticate.kubeconfig", "client-certificate:", "username: x #", "no client certificate",
		},
		// webhooks
		"failures are ignored": {
			"cluster/webhooks.yaml", "failurePolicy: Fail", "failurePolicy: Ignore", "Ignore allows every request",
		},
		"other versions are exempt": {
			"cluster/webhooks.yaml", "matchPolicy: Equivalent", "matchPolicy: Exact", "Exact does not cover",
		},
		"object selector": {
			"cluster/webhooks.yaml",
			"  sideEffects: None",
			"  objectSelector: { matchLabels: { a: b } }\n  sideEffects: None",
			"objectSelector lets the author",
		},
		"namespaces are exempt": {
			"cluster/webhooks.yaml",
			"operator: DoesNotExist }",
			"operator: DoesNotExist }\n    - { key: app, operator: NotIn, values: [x] }",
			"namespaceSelector on app",
		},
		"a changed match condition": {
			"cluster/webhooks.yaml",
			`!(has(request.subResource)`,
			`!(request.userInfo.username == "x" || has(request.subResource)`,
			"matchConditions of webhook tenant.mutating.kubetenant.dev differs",
		},
		"one resource only": {
			"cluster/webhooks.yaml", `resources: ["*/*"]`, `resources: ["pods"]`, "does not match every resource",
		},
		"no validating webhooks": {
			"cluster/webhooks.yaml",
			"kind: ValidatingWebhookConfiguration\nmetadata:\n  name: kubetenant",
			"kind: ValidatingWebhookConfiguration\nmetadata:\n  name: other",
			"ValidatingWebhookConfiguration/kubetenant is missing",
		},
		"deletions only": {
			"cluster/webhooks.yaml",
			"operations: [CREATE, UPDATE]",
			"operations: [DELETE]",
			"rules of webhook tenant.mutating.kubetenant.dev differs",
		},
		"a missing webhook": {
			"cluster/webhooks.yaml",
			"- name: elsewhere.mutating.kubetenant.dev",
			"- name: other.mutating.kubetenant.dev",
			"the webhook elsewhere.mutating.kubetenant.dev is missing",
		},
		"one tenant only": {
			"cluster/webhooks.yaml",
			"{ key: kubetenant.dev/tenant, operator: Exists }",
			"{ key: kubetenant.dev/tenant, operator: In, values: [acme] }",
			"namespaceSelector of webhook tenant.mutating.kubetenant.dev differs",
		},
		"a verb is exempt": {
			"control-plane/authorization.yaml",
			"    matchConditions:\n",
			"    matchConditions:\n    - expression: \"!(has(request.resourceAttributes) " +
				"&& request.resourceAttributes.verb == 'list')\"\n",
			"matchConditions differ",
		},
		"a name prefix is exempt": {
			"control-plane/authorization.yaml",
			"    matchConditions:\n",
			"    matchConditions:\n    - expression: \"!request.user.startsWith('oidc:')\"\n",
			"matchConditions differ",
		},
		"no admission file": {
			"control-plane/flags.txt",
			"--admission-control-config-file=/etc/kubernetes/kubetenant/admission.yaml",
			"",
			"presents no certificate",
		},
		"disabled plugins": {
			"control-plane/flags.txt",
			"--authorization-config",
			"--disable-admission-plugins=LimitRanger,ValidatingAdmissionPolicy\n--authorization-config",
			"cannot reject writes",
		},
		"a policy that allows everything": {
			"cluster/policies.yaml",
			"      !variables.foreign",
			"      true || !variables.foreign",
			"restriction.kubetenant.dev: the field spec differs",
		},
		// policies
		"a policy that ignores failures": {
			"cluster/policies.yaml", "failurePolicy: Fail", "failurePolicy: Ignore", "allows requests that",
		},
		"a policy that warns": {
			"cluster/policies.yaml", "validationActions: [Deny]", "validationActions: [Warn]", "validationActions lacks Deny",
		},
		"a policy with a narrower match": {
			"cluster/policies.yaml",
			"validationActions: [Deny]",
			"validationActions: [Deny]\n  matchResources: { namespaceSelector: { matchLabels: { a: b } } }",
			"limits the policy",
		},
		"a missing policy": {
			"cluster/policies.yaml", "name: label.kubetenant.dev", "name: other.example.com", "label.kubetenant.dev is missing",
		},
		// rights
		"an additional right": {
			"cluster/accounts.yaml",
			"  resources: [rolebindings, roles]\n  verbs: [patch]",
			"  resources: [rolebindings, roles]\n  verbs: [patch, bind]",
			"ClusterRole kubetenant-controller: the field rules differs",
		},
		"patch on everything": {
			"cluster/accounts.yaml",
			"verbs: [list, watch]\n- apiGroups: [\"\"]",
			"verbs: [list, patch, watch]\n- apiGroups: [\"\"]",
			"ClusterRole kubetenant-controller: the field rules differs",
		},
		"another subject": {
			"cluster/accounts.yaml",
			"- kind: ServiceAccount\n  name: kubetenant-certificates",
			"- kind: ServiceAccount\n  name: default",
			"kubetenant-certificates: the field subjects differs",
		},
		"another role": {
			"cluster/accounts.yaml",
			"  kind: ClusterRole\n  name: kubetenant-controller",
			"  kind: ClusterRole\n  name: cluster-admin",
			"ClusterRoleBinding kubetenant-controller: the field roleRef differs",
		},
		"an additional binding": {
			"more.yaml",
			"",
			binding("{kind: ServiceAccount, name: kubetenant-controller, namespace: kubetenant-system}"),
			"ClusterRoleBinding b grants additional rights to kubetenant-controller, an account of the service",
		},
		"a binding of all accounts": {
			"more.yaml",
			"",
			binding("{kind: Group, name: 'system:serviceaccounts:kubetenant-system'}"),
			"an account of the service",
		},
		"an aggregated role": {
			"cluster/accounts.yaml",
			"metadata:\n  name: kubetenant-webhook\nrules:",
			"metadata:\n  name: kubetenant-webhook\naggregationRule: { clusterRoleSelectors: [ { matchLabels: { a: b } } ] }\n" +
				"rules:",
			"the field aggregationRule differs",
		},
		"backfill of quotas": {
			"cluster/accounts.yaml",
			"- apiGroups: [kubetenant.dev]\n  resources: [tenantquotas]\n  verbs: [delete, get]",
			"- apiGroups: [kubetenant.dev]\n  resources: [\"*\"]\n  verbs: [patch]\n- apiGroups: [kubetenant.dev]\n" +
				"  resources: [tenantquotas]\n  verbs: [delete, get]",
			"the field rules differs",
		},
		"as a server returns it": {
			"cluster/policies.yaml",
			"    matchPolicy: Equivalent\n",
			"    matchPolicy: Equivalent\n    objectSelector: {}\n",
			"",
		},
		"no environment": {"control-plane/environment.txt", "HTTP2_READ_IDLE_TIMEOUT_SECONDS=3", "", "a replica that hangs"},
		"the account of the certificates is not exempt": {
			"control-plane/authorization.yaml",
			`,"system:serviceaccount:kubetenant-system:kubetenant-certificates"`,
			"",
			"do not exempt system:serviceaccount:kubetenant-system:kubetenant-certificates",
		},
		"an empty document": {"more.yaml", "", "---\n# nothing\n---\n", ""},
		"backfill of a group": {
			"cluster/accounts.yaml",
			"- apiGroups: [kubetenant.dev]\n  resources: [tenantquotas]\n  verbs: [delete, get]",
			"- apiGroups: [example.com]\n  resources: [\"*\"]\n  verbs: [patch]\n- apiGroups: [kubetenant.dev]\n" +
				"  resources: [tenantquotas]\n  verbs: [delete, get]",
			"",
		},
		"backfill of policies": {
			"cluster/accounts.yaml",
			"- apiGroups: [kubetenant.dev]\n  resources: [tenantquotas]\n  verbs: [delete, get]",
			"- apiGroups: [admissionregistration.k8s.io]\n  resources: [\"*\"]\n  verbs: [patch]\n" +
				"- apiGroups: [kubetenant.dev]\n  resources: [tenantquotas]\n  verbs: [delete, get]",
			"the field rules differs",
		},
		// certificates
		"a certificate that expires soon": {
			"control-plane/client.crt", "", certificate(t, "kubetenant-webhook-client", 20*24*time.Hour), "expires on",
		},
		"a valid certificate": {
			"control-plane/client.crt", "", certificate(t, "kubetenant-webhook-client", 200*24*time.Hour), "",
		},
		"no certificate in the file": {"control-plane/client.crt", "", "x", "no certificate found"},
		"an authority that is not copied": {
			"more.yaml",
			"",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: kubetenant-webhook-ca}, data: {ca.crt: " +
				strconv.Quote(certificate(t, "new", 200*24*time.Hour)) + "}}",
			"webhook-ca.crt lacks the authority CN=new",
		},
		// other objects of the cluster
		"a claim is the tenant": {
			"authentication.yaml",
			"",
			authentication("groups: { claim: g, prefix: 'oidc:' }, extra: [ { key: kubetenant.dev/tenant, valueExpression: " +
				"claims.t } ]"),
			"the signer of the token chooses the tenant",
		},
		"groups without a prefix": {
			"authentication.yaml", "", authentication("groups: { claim: g, prefix: '' }"), "groups has no prefix",
		},
		"tenant groups": {
			"authentication.yaml", "", authentication("groups: { claim: g, prefix: 'tenant:' }"), "reserved names",
		},
		"an expression of groups": {
			"authentication.yaml",
			"",
			authentication("groups: { expression: claims.g }"),
			"does not begin with a literal prefix",
		},
		"an empty literal": {
			"authentication.yaml",
			"",
			authentication(`groups: { expression: '"" + claims.g' }`),
			"does not begin with a literal prefix",
		},
		"a reserved literal": {
			"authentication.yaml",
			"",
			authentication(`groups: { expression: '"system:masters"' }`),
			"does not begin with a literal prefix",
		},
		"a good literal":   {"authentication.yaml", "", authentication(`groups: { expression: '"oidc:" + claims.g' }`), ""},
		"a prefix is good": {"authentication.yaml", "", authentication("groups: { claim: g, prefix: 'oidc:' }"), ""},
		"a service account without a tenant": {
			"more.yaml",
			"",
			"{apiVersion: v1, kind: Namespace, metadata: {name: monitoring}}\n---\n" +
				binding("{kind: ServiceAccount, name: p, namespace: monitoring}"),
			"service account monitoring/p has a binding but would have no tenant",
		},
		"a service account of the system tenant": {
			"more.yaml",
			"",
			"{apiVersion: v1, kind: Namespace, metadata: {name: monitoring, labels: {kubetenant.dev/tenant: system}}}\n---\n" +
				binding("{kind: ServiceAccount, name: p, namespace: monitoring}"),
			"",
		},
		"an unknown system user": {
			"more.yaml", "", binding("{kind: User, name: 'system:aggregator'}"), "user system:aggregator has a binding",
		},
		"an unknown system group": {
			"more.yaml", "", binding("{kind: Group, name: 'system:aggregators'}"), "group system:aggregators has a binding",
		},
		"kubeadm's own bindings": {
			"more.yaml",
			"",
			binding("{kind: User, name: 'system:anonymous'}") + "\n---\n" +
				binding("{kind: Group, name: 'system:bootstrappers:kubeadm:default-node-token'}"),
			"",
		},
		"a binding of a tenant's group": {
			"more.yaml",
			"",
			binding("{kind: Group, name: 'tenant:acme'}"),
			`ClusterRoleBinding b: a server without kubetenant grants group "tenant:acme"`,
		},
		"a binding with a scope": {
			"more.yaml",
			"",
			strings.Replace(binding("{kind: User, name: peter}"), "name: b}",
				"name: b, annotations: {kubetenant.dev/scope: acme}}", 1),
			"ignores the annotation kubetenant.dev/scope",
		},
		"a RoleBinding that expires": {
			"more.yaml",
			"",
			"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b, namespace: a, annotations: " +
				"{kubetenant.dev/expires: x}}}",
			"ignores the annotation kubetenant.dev/expires",
		},
		"a system namespace of a tenant": {
			"more.yaml",
			"",
			"{apiVersion: v1, kind: Namespace, metadata: {name: kube-system, labels: {kubetenant.dev/tenant: acme}}}",
			"this system namespace belongs to tenant acme",
		},
		"in a List": {
			"more.yaml",
			"",
			"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Namespace, metadata: {name: monitoring}}, " +
				binding("{kind: ServiceAccount, name: p, namespace: monitoring}") + "]}",
			"service account monitoring/p has a binding",
		},
		"missing policy of the controller": {
			"cluster/policies.yaml",
			"name: controller.kubetenant.dev",
			"name: other.example.com",
			"controller.kubetenant.dev is missing",
		},
		"an issuer without a prefix": {
			"control-plane/flags.txt",
			"--authorization-config",
			"--oidc-issuer-url=https://i\n--oidc-username-prefix=-\n--authorization-config",
			"--oidc-username-prefix=-",
		},
		"a label that is no string": {
			"more.yaml",
			"",
			"{apiVersion: v1, kind: Namespace, metadata: {name: monitoring, labels: {a: true}}}",
			"cannot be decoded",
		},
		"not YAML": {"more.yaml", "", "a: [", "cannot be decoded"},
	} {
		t.Run(name, func(t *testing.T) {
			files := maps.Clone(good)
			if c.file != "" {
				spoiled := strings.Replace(string(files[c.file]), c.old, c.new, 1)
				if spoiled == string(files[c.file]) {
					t.Fatalf("%s does not contain %q", c.file, c.old)
				}
				files[c.file] = []byte(spoiled)
			}
			dir := t.TempDir()
			if err := manifests.Write(dir, "", files); err != nil {
				t.Fatal(err)
			}
			found, err := webhook.Check(dir, o.Config, o.Namespace)
			if err != nil {
				t.Fatal(err)
			}
			matches := slices.ContainsFunc(found, func(f webhook.Finding) bool { return strings.Contains(f.String(), c.want) })
			if c.want == "" && len(found) > 0 || c.want != "" && !matches {
				t.Errorf("found %v; want %q", found, c.want)
			}
		})
	}
}

// certificate returns a certificate that expires after a time.
func certificate(t *testing.T, name string, lifetime time.Duration) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(lifetime),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func authentication(mappings string) string {
	return "{apiVersion: apiserver.config.k8s.io/v1, kind: AuthenticationConfiguration, jwt: [ { issuer: { url: " +
		"'https://i', audiences: [a] }, claimMappings: { username: { claim: sub, prefix: 'oidc:' }, " + mappings + " } } ]}"
}

func binding(subject string) string {
	return "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: b}, roleRef: " +
		"{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [" + subject + "]}"
}

// TestFailClosed checks that no webhook of the set allows a request without a response (as in
// CVE-2023-48312), with two exceptions. The first one checks the configuration of the service. An
// administrator must be able to replace an invalid configuration. The second one records sources of
// Publications by the control plane. Without its response, the server does not copy the content.
func TestFailClosed(t *testing.T) {
	files, err := webhook.Generate(options(t))
	if err != nil {
		t.Fatal(err)
	}
	hooks, open := 0, 0
	for doc := range bytes.SplitSeq(files["cluster/webhooks.yaml"], []byte("\n---\n")) {
		var w admissionregistrationv1.ValidatingWebhookConfiguration
		if err := yaml.Unmarshal(doc, &w); err != nil {
			t.Fatal(err)
		}
		for _, h := range w.Webhooks {
			if h.Name == "configuration.validating.kubetenant.dev" {
				open++
				only := len(h.Rules) == 1 && slices.Equal(h.Rules[0].Resources, []string{"secrets"}) && len(h.MatchConditions) == 1
				if *h.FailurePolicy != admissionregistrationv1.Ignore || !only {
					t.Errorf("%s: %+v", h.Name, h)
				}
				continue
			}
			if h.Name == "sources.mutating.kubetenant.dev" {
				open++
				only := len(h.MatchConditions) == 1 && h.MatchConditions[0].Name == "by-the-control-plane"
				if *h.FailurePolicy != admissionregistrationv1.Ignore || !only {
					t.Errorf("%s: %+v", h.Name, h)
				}
				continue
			}
			hooks++
			if h.FailurePolicy == nil || *h.FailurePolicy != admissionregistrationv1.Fail || h.ObjectSelector != nil {
				t.Errorf("%s fails open", h.Name)
			}
		}
	}
	if hooks != 10 || open != 2 {
		t.Errorf("%d webhooks, %d that fail open", hooks, open)
	}
}
