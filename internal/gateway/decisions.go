// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/authz"
)

const (
	// allowedFor is how long the gateway stores the allowed decision of a SubjectAccessReview in a
	// cluster. It does not store denials.
	allowedFor = 10 * time.Second
	// changedFor is how long the gateway uses no stored decisions about a namespace after it changed.
	// A review that the gateway sent before the change, and retried once, is stored within this time.
	changedFor = allowedFor + 3*answerWithin
)

// decisions stores what the cluster allowed, for one route. Its keys contain names of namespaces
// and service accounts. Stored decisions are not used for namespaces that changed. It is safe for
// concurrent use.
type decisions struct {
	changes *changes
	// stored and unstored send SubjectAccessReviews to the cluster.
	stored, unstored authorizer.Authorizer
	// impersonated and impersonatedAnew are the impersonation step. For ten seconds, upstream's filter
	// stores which caller may impersonate which user (k8s.io/apiserver
	// pkg/endpoints/filters/impersonation, v0.37.1).
	impersonated     http.Handler
	impersonatedAnew func() http.Handler
}

// newDecisions returns the decisions of a route. next is the step after impersonation. If a review
// fails, [route.ask] denies the request.
func (c *route) newDecisions(next http.Handler) (*decisions, error) {
	reviews := func(allowed time.Duration) (authorizer.Authorizer, error) {
		return (authorizerfactory.DelegatingAuthorizerConfig{
			SubjectAccessReviewClient: c.cluster.client.AuthorizationV1(),
			AllowCacheTTL:             allowed,
			DenyCacheTTL:              time.Nanosecond,
			WebhookRetryBackoff:       &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1.5, Steps: 2},
		}).New()
	}
	stored, err := reviews(allowedFor)
	if err != nil {
		return nil, err
	}
	unstored, err := reviews(time.Nanosecond)
	if err != nil {
		return nil, err
	}
	impersonated := func() http.Handler {
		return impersonation.WithConstrainedImpersonation(next, c.cluster.stack.Authorizer, codecs())
	}
	return &decisions{
		changes:          &c.cluster.changes,
		stored:           stored,
		unstored:         unstored,
		impersonated:     impersonated(),
		impersonatedAnew: impersonated,
	}, nil
}

// reviews returns the authorizer that decides about a request.
func (d *decisions) reviews(a authorizer.Attributes) authorizer.Authorizer {
	if d.changes.concern(namedBy(a.GetUser(), a.GetNamespace(), a.GetName())...) {
		return d.unstored
	}
	return d.stored
}

// impersonation returns the impersonation step for a request.
func (d *decisions) impersonation(r *http.Request) http.Handler {
	if d.changes.none() {
		return d.impersonated
	}
	u, _ := request.UserFrom(r.Context())
	texts := namedBy(u)
	if info, known := request.RequestInfoFrom(r.Context()); known {
		texts = append(texts, info.Namespace, info.Name)
	}
	for name, values := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			texts = append(texts, values...)
		}
	}
	if d.changes.concern(texts...) {
		return d.impersonatedAnew()
	}
	return d.impersonated
}

// namedBy returns the texts of a user that may contain the name of a namespace, in addition to
// others.
func namedBy(u user.Info, others ...string) []string {
	if u == nil {
		return others
	}
	return append(append(others, u.GetName()), u.GetGroups()...)
}

// changes are the names of namespaces that were recently deleted, created again, or assigned to
// another owner. The names in such a namespace may belong to other callers than before. The zero
// value is empty. It is safe for concurrent use.
type changes struct {
	mu     sync.RWMutex
	byName map[string]time.Time
}

// note records the change of a namespace.
func (c *changes) note(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for other, at := range c.byName {
		if now.Sub(at) >= changedFor {
			delete(c.byName, other)
		}
	}
	if c.byName == nil {
		c.byName = map[string]time.Time{}
	}
	c.byName[name] = now
}

// none reports whether no namespace changed recently.
func (c *changes) none() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.byName) == 0
}

// concern reports whether a text is the name of a namespace that changed, or contains that name
// between colons. The names of service accounts and of their groups contain it in this way.
func (c *changes) concern(texts ...string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if len(c.byName) == 0 {
		return false
	}
	for _, text := range texts {
		for name := range strings.SplitSeq(text, ":") {
			if at, changed := c.byName[name]; changed && time.Since(at) < changedFor {
				return true
			}
		}
	}
	return false
}

// noting returns a handler of Namespace events. It calls note when the names in a namespace may
// belong to other callers than before.
func noting(note func(name string)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(was, is any) {
			before, isBefore := was.(*corev1.Namespace)
			now, isNow := is.(*corev1.Namespace)
			if isBefore && isNow && before.UID == now.UID && authz.OwnerOf(before) == authz.OwnerOf(now) {
				return
			}
			if name, err := cache.MetaNamespaceKeyFunc(is); err == nil {
				note(name)
			}
		},
		DeleteFunc: func(object any) {
			if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
				note(name)
			}
		},
	}
}
