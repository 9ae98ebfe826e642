// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/load"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authentication/user"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	clientcmdapiv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/kubetenant/kubetenant/internal/serving/state"
	"github.com/kubetenant/kubetenant/tenant"
)

// checkFlags checks a file with the flags of kube-apiserver, or the file environment.txt. Each line
// contains one flag or variable.
func (c *checker) checkFlags(text string) {
	flags := map[string]string{}
	for _, line := range strings.Fields(text) {
		name, value, _ := strings.Cut(strings.TrimPrefix(line, "--"), "=")
		flags[name] = value
	}
	if filepath.Base(c.file) == "environment.txt" {
		for name, value := range state.HTTP2Timeouts() {
			c.seen["environment"] = true
			if !strings.Contains("\n"+text, "\n"+name+"="+value+"\n") {
				c.report("%s is not %s: kube-apiserver detects a replica that hangs only after 45 seconds, and denies tenants "+
					"until then",
					name, value)
			}
		}
		return
	}
	if flags["authorization-config"] == "" && flags["authorization-mode"] == "" {
		return // the flags of another program
	}
	c.seen["flags"] = true
	if flags["authorization-config"] == "" {
		c.report("--authorization-config is missing: with --authorization-mode=Webhook, RBAC alone decides while the " +
			"service is unreachable")
	}
	if flags["authorization-mode"] != "" {
		c.report("--authorization-mode and --authorization-config are mutually exclusive: kube-apiserver does not start " +
			"with both")
	}
	if ttl, err := time.ParseDuration(flags["authentication-token-webhook-cache-ttl"]); err != nil || ttl > maxTokenTTL {
		c.report("--authentication-token-webhook-cache-ttl must be at most %v: a revoked token stays valid for that long "+
			"(default 2m)", maxTokenTTL)
	}
	if version := flags["authentication-token-webhook-version"]; version != "v1" {
		c.report("--authentication-token-webhook-version=v1 is missing: without it, kube-apiserver sends v1beta1")
	}
	if flags["admission-control-config-file"] == "" {
		c.report("--admission-control-config-file is missing: without it, kube-apiserver presents no certificate to " +
			"admission webhooks")
	}
	for _, prefix := range []string{"oidc-username-prefix", "oidc-groups-prefix"} {
		if flags["oidc-issuer-url"] != "" && (flags[prefix] == "-" || allowsReserved(flags[prefix])) &&
			(prefix == "oidc-username-prefix" && flags[prefix] != "" || flags["oidc-groups-claim"] != "") {
			c.report("--%s=%s: a claim can create names that begin with system: or "+
				"%s", prefix, flags[prefix], tenant.GroupPrefix)
		}
	}
	needed := []string{"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook", "ValidatingAdmissionPolicy"}
	for plugin := range strings.SplitSeq(flags["disable-admission-plugins"], ",") {
		if slices.Contains(needed, plugin) {
			c.report("--disable-admission-plugins=%s: kubetenant cannot reject writes without this plugin", plugin)
		}
	}
}

// checkAuthorization checks an AuthorizationConfiguration: the order of authorizers, the settings
// of the webhook, and its match conditions.
func (c *checker) checkAuthorization(doc []byte) error {
	config, err := load.LoadFromData(doc)
	if err != nil {
		return err
	}
	index := slices.IndexFunc(config.Authorizers, func(a apiserver.AuthorizerConfiguration) bool {
		return a.Type == "Webhook" && a.Name == authorizerName
	})
	if index < 0 {
		c.report("there is no webhook authorizer named kubetenant")
		return nil
	}
	for _, before := range config.Authorizers[:index] {
		c.report("authorizer %s runs before the service: the requests that it allows bypass the tenant boundary", before.Name)
	}
	for _, after := range config.Authorizers[index+1:] {
		if after.Type == "AlwaysAllow" {
			c.report("authorizer %s allows every request that the tenant boundary does not deny", after.Name)
		}
	}
	w := config.Authorizers[index].Webhook
	if w.FailurePolicy != apiserver.FailurePolicyDeny {
		c.report("failurePolicy %s: while the service is unreachable, RBAC alone decides, also across "+
			"tenants", w.FailurePolicy)
	}
	if w.CacheAuthorizedRequests || w.CacheUnauthorizedRequests {
		c.report("decisions are cached: cacheAuthorizedRequests and cacheUnauthorizedRequests must be false, or old " +
			"decisions apply after a grant or namespace ends")
	}
	if installed, err := matchConditions(doc); err != nil || !equality.Semantic.DeepEqual(installed, c.conditions) {
		c.report("matchConditions differ from those that generate writes")
	}
	return c.checkExempt(context.Background(), w.MatchConditions)
}

