package manifests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/load"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	clientcmdapiv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// A Finding is something in an installed set that fails open, locks the cluster up, or denies somebody by
// mistake.
type Finding struct{ File, Problem string }

func (f Finding) String() string { return f.File + ": " + f.Problem }

// authorizerName is the service's in an AuthorizationConfiguration; ownSuffix ends the names of policies, in
// static manifests staticSuffix.
const (
	authorizerName = "kubetenant"
	ownSuffix      = ".kubetenant.dev"
	staticSuffix   = ".kubetenant.static.k8s.io"
)

// maxTokenTTL is how long kube-apiserver may remember the service's word about a token.
const maxTokenTTL = time.Second

// checker collects what is found.
type checker struct {
	settings   *v1alpha1.Settings
	namespace  string
	made       map[string]map[string]any // by generate, by kind and name
	conditions []any                     // of the authorizer, by generate
	findings   []Finding

	file       string
	seen       map[string]bool // kinds and names
	namespaces map[string]map[string]string
	subjects   []located[rbacv1.Subject]
}

type located[T any] struct {
	file string
	what T
}

func (c *checker) report(format string, args ...any) {
	c.findings = append(c.findings, Finding{c.file, fmt.Sprintf(format, args...)})
}

// Check looks at every file below dir: what [Generate] wrote and an operator changed, and whatever else of
// the cluster is put there, such as its AuthenticationConfiguration, its Namespaces and its bindings. It is
// held against the configuration.
func Check(dir, config, namespace string) ([]Finding, error) {
	loaded, err := v1alpha1.Load(config)
	if err != nil {
		return nil, err
	}
	c := &checker{settings: &loaded.Settings, namespace: namespace, seen: map[string]bool{}, namespaces: map[string]map[string]string{}}
	if c.made, c.conditions, err = generated(config, namespace); err != nil {
		return nil, err
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if c.file, err = filepath.Rel(dir, path); err != nil {
			return err
		}
		data, err := os.ReadFile(path) // #nosec G304 G122 -- in the operator's directory
		if err != nil {
			return err
		}
		return c.checkFile(data)
	})
	if err != nil {
		return nil, err
	}
	c.checkWhole()
	return c.findings, nil
}

// generated returns what the chart makes of the configuration, by kind and name, and the match conditions
// of the authorizer.
func generated(config, namespace string) (map[string]map[string]any, []any, error) {
	// Any file does for the authorities: they are not looked at.
	made, err := Generate(Options{Config: config, ClientCA: config, Namespace: namespace, External: true, SelfManaged: true, URL: "https://none", Authorizers: []string{"RBAC"}})
	if err != nil {
		return nil, nil, err
	}
	all := map[string]map[string]any{}
	for _, file := range []string{"cluster/webhooks.yaml", "cluster/policies.yaml"} {
		for _, doc := range documents(made[file]) {
			var u unstructured.Unstructured
			if err := yaml.Unmarshal(doc, &u.Object); err != nil {
				return nil, nil, err
			}
			all[u.GetKind()+"/"+u.GetName()] = u.Object
		}
	}
	conditions, err := matchConditions(made["control-plane/authorization.yaml"])
	return all, conditions, err
}

// matchConditions returns those of the service's authorizer.
func matchConditions(doc []byte) ([]any, error) {
	var config map[string]any
	if err := yaml.Unmarshal(doc, &config); err != nil {
		return nil, err
	}
	authorizers, _, _ := unstructured.NestedSlice(config, "authorizers")
	for _, a := range authorizers {
		if of, ok := a.(map[string]any); ok && of["name"] == authorizerName {
			conditions, _, err := unstructured.NestedSlice(of, "webhook", "matchConditions")
			return conditions, err
		}
	}
	return nil, nil
}

// documents returns the YAML documents of a file.
func documents(data []byte) [][]byte {
	var all [][]byte
	reader := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(data)))
	defer func() { _ = reader.Close() }()
	buffer := make([]byte, len(data)+1)
	for {
		n, err := reader.Read(buffer)
		if err != nil {
			return all
		}
		all = append(all, bytes.Clone(buffer[:n]))
	}
}

