package kubetenant_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubetenant/kubetenant"
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/rbac"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TestPublishedEvaluator: a server that keeps RBAC to itself publishes that, whatever its configuration says: its own evaluator knows
// no binding's end.
func TestPublishedEvaluator(t *testing.T) {
	none := func(name string) (*corev1.Namespace, error) {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	for _, c := range []struct {
		rbac *kubetenant.RBAC
		want v1alpha1.Evaluator
	}{{nil, v1alpha1.EvaluatorUpstream}, {&kubetenant.RBAC{Index: rbac.NewIndex()}, v1alpha1.EvaluatorIndexed}} {
		stack, err := kubetenant.New(t.Context(), &v1alpha1.Settings{}, kubetenant.Server{
			Authentication: kubetenant.Authentication{Credentials: kubetenant.NoCredentials},
			Authorization:  kubetenant.Authorization{RBAC: c.rbac}, Cluster: kubetenant.Cluster{Owners: authz.NewOwners(none, nil)}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := stack.Published()
		if err != nil || p.Settings.Authorization.RBAC.Evaluator != c.want {
			t.Errorf("published: %s, %v; want %s", p.Settings.Authorization.RBAC.Evaluator, err, c.want)
		}
	}
}
