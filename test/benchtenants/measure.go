// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// latencies creates namespaces one after another. It prints percentiles of the time until a
// namespace was prepared.
func (b *bench) latencies(ctx context.Context, what string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	prepared := make(chan string, probes)
	factory := informers.NewSharedInformerFactory(b.kube, 0)
	watched := factory.Core().V1().Namespaces().Informer()
	if _, err := watched.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, updated any) {
		before, now := old.(*corev1.Namespace), updated.(*corev1.Namespace)
		if strings.Contains(now.Name, busy) && before.Annotations[tenant.PreparedAnnotation] == "" &&
			now.Annotations[tenant.PreparedAnnotation] != "" {
			prepared <- now.Name
		}
	}}); err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	defer stop()
	if !cache.WaitForCacheSync(ctx.Done(), watched.HasSynced) {
		return ctx.Err()
	}
	var took []time.Duration
	for i := range probes {
		tenantName := fmt.Sprintf("t%d", i)
		name := tenantName + "--" + busy + strconv.FormatInt(time.Now().UnixNano(), 36)
		began := time.Now()
		if err := b.namespace(ctx, name, tenantName); err != nil {
			return err
		}
		for done := ""; done != name; {
			select {
			case done = <-prepared:
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Minute):
				return fmt.Errorf("%s is not prepared after a minute", name)
			}
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	fmt.Printf("%s: p50 %s, p99 %s, worst %s, from its creation to the annotation seen by a watch\n", what,
		took[probes/2].Round(time.Millisecond), took[probes*99/100].Round(time.Millisecond),
		took[probes-1].Round(time.Millisecond))
	return nil
}

// each applies a patch to b.changed Tenants.
func (b *bench) each(ctx context.Context, patch string) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(parallel)
	for i := range b.changed {
		all.Go(func() error {
			_, err := b.dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)).Patch(ctx,
				fmt.Sprintf("t%d", b.tenants-1-i), types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
			return err
		})
	}
	return all.Wait()
}

// lessAdmins removes an admin from b.changed Tenants.
func (b *bench) lessAdmins(ctx context.Context) error {
	return b.each(ctx, `[{"op":"remove","path":"/spec/admins/0"}]`)
}

// nameTemplate adds the name of the template to b.changed Tenants.
func (b *bench) nameTemplate(ctx context.Context) error {
	return b.each(ctx, `[{"op":"add","path":"/spec/namespaces","value":{"templates":["std"]}}]`)
}

// template creates or changes the NamespaceTemplate. It contains one NetworkPolicy with the given
// label value.
func (b *bench) template(ctx context.Context, value string) error {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion,
		"kind":       v1alpha1.KindNamespaceTemplate,
		"metadata":   map[string]any{"name": "std"},
		"spec": map[string]any{"objects": []any{map[string]any{
			"apiVersion": "networking.k8s.io/v1",
			"kind":       "NetworkPolicy",
			"metadata":   map[string]any{"name": "own", "labels": map[string]any{"v": value}},
			"spec": map[string]any{
				"podSelector": map[string]any{},
				"ingress": []any{
					map[string]any{
						"from": []any{
							map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{tenant.Label: "${tenant}"}}},
						},
					},
				},
			},
		}}},
	}}
	_, err := b.dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceNamespaceTemplates)).
		Apply(ctx, "std", u,
			metav1.ApplyOptions{FieldManager: "bench", Force: true})
	return err
}

// change makes a change that affects many namespaces, and measures new namespaces at the same time.
func (b *bench) change(ctx context.Context, what string, write func(context.Context) error) error {
	before := map[string]string{}
	list, err := b.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: tenant.Label})
	if err != nil {
		return err
	}
	for i := range list.Items {
		before[list.Items[i].Name] = list.Items[i].Annotations[tenant.PreparedAnnotation]
	}
	wrote, err := b.written(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error {
		if err := write(ctx); err != nil {
			return err
		}
		n := b.changed * perTenant
		if err := b.await(ctx, n, func(ns *corev1.Namespace) bool {
			was, had := before[ns.Name]
			return had && was != ns.Annotations[tenant.PreparedAnnotation]
		}); err != nil {
			return err
		}
		fmt.Printf("%s %d namespaces: ", what, n)
		return b.tellWrites(ctx, began, wrote)
	})
	both.Go(func() error { return b.latencies(ctx, "a new namespace beside that") })
	return both.Wait()
}