// items returns the objects of a file, those of Lists one by one.
func items(data []byte) [][]byte {
	var all [][]byte
	for _, doc := range documents(data) {
		var list struct {
			Kind  string
			Items []runtime.RawExtension
		}
		if err := yaml.Unmarshal(doc, &list); err != nil || !strings.HasSuffix(list.Kind, "List") {
			all = append(all, doc)
			continue
		}
		for _, item := range list.Items {
			all = append(all, item.Raw)
		}
	}
	return all
}

func (c *checker) checkFile(data []byte) error {
	switch filepath.Ext(c.file) {
	case ".yaml", ".yml", ".kubeconfig":
	case ".txt":
		c.checkFlags(string(data))
		return nil
	default:
		return nil
	}
	for _, doc := range items(data) {
		var is struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
		}
		if err := yaml.Unmarshal(doc, &is); err != nil {
			c.report("is not understood: %v", err)
			continue
		}
		c.seen[is.Kind+"/"+is.Name] = true
		if err := errors.Join(c.checkKind(is.Kind, doc), c.checkSame(is.Kind, is.Name, doc)); err != nil {
			c.report("%s %s is not understood: %v", is.Kind, is.Name, err)
		}
	}
	return nil
}

func (c *checker) checkKind(kind string, doc []byte) error {
	switch kind {
	case "AuthorizationConfiguration":
		return c.checkAuthorization(doc)
	case "AuthenticationConfiguration":
		return decoded(doc, c.checkAuthentication)
	case "Config":
		return decoded(doc, c.checkKubeconfig)
	case "MutatingWebhookConfiguration":
		return decoded(doc, func(w *admissionregistrationv1.MutatingWebhookConfiguration) {
			for _, h := range w.Webhooks {
				c.checkHook(&hook{w.Name, h.Name, h.FailurePolicy, h.MatchPolicy, h.ObjectSelector, h.NamespaceSelector, h.Rules, &h.ClientConfig})
			}
		})
	case "ValidatingWebhookConfiguration":
		return decoded(doc, func(w *admissionregistrationv1.ValidatingWebhookConfiguration) {
			for _, h := range w.Webhooks {
				c.checkHook(&hook{w.Name, h.Name, h.FailurePolicy, h.MatchPolicy, h.ObjectSelector, h.NamespaceSelector, h.Rules, &h.ClientConfig})
			}
		})
	case "ValidatingAdmissionPolicy":
		return decoded(doc, func(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
			if isOurs(p.Name) && p.Spec.FailurePolicy != nil && *p.Spec.FailurePolicy != admissionregistrationv1.Fail {
				c.report("policy %s: failurePolicy Ignore lets through what it cannot judge", p.Name)
			}
		})
	case "ValidatingAdmissionPolicyBinding":
		return decoded(doc, func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
			if isOurs(b.Name) && !slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny) {
				c.report("policy binding %s: without the action Deny it refuses nothing", b.Name)
			}
			if isOurs(b.Name) && b.Spec.MatchResources != nil {
				c.report("policy binding %s: matchResources leaves out what they do not match", b.Name)
			}
		})
	case "Namespace":
		return decoded(doc, func(n *corev1.Namespace) { c.namespaces[n.Name] = n.Labels })
	case "ClusterRoleBinding":
		return decoded(doc, func(b *rbacv1.ClusterRoleBinding) { c.addSubjects(b.Subjects) })
	case "RoleBinding":
		return decoded(doc, func(b *rbacv1.RoleBinding) { c.addSubjects(b.Subjects) })
	}
	return nil
}

func decoded[T any](doc []byte, check func(*T)) error {
	v := new(T)
	if err := yaml.Unmarshal(doc, v); err != nil {
		return err
	}
	check(v)
	return nil
}

func isOurs(name string) bool {
	return strings.HasSuffix(name, ownSuffix) || strings.HasSuffix(name, staticSuffix)
}