// checkExempt evaluates the match conditions. It reports parts of the control plane whose requests
// the service would receive, and other callers whose requests bypass the service.
func (c *checker) checkExempt(ctx context.Context, conditions []apiserver.WebhookMatchCondition) error {
	matcher, errs := validation.ValidateAndCompileMatchConditions(authorizationcel.NewDefaultCompiler(), conditions)
	if len(errs) > 0 {
		return errs.ToAggregate()
	}
	isReviewed := func(name string, groups []string, path string) bool {
		if matcher == nil {
			return true
		}
		review := &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: name, Groups: groups},
		}
		if path != "" {
			review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"}
		} else {
			review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
				Verb:      "get",
				Resource:  "secrets",
				Namespace: "default",
				Version:   "v1",
			}
		}
		matches, err := matcher.Eval(ctx, review)
		return err != nil || matches
	}
	controlPlane := []string{
		"system:kube-controller-manager", "system:kube-scheduler", "system:serviceaccount:kube-system:namespace-controller",
	}
	own := accountsOf(&Options{Namespace: c.namespace, SelfManaged: c.selfManaged})
	for _, name := range append(controlPlane, own...) {
		if isReviewed(name, nil, "") {
			c.report("matchConditions do not exempt %s: the control plane and the service would wait for each other", name)
		}
	}
	if isReviewed("system:node:n", []string{user.NodesGroup}, "") {
		c.report("matchConditions do not exempt nodes (group %s): nodes could not start the service", user.NodesGroup)
	}
	for _, path := range probes() {
		if isReviewed(user.Anonymous, []string{user.AllUnauthenticated}, path) {
			c.report("matchConditions do not exempt probes of %s: the kubelet restarts kube-apiserver while the service is "+
				"unreachable", path)
		}
	}
	for _, other := range []struct {
		name   string
		groups []string
	}{
		{"alice", nil},
		{"alice", []string{user.AllAuthenticated}},
		{"alice", []string{tenant.GroupPrefix + "acme"}},
		{user.Anonymous, []string{user.AllUnauthenticated}},
		{"system:serviceaccount:acme--web:default", []string{"system:serviceaccounts", "system:serviceaccounts:acme--web"}},
		{"system:nodes", nil},
		{"system:masters", nil},
	} {
		if !isReviewed(other.name, other.groups, "") {
			c.report("matchConditions exempt %s with groups %q from the service", other.name, other.groups)
		}
	}
	return nil
}

// checkAuthentication checks the JWT authenticators of kube-apiserver. It reports claims that can
// choose a tenant or create reserved names.
func (c *checker) checkAuthentication(config *apiserverv1.AuthenticationConfiguration) {
	// Matches an expression that begins with a literal string, such as 'oidc:' + claims.sub.
	literalPrefix := regexp.MustCompile(`^\s*(["'])([^"'\\]*)["']\s*\+`)
	for i, jwt := range config.JWT {
		m := jwt.ClaimMappings
		for _, extra := range m.Extra {
			if domain, _, _ := strings.Cut(extra.Key, "/"); domain == tenant.Domain {
				c.report("jwt[%d]: a claim is mapped to the extra %s, so the signer of the token chooses the tenant", i, extra.Key)
			}
		}
		for field, mapping := range map[string]apiserverv1.PrefixedClaimOrExpression{
			"username": m.Username,
			"groups":   m.Groups,
		} {
			if mapping.Expression != "" {
				if m := literalPrefix.FindStringSubmatch(mapping.Expression); m == nil || allowsReserved(m[2]) {
					c.report("jwt[%d]: the expression of %s does not begin with a literal prefix: it can create names that begin "+
						"with system: or tenant:", i, field)
				}
				continue
			}
			if mapping.Claim == "" {
				continue
			}
			switch prefix := mapping.Prefix; {
			case prefix == nil || *prefix == "":
				c.report("jwt[%d]: %s has no prefix: a claim can create names that begin with system: or "+
					"%s", i, field, tenant.GroupPrefix)
			case allowsReserved(*prefix):
				c.report("jwt[%d]: the prefix %q of %s creates reserved names", i, *prefix, field)
			}
		}
	}
}

// allowsReserved reports whether a name with the given prefix can be reserved.
func allowsReserved(prefix string) bool {
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
			c.report("cluster %s is not contacted over verified HTTPS: an attacker on the network could forge "+
				"decisions", cluster.Name)
		}
	}
	for _, u := range config.AuthInfos {
		if u.AuthInfo.ClientCertificate == "" && len(u.AuthInfo.ClientCertificateData) == 0 {
			c.report("user %s has no client certificate: the service refuses the connection", u.Name)
		}
	}
}
