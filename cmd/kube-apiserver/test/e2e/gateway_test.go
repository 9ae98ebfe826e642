// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/cli/isolation"
	"github.com/kubetenant/kubetenant/internal/fairuse"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// gatewayTenancy is the configuration of a gateway in front of one cluster.
const gatewayTenancy = `apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication:
  revocation: { path: revoked.yaml }
  sources:
  - { name: certs, x509: { clientCAFile: pki/ca.crt } }
  - { name: tokens, tokenFile: { path: tokens.csv, defaultTenant: "" } }
admission: { gate: { mode: Enforce } }
gateway:
  audit: { policyFile: audit-policy.yaml, logPath: audit.log }
  views:
    objects:
    - name: resourcetrackers
      of: { group: core.oam.dev, version: v1beta1, resource: resourcetrackers }
      namespaceFrom: spec.managedResources[*].namespace
      fields: [spec.type, "spec.managedResources[*].kind", "spec.managedResources[*].name"]
  clusters:
  - name: local
    root: true
    tenants: ["*", system]
    reader: { kubeConfigFile: kubetenant-gateway-reader.kubeconfig }
    impersonator: { kubeConfigFile: kubetenant-gateway-impersonator.kubeconfig }
    serviceAccounts: { tokens: Pass, issuers: ["https://kubernetes.default.svc"] }
`

// startGateway starts upstream's kube-apiserver without any flag of kubetenant, and the gateway in
// front of it.
func startGateway(t *testing.T) *server {
	t.Helper()
	return startServer(t, map[string]string{
		"tenancy.yaml":      gatewayTenancy,
		"revoked.yaml":      noRevocations,
		"tokens.csv":        "CANARY-token,alice,u1,\"dev\",,acme\n",
		"audit-policy.yaml": auditPolicy,
	}, "--gateway")
}

// TestGateway checks requests of tenants through the gateway. The kube-apiserver behind it is not
// configured for tenants.
func TestGateway(t *testing.T) {
	t.Parallel()
	s := startGateway(t)
	s.prepare(t)
	t.Run("namespaces are filtered", func(t *testing.T) { namespacesAreFiltered(t, s) })
	t.Run("a namespace from a file", func(t *testing.T) { namespaceIsApplied(t, s) })
	t.Run("self reviews agree", func(t *testing.T) { selfReviewsAgree(t, s) })
	t.Run("service accounts", func(t *testing.T) { serviceAccountTokensAreForwarded(t, s) })
	t.Run("impersonation by a caller", func(t *testing.T) { impersonationNeedsBothDecisions(t, s) })
	t.Run("lists over all namespaces", func(t *testing.T) { listsAreLimited(t, s) })
	t.Run("kubectl connects", func(t *testing.T) { kubectlConnects(t, s) })
	t.Run("streams end", func(t *testing.T) { streamsEnd(t, s) })
	t.Run("reviews are delegated", func(t *testing.T) {
		delegateReviews(t, s)
		reviewsAreDelegated(t, s)
	})
	t.Run("rules", func(t *testing.T) { rulesAreListed(t, s) })
	t.Run("views of objects", func(t *testing.T) { objectsAreViewed(t, s) })
	t.Run("around the gateway", func(t *testing.T) { bypassIsDenied(t, s) })
	t.Run("without the webhooks", func(t *testing.T) { unverifiedLabels(t, s) })
	t.Run("grants", func(t *testing.T) { grantsApply(t, s) })
	t.Run("constrained impersonation", func(t *testing.T) { constrainedImpersonation(t, s) })
	t.Run("fair use", func(t *testing.T) { fairUseIsEnforced(t, s, fairuse.Limits{InFlight: 64, Watches: 200}) })
	t.Run("the audit log", func(t *testing.T) { gatewayAudits(t, s) })
}

