// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package controller contains the controllers of the webhook deployment mode. They run only in the
// process that is the leader.
package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster"
	"github.com/kubetenant/kubetenant/cluster/flowschemas"
	"github.com/kubetenant/kubetenant/cluster/publication"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/serving/leader"
	"github.com/kubetenant/kubetenant/internal/serving/state"
	"github.com/kubetenant/kubetenant/plugins/label"
)

// publishInterval is the interval at which the progress of the backfill is published to the
// replicas of the service.
const publishInterval = time.Second

const fieldManager = "kubetenant-controller"

// Tasks contains the tasks of the leader of the webhook controller.
//
//   - Backfill labels the objects that were stored without the webhooks. It starts after the
//     webhooks are installed, and publishes the completed resources in a ConfigMap for the service.
//   - Quotas records how much of their quotas the tenants use.
//   - Provision creates the objects that Tenants specify for the tenants' namespaces. Backfill must
//     be running.
//   - Retire deletes the objects of tenants whose Tenant objects are being deleted, as the deletion
//     policy specifies. Provision must be running.
//   - Report reports the CustomResourceDefinitions of kubetenant that cannot be used. Backfill must
//     be running.
//   - Projects synchronizes the projects of a Keystone server. Provision must be running.
//   - FlowSchemas maintains the FlowSchemas of tenants. Provision must be running.
//   - Stored measures the size of the stored objects of tenants.
type Tasks struct {
	Backfill, Quotas, Provision, Retire, Report, Projects, FlowSchemas, Stored leader.Task
	// Definitions is a readiness check. It returns an error that names the
	// CustomResourceDefinitions that the leader cannot use. It returns nil if this process is not
	// the leader.
	Definitions func() error
	// Metrics are the metrics of Report, Provision, Projects, FlowSchemas and Stored.
	Metrics []metrics.Registerable
	// Unlabeled returns the number of resources that have objects without the tenant label.
	Unlabeled func() int
}

// NewTasks returns the tasks. The namespaces in system belong to the system tenant. published
// specifies the objects that Publications may copy. followed returns the Keystone source whose
// projects are synchronized, or nil. No task sends a request before it runs.
func NewTasks(
	config *rest.Config, namespace string, system []string, published *configv1alpha1.PublicationRules,
	followed func() *configv1alpha1.Source,
) (*Tasks, error) {
	clients, err := cluster.NewClients(config)
	if err != nil {
		return nil, err
	}
	manager, err := cluster.NewManager(config)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(clients.Typed, 0)
	c, err := cluster.New(clients, factory)
	if err != nil {
		return nil, err
	}
	c.Owners().Reserve(system)
	rules := publication.RulesOf(published, func(r schema.GroupResource) bool {
		return authz.Scopes{Custom: c.CRDs.ResourceScope}.Of(r) == authz.ScopeNamespaced
	})
	flows := flowschemas.NewMetrics()
	return &Tasks{
		Unlabeled: func() (n int) {
			for _, unlabeled := range c.Backfill.Results() {
				n += min(1, len(unlabeled))
			}
			return n
		},
		Backfill: func(ctx context.Context) error {
			factory.StartWithContext(ctx)
			go c.CRDs.Run(ctx)
			return backfill(ctx, c, namespace)
		},
		Quotas: func(ctx context.Context) error {
			factory.StartWithContext(ctx)
			go c.QuotaStore.Run(ctx)
			return c.CountQuotas(ctx)
		},
		Provision: func(ctx context.Context) error {
			go c.TenantStore.Run(ctx)
			// kube-apiserver evaluates RBAC itself.
			return c.Provision(ctx, manager, nil, nil, func() *publication.Rules { return rules }, namespace)
		},
		Retire:      func(ctx context.Context) error { return c.Retire(ctx, manager) },
		Report:      func(ctx context.Context) error { return c.ReportDefinitions(ctx, manager) },
		Projects:    func(ctx context.Context) error { return c.FollowProjects(ctx, manager, followed) },
		FlowSchemas: func(ctx context.Context) error { return c.MaintainFlowSchemas(ctx, flows) },
		Stored:      func(ctx context.Context) error { return c.MeasureStored(ctx) },
		Metrics: slices.Concat(c.Definitions.Metrics(), c.Published.Metrics(), c.Projects.Metrics(),
			flows.Metrics(), c.Stored.Registerables()),
		Definitions: func() error { return definitionsError(c.CRDs) },
	}, nil
}

