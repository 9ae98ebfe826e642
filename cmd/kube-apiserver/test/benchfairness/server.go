// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	flowrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubetenant/kubetenant/tenant"
)

const (
	quietTenant = "quiet"
	noisyTenant = "noisy"
	// levelName is the name of the tenants' priority level.
	levelName = "tenants"
	// shares is the number of concurrency shares of the tenants' priority level. The other levels
	// have 250 shares in total, so this level gets all seats of the server.
	shares = 10_000
	// waitLimit is the longest time that a request waits in a queue. It is the default of
	// kube-apiserver, a quarter of --request-timeout.
	waitLimit = 15 * time.Second
	// startLimit is the longest time that the dispatcher may need to read its objects.
	startLimit = 10 * time.Second
)

// server is upstream's filter and dispatcher in front of a handler. It has no listener.
type server struct {
	filter http.Handler
	// executing is the number of requests in the handler. maxExecuting is the largest number so
	// far.
	executing, maxExecuting atomic.Int64
}

// newServer returns a server with the given number of seats. It runs until ctx ends.
func newServer(ctx context.Context, seats int, m mode, handler http.Handler) (*server, error) {
	metrics.Register()
	client := fake.NewClientset(objects()...)
	shared := informers.NewSharedInformerFactory(client, 0)
	dispatcher := flowcontrol.New(shared, client.FlowcontrolV1(), seats)
	shared.Start(ctx.Done())
	go func() { _ = dispatcher.Run(ctx.Done()) }()
	wrapped := m.wrap(dispatcher)
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, startLimit, true,
		func(ctx context.Context) (bool, error) { return levelOf(ctx, wrapped) == levelName, nil })
	if err != nil {
		return nil, fmt.Errorf("a tenant's request has not the priority level %s: check the FlowSchemas: %w", levelName, err)
	}
	s := &server{}
	estimate := flowrequest.NewWorkEstimator(
		func(string) (storage.Stats, error) { return storage.Stats{}, errors.New("no storage") },
		wrapped.GetInterestedWatchCount, flowrequest.DefaultWorkEstimatorConfig(), wrapped.GetMaxSeats)
	longRunning := filters.BasicLongRunningRequestCheck(sets.NewString("watch", "proxy"), sets.NewString())
	s.filter = m.wrapHandler(
		filters.WithPriorityAndFairness(s.countExecuting(handler), longRunning, wrapped, estimate, waitLimit),
	)
	return s, nil
}

// countExecuting wraps a handler, and counts the requests in it.
func (s *server) countExecuting(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for now := s.executing.Add(1); ; {
			if highest := s.maxExecuting.Load(); now <= highest || s.maxExecuting.CompareAndSwap(highest, now) {
				break
			}
		}
		defer s.executing.Add(-1)
		handler.ServeHTTP(w, r)
	})
}

// levelOf returns the name of the priority level of a request of the quiet tenant.
func levelOf(ctx context.Context, dispatcher flowcontrol.Interface) string {
	r := get(ctx, quietTenant, "probe")
	info, _ := request.RequestInfoFrom(r.Context())
	caller, _ := request.UserFrom(r.Context())
	level := ""
	dispatcher.Handle(r.Context(), flowcontrol.RequestDigest{RequestInfo: info, User: caller},
		func(_ *flowcontrolv1.FlowSchema, pl *flowcontrolv1.PriorityLevelConfiguration, _ string) {
			level = pl.Name
		},
		func() flowrequest.WorkEstimate { return flowrequest.WorkEstimate{InitialSeats: 1} },
		func(bool) {}, func() {})
	return level
}

// objects returns upstream's FlowSchemas and priority levels, and the tenants' priority level.
// The tenants' level is a copy of workload-low, which is the level of service accounts by
// default. Upstream's FlowSchema service-accounts assigns the tenants' level instead. It also
// matches the group that the wrapper adds to requests for this level. Requests therefore match
// this FlowSchema in both modes.
func objects() []runtime.Object {
	var all []runtime.Object
	for _, pl := range bootstrap.MandatoryPriorityLevelConfigurations {
		all = append(all, pl.DeepCopy())
	}
	for _, pl := range bootstrap.SuggestedPriorityLevelConfigurations {
		all = append(all, pl.DeepCopy())
	}
	level := bootstrap.SuggestedPriorityLevelConfigurationWorkloadLow.DeepCopy()
	level.Name = levelName
	level.Spec.Limited.NominalConcurrencyShares = new(int32)
	*level.Spec.Limited.NominalConcurrencyShares = shares
	level.Spec.Limited.LendablePercent = new(int32)
	level.Spec.Limited.BorrowingLimitPercent = new(int32)
	all = append(all, level)
	for _, fs := range bootstrap.MandatoryFlowSchemas {
		all = append(all, fs.DeepCopy())
	}
	for _, fs := range bootstrap.SuggestedFlowSchemas {
		fs = fs.DeepCopy()
		if fs.Name == bootstrap.SuggestedFlowSchemaServiceAccounts.Name {
			fs.Spec.PriorityLevelConfiguration.Name = levelName
			fs.Spec.Rules[0].Subjects = append(fs.Spec.Rules[0].Subjects, flowcontrolv1.Subject{
				Kind:  flowcontrolv1.SubjectKindGroup,
				Group: &flowcontrolv1.GroupSubject{Name: tenant.LevelGroupPrefix + levelName},
			})
		}
		all = append(all, fs)
	}
	return all
}

func namespaceOf(id string) string { return id + "--web" }

// get returns a request of a tenant's service account. Its context contains the user and the
// request info, which the filter requires. The request can be sent many times.
func get(ctx context.Context, tenantName, name string) *http.Request {
	id, err := tenant.Parse(tenantName)
	if err != nil {
		panic(err) // the names are in this program
	}
	namespace := namespaceOf(tenantName)
	caller := tenant.Bind(serviceaccount.UserInfo(namespace, name, "uid"), id)
	caller.Groups = append(caller.Groups, user.AllAuthenticated, id.Group())
	path := "/api/v1/namespaces/" + namespace + "/configmaps/settings"
	ctx = request.WithRequestInfo(request.WithUser(ctx, caller), &request.RequestInfo{
		IsResourceRequest: true,
		Path:              path,
		Verb:              "get",
		APIPrefix:         "api",
		APIVersion:        "v1",
		Namespace:         namespace,
		Resource:          "configmaps",
		Name:              "settings",
		Parts:             []string{"configmaps", "settings"},
	})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	if err != nil {
		panic(err) // the path is in this program
	}
	return r
}

// send sends a request through the filter, and returns the status of the response.
func (s *server) send(r *http.Request) int {
	a := answer{header: http.Header{}, status: http.StatusOK}
	s.filter.ServeHTTP(&a, r)
	return a.status
}

// answer is a response writer that retains the status only.
type answer struct {
	header http.Header
	status int
}

func (a *answer) Header() http.Header            { return a.header }
func (a *answer) WriteHeader(status int)         { a.status = status }
func (a *answer) Write(text []byte) (int, error) { return len(text), nil }