// serviceAccountTokensAreForwarded checks that the gateway accepts service account tokens of the
// cluster and forwards them unchanged, and that it enforces the boundary for their callers.
func serviceAccountTokensAreForwarded(t *testing.T, s *server) {
	admin := s.client(t, "admin")
	account(t, admin, "acme--web")
	token := request(t, admin, "acme--web", authenticationv1.TokenRequestSpec{})
	asRobot := withToken(s.config(t, "acme"), token)
	robot := client(t, asRobot)
	u, err := whoami(t.Context(), asRobot)
	if err != nil || u.Username != "system:serviceaccount:acme--web:robot" ||
		strings.Contains(strings.Join(u.Groups, " "), "tenant:") {
		t.Errorf("%+v, %v", u, err)
	}
	if _, err := robot.CoreV1().Pods("globex--shop").List(t.Context(),
		metav1.ListOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "tenant boundary") {
		t.Errorf("another tenant's namespace: %v", err)
	}
	for what, token := range map[string]string{"truncated": token[:len(token)-3], "unknown": "x"} {
		if _, err := client(t, withToken(s.config(t, "acme"), token)).CoreV1().Pods("acme--web").List(t.Context(),
			metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s token: %v", what, err)
		}
	}
}

// impersonationNeedsBothDecisions checks that a tenant's caller may impersonate a user only if both
// the cluster's RBAC and the tenant boundary allow it.
func impersonationNeedsBothDecisions(t *testing.T, s *server) {
	as := func(name string) error {
		c := s.config(t, "acme")
		c.Impersonate = rest.ImpersonationConfig{UserName: name}
		_, err := client(t, c).CoreV1().Pods("acme--web").List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := as("bob"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot impersonate") {
		t.Errorf("without an RBAC rule: %v", err)
	}
	admin := s.client(t, "admin")
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "acme-impersonates"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"users"}, Verbs: []string{"impersonate"}},
		},
	}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bind(t, admin, role.Name, role.Name,
		rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "tenant:acme"})
	waittest.Until(t, func() error { return as("bob") })
	if err := as("system:admin"); !apierrors.IsForbidden(err) {
		t.Errorf("as a system user: %v", err)
	}
	if err := as("system:serviceaccount:globex--shop:default"); !apierrors.IsForbidden(err) {
		t.Errorf("as another tenant's account: %v", err)
	}
}

// listsAreLimited checks that a tenant's list over all namespaces contains only objects of the
// tenant. It also checks that the tenant cannot continue the list of another caller, or delete
// objects in all namespaces.
func listsAreLimited(t *testing.T, s *server) {
	for name, namespace := range map[string]string{"acme": "acme--web", "globex": "globex--shop"} {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "of-" + name}}
		if _, err := s.client(t, name).CoreV1().ConfigMaps(namespace).Create(t.Context(),
			cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	waittest.Until(t, func() error { // until existing objects have the tenant label
		all, err := s.client(t, "acme").CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		own := false
		for i := range all.Items {
			own = own || all.Items[i].Name == "of-acme"
			if !strings.HasPrefix(all.Items[i].Namespace, "acme--") {
				t.Fatalf("the list contains %s in %s", all.Items[i].Name, all.Items[i].Namespace)
			}
		}
		if !own {
			return fmt.Errorf("%d ConfigMaps, but not of-acme", len(all.Items))
		}
		return nil
	})
	root, err := s.client(t, "admin").CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil || root.Continue == "" {
		t.Fatalf("%+v, %v", root.ListMeta, err)
	}
	if all, err := s.client(t, "acme").CoreV1().ConfigMaps("").List(t.Context(),
		metav1.ListOptions{Continue: root.Continue}); !apierrors.IsResourceExpired(err) {
		t.Errorf("the rest of another caller's list: %d objects, %v", len(all.Items), err)
	}
	if err := s.client(t, "acme").CoreV1().RESTClient().Delete().Resource("configmaps").
		Do(t.Context()).Error(); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a deletion over all namespaces: %v", err)
	}
	if _, err := s.client(t, "globex").CoreV1().ConfigMaps("globex--shop").Get(t.Context(),
		"of-globex", metav1.GetOptions{}); err != nil {
		t.Errorf("another tenant's object: %v", err)
	}
}

