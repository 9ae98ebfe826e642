package main

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant"
	"github.com/kubetenant/kubetenant/authz"
	live "github.com/kubetenant/kubetenant/cluster"
	"github.com/kubetenant/kubetenant/cluster/tenantquota"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/deploy"
	"github.com/kubetenant/kubetenant/internal/serving/certificates"
	"github.com/kubetenant/kubetenant/internal/webhook/service"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TestMetricsExist: each metric that the dashboard, the alerts and the page name is
// one that the service has.
func TestMetricsExist(t *testing.T) {
	var known []string
	register := func(r metrics.Registerable) error {
		known = append(known, r.FQName())
		return nil
	}
	stack, err := kubetenant.New(t.Context(), &configv1alpha1.Settings{}, kubetenant.Server{
		Register: register,
		Cluster: kubetenant.Cluster{
			Owners: authz.NewOwners(corelisters.NewNamespaceLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)).Get, nil),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := service.New(service.Options{Stack: stack, Register: register}); err != nil {
		t.Fatal(err)
	}
	quotas, err := tenantquota.New(dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{
			v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas): "TenantQuotaList",
		}))
	if err != nil {
		t.Fatal(err)
	}
	measures, err := quotas.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := tenants.New(dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{
			v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants):            "TenantList",
			v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceNamespaceTemplates): "NamespaceTemplateList",
			v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers):      "TenantMembersList",
			v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceRetiredTenants):     "RetiredTenantList",
		}), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range append(measures, objects.Metrics()...) {
		known = append(known, m.FQName())
	}
	for _, m := range live.NewDefinitionMonitor(nil).Metrics() {
		known = append(known, m.FQName())
	}
	known = append(known, certificateExpiry, clientCertificateExpiry, stateCurrent, leadingMetric, lackingMetric,
		certificates.New(nil, "", nil).Due.FQName())
	named := regexp.MustCompile(`kubetenant_[a-z_]+`)
	check := func(where, text string) {
		for _, name := range named.FindAllString(text, -1) {
			if base := strings.TrimSuffix(name, "_bucket"); !slices.Contains(known, base) {
				t.Errorf("%s names %s, which is not one of %v", where, name, known)
			}
		}
	}
	data, err := deploy.Files.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	queries := 0
	for _, p := range dashboard.Panels {
		for _, q := range p.Targets {
			queries++
			if !named.MatchString(q.Expr) {
				t.Errorf("dashboard, %s: %q names no metric", p.Title, q.Expr)
			}
			check("dashboard, "+p.Title, q.Expr)
		}
	}
	if queries < 10 {
		t.Errorf("%d queries", queries)
	}
	alerts, err := deploy.Files.ReadFile("chart/templates/monitoring.yaml")
	if err != nil {
		t.Fatal(err)
	}
	check("alerts", string(alerts))
	page, err := os.ReadFile("../../docs/webhook.md")
	if err != nil {
		t.Fatal(err)
	}
	check("docs/webhook.md", string(page))
	for _, name := range known { // and the page leaves none out
		if !strings.Contains(string(page), name) {
			t.Errorf("docs/webhook.md does not name %s", name)
		}
	}
}
