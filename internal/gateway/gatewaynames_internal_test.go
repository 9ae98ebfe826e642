// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// TestGatewayNamesStayReserved checks that a name that a cluster has reported remains reserved for
// the gateway. A later request may return another name, fail or panic. Before the first report,
// callers are rejected if the request fails.
func TestGatewayNamesStayReserved(t *testing.T) {
	t.Parallel()
	review := func(name string) func() (runtime.Object, error) {
		return func() (runtime.Object, error) {
			return &authenticationv1.SelfSubjectReview{
				Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: name}},
			}, nil
		}
	}
	for what, answer := range map[string]func() (runtime.Object, error){
		"another name": review("renewed"),
		"no name":      review(""),
		"no such path": func() (runtime.Object, error) {
			return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "", schemaNone, "", "", 0, true)
		},
		"an error": func() (runtime.Object, error) { return nil, errors.New("no") },
		"a panic":  func() (runtime.Object, error) { panic("what a cluster sends") },
	} {
		t.Run(what, func(t *testing.T) {
			client := fake.NewClientset()
			answerNow := answer
			client.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
				obj, err := answerNow()
				return true, obj, err
			})
			o := &gatewayNames{clients: []kubernetes.Interface{client}, configs: []*rest.Config{{}}}
			if err := o.check(t.Context(), "gateway"); slices.Contains([]string{"no name", "an error", "a panic"},
				what) != (err != nil) {
				t.Errorf("%s, at first: %v", what, err)
			}
			refresh := func(now func() (runtime.Object, error)) {
				answerNow = now
				known := *o.cached.Load()
				known.until = time.Time{}
				o.cached.Store(&known)
				o.refresh(t.Context())
			}
			refresh(review("gateway"))
			refresh(answer)
			if err := o.check(t.Context(), "gateway"); !errors.Is(err, errGatewayName) {
				t.Errorf("%s, later: %v", what, err)
			}
			if err := o.check(t.Context(), "alice"); err != nil {
				t.Errorf("%s, another caller: %v", what, err)
			}
		})
	}
}

// TestCallersWaitForGatewayNames checks that callers wait for the response while the gateway
// requests its names. The retry delay after a failure begins at the end of the request.
func TestCallersWaitForGatewayNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var requests atomic.Int64
		var broken atomic.Bool
		broken.Store(true)
		client.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
			requests.Add(1)
			time.Sleep(3 * gatewayNamesRetryDelay)
			if broken.Load() {
				return true, nil, errors.New("no")
			}
			return true, &authenticationv1.SelfSubjectReview{
				Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "gateway"}},
			}, nil
		})
		o := &gatewayNames{clients: []kubernetes.Interface{client}, configs: []*rest.Config{{}}}
		all := func() []error {
			errs := make([]error, 16)
			var group sync.WaitGroup
			for i := range errs {
				group.Go(func() { errs[i] = o.check(t.Context(), "alice") })
				time.Sleep(30 * time.Millisecond)
				synctest.Wait()
			}
			group.Wait()
			return errs
		}
		for i, err := range append(all(), all()...) { // the second 16 callers come during the retry delay
			if err == nil {
				t.Errorf("caller %d: accepted while the names are unknown", i)
			}
		}
		if n := requests.Load(); n != 1 {
			t.Errorf("%d requests for the names, want 1", n)
		}
		broken.Store(false)
		time.Sleep(gatewayNamesRetryDelay)
		for i, err := range all() {
			if err != nil {
				t.Errorf("caller %d: %v", i, err)
			}
		}
		if n := requests.Load(); n != 2 {
			t.Errorf("%d requests for the names, want 2", n)
		}
	})
}