// checkFlags looks at kube-apiserver's flags, one a line.
func (c *checker) checkFlags(text string) {
	flags := map[string]string{}
	for _, line := range strings.Fields(text) {
		name, value, _ := strings.Cut(strings.TrimPrefix(line, "--"), "=")
		flags[name] = value
	}
	if flags["authorization-config"] == "" && flags["authorization-mode"] == "" {
		return // the flags of something else
	}
	c.seen["flags"] = true
	if flags["authorization-config"] == "" {
		c.report("--authorization-config is missing: with --authorization-mode=Webhook a service that is away lets through what RBAC allows")
	}
	if flags["authorization-mode"] != "" {
		c.report("--authorization-mode and --authorization-config exclude each other: kube-apiserver does not start")
	}
	if ttl, err := time.ParseDuration(flags["authentication-token-webhook-cache-ttl"]); err != nil || ttl > maxTokenTTL {
		c.report("--authentication-token-webhook-cache-ttl must be at most %v: a revoked token counts for that long (default 2m)", maxTokenTTL)
	}
	if version := flags["authentication-token-webhook-version"]; version != "v1" {
		c.report("--authentication-token-webhook-version=v1 is missing: kube-apiserver would send v1beta1")
	}
	if flags["admission-control-config-file"] == "" {
		c.report("--admission-control-config-file is missing: kube-apiserver shows no certificate to admission webhooks")
	}
	for _, prefix := range []string{"oidc-username-prefix", "oidc-groups-prefix"} {
		if flags["oidc-issuer-url"] != "" && (flags[prefix] == "-" || makesReserved(flags[prefix])) && (prefix == "oidc-username-prefix" && flags[prefix] != "" || flags["oidc-groups-claim"] != "") {
			c.report("--%s=%s: a claim may say system: or %s", prefix, flags[prefix], tenant.GroupPrefix)
		}
	}
	for plugin := range strings.SplitSeq(flags["disable-admission-plugins"], ",") {
		if slices.Contains([]string{"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook", "ValidatingAdmissionPolicy"}, plugin) {
			c.report("--disable-admission-plugins=%s: nothing is refused", plugin)
		}
	}
}

// checkAuthorization looks at the order of authorizers, and who of the control plane is held up.
func (c *checker) checkAuthorization(doc []byte) error {
	config, err := load.LoadFromData(doc)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(config.Authorizers, func(a apiserver.AuthorizerConfiguration) bool { return a.Type == "Webhook" && a.Name == authorizerName })
	if at < 0 {
		c.report("no webhook authorizer named kubetenant")
		return nil
	}
	for _, before := range config.Authorizers[:at] {
		c.report("authorizer %s stands before the service: what it allows never meets the boundary", before.Name)
	}
	for _, after := range config.Authorizers[at+1:] {
		if after.Type == "AlwaysAllow" {
			c.report("authorizer %s allows all that the boundary leaves to it", after.Name)
		}
	}
	w := config.Authorizers[at].Webhook
	if w.FailurePolicy != apiserver.FailurePolicyDeny {
		c.report("failurePolicy %s: with the service away, RBAC decides alone, across tenants", w.FailurePolicy)
	}
	if w.CacheAuthorizedRequests || w.CacheUnauthorizedRequests {
		c.report("decisions are remembered: cacheAuthorizedRequests and cacheUnauthorizedRequests must be false, or grants and namespaces outlive their end")
	}
	if is, err := matchConditions(doc); err != nil || !equality.Semantic.DeepEqual(is, c.conditions) {
		c.report("matchConditions differ from what generate writes")
	}
	return c.checkExempt(context.Background(), w.MatchConditions)
}

