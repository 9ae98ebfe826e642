// Package controller is what of the webhook shape one process at a time does with the cluster.
package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/cluster"
	"github.com/kubetenant/kubetenant/cmd/internal/leader"
	"github.com/kubetenant/kubetenant/cmd/internal/state"
	"github.com/kubetenant/kubetenant/cmd/internal/webhook/certificates"
	"github.com/kubetenant/kubetenant/plugins/label"
)

// publishEvery is how often what changed is told to the replicas of the service.
const publishEvery = time.Second

const fieldManager = "kubetenant-controller"

// Tasks are what the leader of a service in a namespace does with the cluster that config reaches: Sweep labels
// what was stored without the webhooks and tells the service in its ConfigMap which resources are done, as soon as
// the webhooks are in place; Quotas counts what the objects of tenants use; Provision gives tenants' namespaces what their
// Tenants say, while Sweep runs, and Retire ends tenants whose Tenants are deleted, while Provision does.
type Tasks struct {
	Sweep, Quotas, Provision, Retire leader.Task
	// Lacking returns of how many resources something is left to label.
	Lacking func() int
}

// NewTasks returns the tasks. Nothing is asked before one of them runs.
func NewTasks(config *rest.Config, namespace string) (*Tasks, error) {
	clients, err := cluster.NewClients(config)
	if err != nil {
		return nil, err
	}
	manager, err := cluster.NewManager(config)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(clients.Typed, 0)
	known, err := cluster.New(clients, factory)
	if err != nil {
		return nil, err
	}
	return &Tasks{
		Lacking: func() (n int) {
			for _, lacking := range known.Sweep.Swept() {
				n += min(1, len(lacking))
			}
			return n
		},
		Sweep: func(ctx context.Context) error {
			factory.StartWithContext(ctx)
			go known.CRDs.Run(ctx)
			return sweep(ctx, known, namespace)
		},
		Quotas: func(ctx context.Context) error {
			factory.StartWithContext(ctx)
			go known.Quotas.Run(ctx)
			return known.CountQuotas(ctx)
		},
		Provision: func(ctx context.Context) error {
			go known.Tenants.Run(ctx)
			return known.Provision(ctx, manager, nil) // kube-apiserver's own evaluator knows no limits
		},
		Retire: func(ctx context.Context) error { return known.Retire(ctx, manager) },
	}, nil
}

func sweep(ctx context.Context, known *cluster.Cluster, namespace string) error {
	// What is stored before the webhooks stand would never be seen.
	var webhooks string
	if err := wait.PollUntilContextCancel(ctx, publishEvery, true, func(ctx context.Context) (bool, error) {
		var err error
		webhooks, err = identityOf(ctx, known.Typed)
		return err == nil, nil
	}); err != nil {
		return nil // ended before they came
	}
	// What the leader before said holds as long as the same webhooks have been there since.
	before, err := known.Typed.CoreV1().ConfigMaps(namespace).Get(ctx, state.SweptName, metav1.GetOptions{})
	if err == nil && before.Annotations[webhooksAnnotation] == webhooks {
		known.Sweep.Resume(state.ParseSwept(before.Data[state.SweptKey]))
	}
	both, ctx := errgroup.WithContext(ctx) // the end of one is the other's
	both.Go(func() error { return known.RunSweep(ctx) })
	both.Go(func() error { return publish(ctx, known.Typed, namespace, webhooks, known.Sweep) })
	return both.Wait()
}

// webhooksAnnotation of the ConfigMap says with which webhooks the resources were swept.
const webhooksAnnotation = "kubetenant.dev/webhooks"

// identityOf returns what tells the webhook configurations apart from others, before and later. Authorities do not count.
func identityOf(ctx context.Context, client kubernetes.Interface) (string, error) {
	hooks := client.AdmissionregistrationV1()
	mutating, err := hooks.MutatingWebhookConfigurations().Get(ctx, certificates.ConfigurationName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	validating, err := hooks.ValidatingWebhookConfigurations().Get(ctx, certificates.ConfigurationName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].ClientConfig.CABundle = nil
	}
	for i := range validating.Webhooks {
		validating.Webhooks[i].ClientConfig.CABundle = nil
	}
	text, err := json.Marshal([]any{mutating.UID, mutating.Webhooks, validating.UID, validating.Webhooks})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// publish tells what is swept until ctx ends, at first what the leader before said, if that holds.
func publish(ctx context.Context, client kubernetes.Interface, namespace, webhooks string, sweep *label.Sweep) error {
	said := "-"
	for {
		text, err := sweptText(sweep)
		if err != nil {
			return err
		}
		if text != said {
			config := applycorev1.ConfigMap(state.SweptName, namespace).WithData(map[string]string{state.SweptKey: text}).
				WithAnnotations(map[string]string{webhooksAnnotation: webhooks})
			_, err := client.CoreV1().ConfigMaps(namespace).Apply(ctx, config, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
			if err == nil {
				said = text
			} else if ctx.Err() == nil {
				klog.FromContext(ctx).Info("Could not tell the service what is swept", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(publishEvery):
		}
	}
}

// sweptText is what the service reads.
func sweptText(sweep *label.Sweep) (string, error) {
	said := map[string][]string{}
	for resource, lacking := range sweep.Swept() {
		names := make(map[string]bool, len(lacking))
		for _, id := range lacking {
			names[id.String()] = true
		}
		said[resource.String()] = slices.AppendSeq([]string{}, maps.Keys(names))
		slices.Sort(said[resource.String()])
	}
	data, err := json.Marshal(said)
	return string(data), err
}
