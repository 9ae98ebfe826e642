package gateway

import (
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authz"
)

// allowedFor is how long the gateway stores an allowed SubjectAccessReview of a cluster. It does not
// store denied ones.
const allowedFor = 10 * time.Second

// decisions are the parts of a route that store what the cluster allowed. Their keys contain names of
// namespaces and service accounts, so all of them are discarded when a namespace gets another owner
// or is deleted. They are safe for concurrent use.
type decisions struct {
	// reviews sends SubjectAccessReviews to the cluster.
	reviews authorizer.Authorizer
	// impersonated is the step of impersonation. Upstream's filter stores for ten seconds which caller
	// may impersonate which user (k8s.io/apiserver pkg/endpoints/filters/impersonation, v0.37.1).
	impersonated http.Handler
	next         http.Handler
}

// decideBy makes the decisions of a route, with the step after impersonation. Nothing is stored yet.
func (c *route) decideBy(next http.Handler) error {
	reviews, err := (authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: c.cluster.client.AuthorizationV1(),
		AllowCacheTTL:             allowedFor,
		DenyCacheTTL:              time.Nanosecond,
		WebhookRetryBackoff:       &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1.5, Steps: 2},
	}).New()
	if err != nil { // fails closed
		reviews = authorizerfactory.NewAlwaysDenyAuthorizer()
	}
	c.decisions.Store(&decisions{
		reviews:      reviews,
		impersonated: impersonation.WithConstrainedImpersonation(next, c.cluster.stack.Authorizer, codecs()),
		next:         next,
	})
	return err
}

// forget discards the decisions that the route in force has stored.
func (k *cluster) forget() {
	c := k.route.Load()
	if c == nil {
		return
	}
	if err := c.decideBy(c.decisions.Load().next); err != nil {
		klog.Background().Error(err, "Failed to discard the stored decisions of a cluster", "cluster", c.name)
	}
}

// forgetting returns a handler of Namespace events that calls forget when the names in a namespace may
// belong to other callers than before.
func forgetting(forget func()) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(was, is any) {
			before, isBefore := was.(*corev1.Namespace)
			now, isNow := is.(*corev1.Namespace)
			if !isBefore || !isNow || before.UID != now.UID || authz.OwnerOf(before) != authz.OwnerOf(now) {
				forget()
			}
		},
		DeleteFunc: func(any) { forget() },
	}
}