// rulesAreListed checks that "kubectl auth can-i --list" works for a namespace of the caller's
// tenant, and is denied for a namespace of another tenant.
func rulesAreListed(t *testing.T, s *server) {
	if out, err := s.kubectl(t, "acme", "auth", "can-i", "--list", "-n", "acme--web"); err != nil ||
		!strings.Contains(out, "configmaps") || strings.Contains(out, "TenantGate") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := s.kubectl(t, "acme", "auth", "can-i", "--list", "-n", "globex--shop"); err == nil ||
		!strings.Contains(out, "does not belong to the caller's tenant") {
		t.Errorf("another tenant's namespace: %s", out)
	}
}

// bypassIsDenied checks that a caller that bypasses the gateway may not write, delete or connect in
// another tenant's namespaces, even if its roles allow everything. It also checks that the tenant's
// service account may not create a ClusterRole.
func bypassIsDenied(t *testing.T, s *server) {
	admin := s.client(t, "admin")
	bind(t, admin, "robot-reaches-across", "cluster-admin",
		rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "acme--web", Name: "robot"},
		rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "cloud:someone"})
	defer func() {
		_ = admin.RbacV1().ClusterRoleBindings().Delete(context.WithoutCancel(t.Context()),
			"robot-reaches-across", metav1.DeleteOptions{})
	}()
	newConfigMap := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for _, namespace := range []string{"globex--shop", "acme--web"} {
		if _, err := admin.CoreV1().ConfigMaps(namespace).Create(t.Context(),
			newConfigMap("there"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	robot := client(t,
		withToken(s.config(t, "admin"), request(t, admin, "acme--web", authenticationv1.TokenRequestSpec{})))
	someone := s.clientAs(t, "cloud:someone")
	waittest.Until(t, func() error { // until the binding takes effect
		_, err := robot.CoreV1().ConfigMaps("globex--shop").Get(t.Context(), "there", metav1.GetOptions{})
		return err
	})
	exec := func(k *kubernetes.Clientset, namespace string) error {
		return k.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name("none").SubResource("exec").
			Param("command", "id").Param("stdout", "true").Do(t.Context()).Error()
	}
	for caller, k := range map[string]*kubernetes.Clientset{
		"tenant's service account": robot,
		"user without a tenant":    someone,
	} {
		for what, err := range map[string]error{
			"create": func() error {
				_, err := k.CoreV1().ConfigMaps("globex--shop").Create(t.Context(), newConfigMap("new"), metav1.CreateOptions{})
				return err
			}(),
			"patch": func() error {
				_, err := k.CoreV1().ConfigMaps("globex--shop").Patch(t.Context(), "there", types.MergePatchType,
					[]byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
				return err
			}(),
			"delete": k.CoreV1().ConfigMaps("globex--shop").Delete(t.Context(), "there", metav1.DeleteOptions{}),
			"deletecollection": k.CoreV1().ConfigMaps("globex--shop").DeleteCollection(t.Context(),
				metav1.DeleteOptions{}, metav1.ListOptions{}),
			"exec": exec(k, "globex--shop"),
		} {
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "TenantGate") {
				t.Errorf("%s: %s: %v", caller, what, err)
			}
		}
	}
	if err := robot.CoreV1().ConfigMaps("acme--web").Delete(t.Context(), "there", metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete in its own namespace: %v", err)
	}
	if err := exec(robot, "acme--web"); !apierrors.IsNotFound(err) {
		t.Errorf("exec in its own namespace: %v", err)
	}
	if _, err := robot.RbacV1().ClusterRoles().Create(t.Context(),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "robots"}},
		metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("create a ClusterRole: %v", err)
	}
	if _, err := someone.CoreV1().ConfigMaps("default").Create(t.Context(),
		newConfigMap("new"), metav1.CreateOptions{}); err != nil {
		t.Errorf("user without a tenant in a namespace without a tenant: %v", err)
	}
	if err := admin.CoreV1().ConfigMaps("globex--shop").Delete(t.Context(), "there", metav1.DeleteOptions{}); err != nil {
		t.Errorf("the cluster's admin: %v", err)
	}
}

