package gateway

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// TestOwnNamesStay: what a cluster has said of who the gateway is counts when it says something
// else later, nothing, or what makes a client panic; while it has said nothing, nobody comes.
func TestOwnNamesStay(t *testing.T) {
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
		client := fake.NewClientset()
		says := answer
		client.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
			obj, err := says()
			return true, obj, err
		})
		o := &ownNames{clients: []kubernetes.Interface{client}, configs: []*rest.Config{{}}}
		if err := o.check(t.Context(), "gateway"); slices.Contains([]string{"no name", "an error", "a panic"},
			what) != (err != nil) {
			t.Errorf("%s, at first: %v", what, err)
		}
		ask := func(now func() (runtime.Object, error)) {
			says = now
			known := *o.known.Load()
			known.until = time.Time{}
			o.known.Store(&known)
			o.ask(t.Context())
		}
		ask(review("gateway"))
		ask(answer)
		if err := o.check(t.Context(), "gateway"); !errors.Is(err, errOwn) {
			t.Errorf("%s, later: %v", what, err)
		}
		if err := o.check(t.Context(), "alice"); err != nil {
			t.Errorf("%s, somebody: %v", what, err)
		}
	}
}