// definitionsError returns an error that names the CustomResourceDefinitions that cannot be used.
// It returns nil while the definitions are not being followed.
func definitionsError(definitions *cluster.CRDScopes) error {
	problems, _ := definitions.Problems()
	if len(problems) == 0 {
		return nil
	}
	texts := make([]string, len(problems))
	for i := range problems {
		texts[i] = problems[i].String()
	}
	return fmt.Errorf("%s: run %s", strings.Join(texts, "; "), cluster.InstallDefinitions)
}

func backfill(ctx context.Context, c *cluster.Cluster, namespace string) error {
	webhooks := state.FollowWebhooks(c.Typed, namespace)
	go webhooks.Run(ctx)
	// Wait for the webhooks. An object that is created without the webhooks could be missed by the
	// backfill.
	var version state.WebhooksVersion
	if err := wait.PollUntilContextCancel(ctx, publishInterval, true, func(context.Context) (installed bool, err error) {
		version, installed = webhooks.Version()
		return installed, nil
	}); err != nil {
		return nil // ctx ended before the webhooks were installed
	}
	previous, err := c.Typed.CoreV1().ConfigMaps(namespace).Get(ctx, state.BackfillName, metav1.GetOptions{})
	p := &publisher{
		client:    c.Typed,
		namespace: namespace,
		backfill:  c.Backfill,
		webhooks:  webhooks.Version,
		version:   version,
	}
	if err == nil {
		p.resume(ctx, previous)
	}
	group, ctx := errgroup.WithContext(ctx) // if one function returns an error, ctx ends for the other
	group.Go(func() error { return c.RunBackfill(ctx) })
	group.Go(func() error { return p.run(ctx) })
	return group.Wait()
}

// publisher publishes the progress of the backfill. It restarts the backfill if objects may have
// been stored without the webhooks.
type publisher struct {
	client    kubernetes.Interface
	namespace string
	backfill  *label.Backfill
	webhooks  func() (state.WebhooksVersion, bool)
	version   state.WebhooksVersion // the version during the backfill, or zero without webhooks
	// inFlightUntil is the time at which all writes that did not pass the webhooks have been
	// stored. It is zero if there are no such writes.
	inFlightUntil time.Time
}

// maxInFlight is the assumed maximum time between the admission of a write and its storage. A later
// webhook can delay a write by up to 30 seconds.
const maxInFlight = 90 * time.Second

// confirmInterval is the interval at which the publisher checks the content of the ConfigMap.
const confirmInterval = 5 * time.Second

// resume continues from the previous leader's result if the webhooks have not changed since that
// result was published. The ConfigMap must have been written while the current policy and binding
// protected it.
func (p *publisher) resume(ctx context.Context, previous *corev1.ConfigMap) {
	if !p.isGuarded(ctx, previous) {
		return // another client may have written the ConfigMap
	}
	if p.version.Follows(state.ParseVersion(previous.Annotations[state.WebhooksAnnotation])) {
		p.backfill.Resume(state.ParseBackfill(previous.Data[state.BackfillKey]))
		return
	}
	p.inFlightUntil = time.Now().Add(maxInFlight)
}