// checkExempt asks the match conditions about those who must, and those who must not, pass by the service.
func (c *checker) checkExempt(ctx context.Context, conditions []apiserver.WebhookMatchCondition) error {
	matcher, errs := validation.ValidateAndCompileMatchConditions(authorizationcel.NewDefaultCompiler(), conditions)
	if len(errs) > 0 {
		return errs.ToAggregate()
	}
	asked := func(name string, groups []string, path string) bool {
		if matcher == nil {
			return true
		}
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: name, Groups: groups}}
		if path != "" {
			review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"}
		} else {
			review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Namespace: "default", Version: "v1"}
		}
		matches, err := matcher.Eval(ctx, review)
		return err != nil || matches
	}
	for _, name := range []string{"system:kube-controller-manager", "system:kube-scheduler", "system:serviceaccount:kube-system:namespace-controller",
		serviceaccount.MakeUsername(c.namespace, webhookAccount), serviceaccount.MakeUsername(c.namespace, controllerAccount)} {
		if asked(name, nil, "") {
			c.report("matchConditions hold up %s: the control plane waits for the service, and the service for the control plane", name)
		}
	}
	if asked("system:node:n", []string{user.NodesGroup}, "") {
		c.report("matchConditions hold up the nodes (group %s): they cannot start the service", user.NodesGroup)
	}
	for _, path := range probes() {
		if asked(user.Anonymous, []string{user.AllUnauthenticated}, path) {
			c.report("matchConditions hold up probes of %s: the kubelet restarts kube-apiserver while the service is away", path)
		}
	}
	for _, other := range []struct {
		name   string
		groups []string
	}{{"alice", nil}, {"alice", []string{user.AllAuthenticated}}, {"alice", []string{tenant.GroupPrefix + "acme"}}, {user.Anonymous, []string{user.AllUnauthenticated}},
		{"system:serviceaccount:acme--web:default", []string{"system:serviceaccounts", "system:serviceaccounts:acme--web"}}, {"system:nodes", nil}, {"system:masters", nil}} {
		if !asked(other.name, other.groups, "") {
			c.report("matchConditions let %s with groups %q pass by the service", other.name, other.groups)
		}
	}
	return nil
}

// checkAuthentication looks at what kube-apiserver makes of JWTs itself.
func (c *checker) checkAuthentication(config *apiserverv1.AuthenticationConfiguration) {
	// A string and more: 'oidc:' + claims.sub
	literalPrefix := regexp.MustCompile(`^\s*(["'])([^"'\\]*)["']\s*\+`)
	for i, jwt := range config.JWT {
		m := jwt.ClaimMappings
		for _, extra := range m.Extra {
			if domain, _, _ := strings.Cut(extra.Key, "/"); domain == tenant.Domain {
				c.report("jwt[%d]: maps a claim to the extra %s: whoever signs the token chooses the tenant", i, extra.Key)
			}
		}
		for field, mapping := range map[string]apiserverv1.PrefixedClaimOrExpression{"username": m.Username, "groups": m.Groups} {
			switch prefix := mapping.Prefix; {
			case mapping.Expression != "":
				if m := literalPrefix.FindStringSubmatch(mapping.Expression); m == nil || makesReserved(m[2]) {
					c.report("jwt[%d]: the expression of %s does not begin with a literal prefix: it may make system: or tenant: names", i, field)
				}
			case mapping.Claim == "":
			case prefix == nil || *prefix == "":
				c.report("jwt[%d]: %s has no prefix: a claim may say system: or %s", i, field, tenant.GroupPrefix)
			case makesReserved(*prefix):
				c.report("jwt[%d]: the prefix %q of %s makes reserved names", i, *prefix, field)
			}
		}
	}
}

// makesReserved reports whether something behind a prefix makes a reserved name.
func makesReserved(prefix string) bool {
	for _, reserved := range []string{"system:", tenant.GroupPrefix} {
		if strings.HasPrefix(prefix, reserved) || strings.HasPrefix(reserved, prefix) {
			return true
		}
	}
	return false
}

func (c *checker) checkKubeconfig(config *clientcmdapiv1.Config) {
	for _, cluster := range config.Clusters {
		if cluster.Cluster.InsecureSkipTLSVerify || !strings.HasPrefix(cluster.Cluster.Server, "https://") {
			c.report("cluster %s is not reached by verified https: whoever is on the way decides", cluster.Name)
		}
	}
	for _, u := range config.AuthInfos {
		if u.AuthInfo.ClientCertificate == "" && len(u.AuthInfo.ClientCertificateData) == 0 {
			c.report("user %s has no client certificate: the service does not answer", u.Name)
		}
	}
}

// ErrFound says that something was found.
var ErrFound = errors.New("the set is not safe to install")
