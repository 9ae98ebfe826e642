// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"time"

	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/replicaset"
)

// collectInterval is the interval at which the garbage collector discovers new kinds.
const collectInterval = 30 * time.Second

// impersonate returns a configuration for a controller, with the user name that the controller has in
// kube-controller-manager with --use-service-account-credentials.
func impersonate(config *rest.Config, name string) *rest.Config {
	c := rest.CopyConfig(config)
	c.QPS, c.Burst = 200, 400
	c.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:kube-system:" + name,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
	}
	return c
}

// startWorkloads starts the controllers that create pods, and the garbage collector. The pods never
// run, because there are no nodes.
func startWorkloads(ctx context.Context, config *rest.Config) error {
	client := func(name string) kubernetes.Interface { return kubernetes.NewForConfigOrDie(impersonate(config, name)) }
	shared, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	objects := impersonate(config, "generic-garbage-collector")
	objects.ContentType = "" // metadata of custom resources cannot be encoded as protobuf
	meta, err := metadata.NewForConfig(objects)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(shared, 10*time.Minute)
	pods := factory.Core().V1().Pods()
	replicaSets := factory.Apps().V1().ReplicaSets()
	jobs := factory.Batch().V1().Jobs()
	deployments, err := deployment.NewDeploymentController(ctx, factory.Apps().V1().Deployments(), replicaSets, pods,
		client("deployment-controller"))
	if err != nil {
		return err
	}
	sets := replicaset.NewReplicaSetController(ctx, replicaSets, pods, client("replicaset-controller"),
		replicaset.BurstReplicas)
	runs, err := job.NewController(ctx, client("job-controller"), pods, jobs, nil, nil)
	if err != nil {
		return err
	}
	schedules, err := cronjob.NewControllerV2(ctx, jobs, factory.Batch().V1().CronJobs(), client("cronjob-controller"))
	if err != nil {
		return err
	}
	started := make(chan struct{})
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(shared.Discovery()))
	all := informerfactory.NewInformerFactory(factory, metadatainformer.NewSharedInformerFactory(meta, 10*time.Minute))
	collector, err := garbagecollector.NewGarbageCollector(ctx, client("generic-garbage-collector"), meta, mapper,
		garbagecollector.DefaultIgnoredResources(), all, started)
	if err != nil {
		return err
	}
	all.Start(ctx.Done())
	close(started)
	go deployments.Run(ctx, 2)
	go sets.Run(ctx, 2)
	go runs.Run(ctx, 1)
	go schedules.Run(ctx, 1)
	go collector.Run(ctx, 2, collectInterval)
	go collector.Sync(ctx, shared.Discovery(), collectInterval)
	return nil
}