// run publishes until ctx ends. It restores the ConfigMap if another client changed or deleted it.
func (p *publisher) run(ctx context.Context) error {
	published := ""
	lastConfirmed := time.Now()
	for {
		text, err := p.content()
		if err != nil {
			return err
		}
		if published != "" && time.Since(lastConfirmed) >= confirmInterval {
			lastConfirmed = time.Now()
			if p.isChanged(ctx, published) {
				published = ""
			}
		}
		if current := p.version.String() + " " + text; !strings.HasPrefix(published, current+" ") {
			guard := p.guard(ctx)
			config := applycorev1.ConfigMap(state.BackfillName, p.namespace).
				WithData(map[string]string{state.BackfillKey: text}).
				WithAnnotations(map[string]string{
					state.WebhooksAnnotation: p.version.String(),
					state.PolicyAnnotation:   guard,
				})
			_, err := p.client.CoreV1().ConfigMaps(p.namespace).Apply(ctx, config,
				metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
			if err == nil {
				published = current + " " + guard
			} else if ctx.Err() == nil {
				klog.FromContext(ctx).Info("Failed to publish the progress of the backfill", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(publishInterval):
		}
	}
}

// isChanged reports whether the ConfigMap does not have the content that the publisher wrote, or
// whether the policy that protects it has changed. It returns false if the ConfigMap cannot be
// read.
func (p *publisher) isChanged(ctx context.Context, published string) bool {
	current, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(ctx, state.BackfillName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false
	}
	if err == nil && current.Annotations[state.WebhooksAnnotation]+" "+current.Data[state.BackfillKey]+" "+
		current.Annotations[state.PolicyAnnotation] == published &&
		current.Annotations[state.PolicyAnnotation] == p.guard(ctx) {
		return false
	}
	klog.FromContext(ctx).Info("Another caller changed what the controller published, or the policy that guards it "+
		"changed: publishing it again", "configMap", state.BackfillName)
	return true
}

// isGuarded reports whether only the controller can have written the ConfigMap. This is true if the
// current policy was already in effect when the ConfigMap was written.
func (p *publisher) isGuarded(ctx context.Context, m *corev1.ConfigMap) bool {
	guard := p.guard(ctx)
	return guard != "" && m.Annotations[state.PolicyAnnotation] == guard
}

// guard returns the version of the policy that protects the ConfigMap and the version of its
// binding. It returns "" if the policy or the binding does not exist or cannot be read.
func (p *publisher) guard(ctx context.Context) string {
	named := metav1.ListOptions{FieldSelector: "metadata.name=" + state.PolicyName}
	policies, err := p.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, named)
	if err != nil || len(policies.Items) != 1 {
		return ""
	}
	bindings, err := p.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx, named)
	if err != nil || len(bindings.Items) != 1 {
		return ""
	}
	policy, binding := &policies.Items[0], &bindings.Items[0]
	return fmt.Sprintf("%s %d %s %d", policy.UID, policy.Generation, binding.UID, binding.Generation)
}

// content returns the progress to publish. If the webhooks were missing or have changed, it first
// discards the progress.
func (p *publisher) content() (string, error) {
	version, installed := p.webhooks()
	switch changed := installed && !version.Follows(p.version) || !installed && p.version != (state.WebhooksVersion{}); {
	case changed:
		p.backfill.Reset()
		p.inFlightUntil = time.Now().Add(maxInFlight)
	case installed && !p.inFlightUntil.IsZero() && !time.Now().Before(p.inFlightUntil):
		p.backfill.Reset() // to include the writes that were in flight
		p.inFlightUntil = time.Time{}
	}
	if p.version = version; !installed || !p.inFlightUntil.IsZero() {
		return "{}", nil
	}
	return backfillText(p.backfill)
}

// backfillText returns the value of [state.BackfillKey].
func backfillText(b *label.Backfill) (string, error) {
	out := map[string][]string{}
	for resource, unlabeled := range b.Results() {
		names := make(map[string]bool, len(unlabeled))
		for _, id := range unlabeled {
			names[id.String()] = true
		}
		out[resource.String()] = slices.AppendSeq([]string{}, maps.Keys(names))
		slices.Sort(out[resource.String()])
	}
	data, err := json.Marshal(out)
	return string(data), err
}