// unverifiedLabels checks that tenants may neither write Namespaces nor list objects of all
// namespaces while the admission webhook does not check all writes.
func unverifiedLabels(t *testing.T, s *server) {
	admin := s.client(t, "admin")
	hooks := admin.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	original, err := hooks.Get(t.Context(), "kubetenant", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	acme := s.client(t, "acme")
	writes := func() error {
		_, err := acme.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "acme--forged"}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	waittest.Until(t, writes)
	narrowed := original.DeepCopy()
	narrowed.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	if _, err := hooks.Update(t.Context(), narrowed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error {
		if err := writes(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "webhook service") {
			return fmt.Errorf("a Namespace is written: %w", err)
		}
		if _, err := acme.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			return fmt.Errorf("a list over all namespaces: %w", err)
		}
		return nil
	})
	if _, err := acme.CoreV1().ConfigMaps("acme--web").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list in the caller's namespace: %v", err)
	}
	now, err := hooks.Get(t.Context(), "kubetenant", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now.Webhooks = original.Webhooks
	if _, err := hooks.Update(t.Context(), now, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, writes)
}

// gatewayAudits checks that the audit log contains the caller, the impersonated user, the decision
// and a rejected request. No token may be in the audit log or in the gateway's log.
func gatewayAudits(t *testing.T, s *server) {
	alice := client(t, withToken(s.config(t, "acme"), "CANARY-token"))
	_, _ = alice.CoreV1().Pods("globex--shop").List(t.Context(), metav1.ListOptions{}) // denied
	_, _ = client(t, withToken(s.config(t, "acme"), "CANARY-not-known")).CoreV1().Pods("acme--web").List(t.Context(),
		metav1.ListOptions{})
	log := s.read(t, "audit.log")
	for _, word := range []string{
		`"username":"alice"`, `"authorization.kubetenant.dev/decision":"deny"`, `"impersonatedUser":{"username":"bob"`,
		`"code":401`,
	} {
		if !strings.Contains(log, word) {
			t.Errorf("the audit log does not contain %s", word)
		}
	}
	if strings.Contains(log+s.read(t, "kubetenant-gateway.log"), "CANARY") {
		t.Error("a log contains a token")
	}
}

// TestGatewayIsolation checks that no resource of the server lets a tenant access another tenant's
// objects through the gateway. It runs the attacks of [isolation.Run].
func TestGatewayIsolation(t *testing.T) {
	t.Parallel()
	s := startGateway(t)
	s.apply(t, definitions)
	aggregated(t, s)
	verifyAtTheGateway(t, s)
	s.mustKubectl(t, "admin", "wait", "--for=condition=Established", "--timeout=60s",
		"crd/widgets.example.com", "crd/gadgets.example.com")
	runAttacks(t, isolation.Options{
		Admin:   s.config(t, "admin"),
		Tenants: [2]string{"acme", "globex"},
		User:    s.config(t, "acme"),
		Through: s.config(t, "acme"),
		Mode:    installation.Gateway,
	})
}

// TestGatewayPage checks that the configurations in docs/gateway.md are valid, and that its console
// sessions have the shown output.
func TestGatewayPage(t *testing.T) {
	t.Parallel()
	const page = "../../../../docs/gateway.md"
	text := readFile(t, page)
	var clusters []int
	for _, block := range strings.Split(text, "```yaml\n")[1:] {
		config, _, _ := strings.Cut(block, "```")
		if !strings.Contains(config, "kind: "+configv1alpha1.KindTenancyConfiguration+"\n") {
			continue
		}
		c, err := configv1alpha1.Decode([]byte(config))
		if err != nil || c.Gateway == nil {
			t.Errorf("a configuration of the page is not valid: %v\n%s", err, config)
			continue
		}
		clusters = append(clusters, len(c.Gateway.Clusters))
	}
	if !slices.Equal(clusters, []int{1, 2}) {
		t.Errorf("got configurations with %d clusters; want one with 1 and one with 2", clusters)
	}
	s := startServer(t, map[string]string{"tenancy.yaml": pageTenancy + viewsOfPage(t, text)}, "--gateway")
	dir := t.TempDir()
	examples, err := filepath.Abs("../../../../examples")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(examples, filepath.Join(dir, "examples")); err != nil {
		t.Fatal(err)
	}
	checkPage(t, page, newShell(t, dir, s.Kubeconfig("admin"), s.Kubeconfig("acme")))
}