// restarts restarts the server. It prints the time until the server works again, the writes of its
// controllers, and its load without changes.
func (b *bench) restarts(ctx context.Context, start func(more ...string) error) error {
	before, err := b.versions(ctx)
	if err != nil {
		return err
	}
	if err := b.server.Stop(); err != nil {
		return err
	}
	began := time.Now()
	if err := start(); err != nil {
		return err
	}
	ready := time.Since(began)
	name := "t0--again"
	if err := b.namespace(ctx, name, "t0"); err != nil {
		return err
	}
	for {
		ns, err := b.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if ns.Annotations[tenant.PreparedAnnotation] != "" {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	works := time.Since(began)
	time.Sleep(quiet)
	after, err := b.versions(ctx)
	if err != nil {
		return err
	}
	written := 0
	for key, version := range after {
		if was, had := before[key]; had && was != version {
			written++
		}
	}
	fmt.Printf("a restart: ready after %s, a namespace prepared after %s, %d of %d objects written\n",
		ready.Round(100*time.Millisecond), works.Round(100*time.Millisecond), written, len(before))
	with, err := b.cost(ctx)
	if err != nil {
		return err
	}
	if err := b.server.Stop(); err != nil {
		return err
	}
	if err := start("--tenancy=false"); err != nil {
		return err
	}
	time.Sleep(quiet)
	without, err := b.cost(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("while nothing changes: %.2f %% of a core, without tenancy %.2f %%\n", with, without)
	return nil
}

// versions returns the resourceVersions of the objects that the server's controllers write.
func (b *bench) versions(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	namespaces, err := b.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range namespaces.Items {
		out["ns/"+namespaces.Items[i].Name] = namespaces.Items[i].ResourceVersion
	}
	bindings, err := b.kube.RbacV1().RoleBindings("").List(ctx, metav1.ListOptions{LabelSelector: tenant.ManagedLabel})
	if err != nil {
		return nil, err
	}
	for i := range bindings.Items {
		out[bindings.Items[i].Namespace+"/"+bindings.Items[i].Name] = bindings.Items[i].ResourceVersion
	}
	policies, err := b.kube.NetworkingV1().NetworkPolicies("").List(ctx,
		metav1.ListOptions{LabelSelector: tenant.ManagedLabel})
	if err != nil {
		return nil, err
	}
	for i := range policies.Items {
		out["policy/"+policies.Items[i].Namespace] = policies.Items[i].ResourceVersion
	}
	return out, nil
}

// cost returns the processor usage of the server over a period, in percent of a core.
func (b *bench) cost(ctx context.Context) (float64, error) {
	cpu := func(name string, _ map[string]string) bool { return name == "process_cpu_seconds_total" }
	before, err := b.metric(ctx, cpu)
	if err != nil {
		return 0, err
	}
	time.Sleep(quiet)
	after, err := b.metric(ctx, cpu)
	return (after - before) / quiet.Seconds() * 100, err
}

// written returns the number of writes by the server's controllers since the server started, from
// the metrics of the server. These are writes of bindings, of objects from templates, of Namespace
// annotations and of Tenant statuses. The benchmark itself makes none of these writes.
func (b *bench) written(ctx context.Context) (float64, error) {
	return b.metric(ctx, func(name string, labels map[string]string) bool {
		if name != "apiserver_request_total" || !strings.HasPrefix(labels["code"], "2") {
			return false
		}
		switch labels["resource"] {
		case "configmaps", "networkpolicies", "rolebindings", "roles", "secrets":
			return slices.Contains([]string{"POST", "PUT", "PATCH", "DELETE"}, labels["verb"])
		case "namespaces":
			return labels["verb"] == "PATCH"
		}
		status := []string{v1alpha1.ResourcePublications, v1alpha1.ResourceTenants}
		return slices.Contains(status, labels["resource"]) && labels["subresource"] == "status" &&
			labels["verb"] == "PATCH"
	})
}

// metric returns the sum of the server's counters that the function is selects.
func (b *bench) metric(
	ctx context.Context, is func(name string, labels map[string]string) bool,
) (sum float64, err error) {
	text, err := b.kube.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if is(name, labels) {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum, nil
}
