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
	// allowTTL is how long the gateway uses the result of a SubjectAccessReview that the cluster
	// allowed. It does not store denials.
	allowTTL = 10 * time.Second
	// changeTTL is how long the gateway ignores stored decisions about a namespace after the
	// namespace changed. It covers the lifetime of a decision whose review was sent before the
	// change and retried once.
	changeTTL = allowTTL + 3*responseTimeout
)

// decisions stores the access decisions of one route that the cluster allowed. The keys of stored
// decisions contain names of namespaces and service accounts. Therefore stored decisions are not
// used for namespaces that changed recently. It is safe for concurrent use.
type decisions struct {
	changes *changes
	// cached and uncached authorize with SubjectAccessReviews of the cluster. Only cached reuses
	// stored results.
	cached, uncached authorizer.Authorizer
	// cachedImpersonation is the handler of the impersonation step, and uncachedImpersonation
	// returns a new one. For ten seconds, upstream's filter stores which caller may impersonate
	// which user (k8s.io/apiserver pkg/endpoints/filters/impersonation, v0.37.1). A new handler has
	// stored nothing yet.
	cachedImpersonation   http.Handler
	uncachedImpersonation func() http.Handler
}

// newDecisions returns the decisions of a route. next is the step after impersonation. If a review
// fails, [route.reviewAccess] denies the request.
func (c *route) newDecisions(next http.Handler) (*decisions, error) {
	reviews := func(allowed time.Duration) (authorizer.Authorizer, error) {
		return (authorizerfactory.DelegatingAuthorizerConfig{
			SubjectAccessReviewClient: c.cluster.client.AuthorizationV1(),
			AllowCacheTTL:             allowed,
			DenyCacheTTL:              time.Nanosecond,
			WebhookRetryBackoff:       &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1.5, Steps: 2},
		}).New()
	}
	stored, err := reviews(allowTTL)
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
		changes:               &c.cluster.changes,
		cached:                stored,
		uncached:              unstored,
		cachedImpersonation:   impersonated(),
		uncachedImpersonation: impersonated,
	}, nil
}

// accessReviewer returns the authorizer that decides about a request. This authorizer uses no
// stored decisions if the request names a namespace that changed recently.
func (d *decisions) accessReviewer(a authorizer.Attributes) authorizer.Authorizer {
	if d.changes.affects(namesIn(a.GetUser(), a.GetNamespace(), a.GetName())...) {
		return d.uncached
	}
	return d.cached
}

// impersonation returns the handler of the impersonation step for a request. The handler has no
// stored decisions if the request names a namespace that changed recently.
func (d *decisions) impersonation(r *http.Request) http.Handler {
	if d.changes.empty() {
		return d.cachedImpersonation
	}
	u, _ := request.UserFrom(r.Context())
	texts := namesIn(u)
	if info, ok := request.RequestInfoFrom(r.Context()); ok {
		texts = append(texts, info.Namespace, info.Name)
	}
	for name, values := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			texts = append(texts, values...)
		}
	}
	if d.changes.affects(texts...) {
		return d.uncachedImpersonation()
	}
	return d.cachedImpersonation
}

// namesIn returns others, and the names of a user and its groups. All of them may contain the
// name of a namespace.
func namesIn(u user.Info, others ...string) []string {
	if u == nil {
		return others
	}
	return append(append(others, u.GetName()), u.GetGroups()...)
}

// changes contains the names of namespaces that were recently deleted, created again, or assigned
// to another owner. A service account in one of these namespaces may now be a different caller
// with the same name. The zero value is empty. It is safe for concurrent use.
type changes struct {
	mu     sync.RWMutex
	byName map[string]time.Time
}

// record records the change of a namespace.
func (c *changes) record(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for other, at := range c.byName {
		if now.Sub(at) >= changeTTL {
			delete(c.byName, other)
		}
	}
	if c.byName == nil {
		c.byName = map[string]time.Time{}
	}
	c.byName[name] = now
}

// empty reports whether no change is recorded.
func (c *changes) empty() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.byName) == 0
}

// affects reports whether a text is the name of a namespace that changed recently, or contains
// that name between colons, as the names of service accounts and their groups do.
func (c *changes) affects(texts ...string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if len(c.byName) == 0 {
		return false
	}
	for _, text := range texts {
		for name := range strings.SplitSeq(text, ":") {
			if at, changed := c.byName[name]; changed && time.Since(at) < changeTTL {
				return true
			}
		}
	}
	return false
}

// namespaceChangeHandler returns a handler of Namespace events. The handler calls note with the
// name of each namespace that was deleted, created again, or assigned to another owner.
func namespaceChangeHandler(note func(name string)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(oldObject, newObject any) {
			before, beforeOK := oldObject.(*corev1.Namespace)
			now, nowOK := newObject.(*corev1.Namespace)
			if beforeOK && nowOK && before.UID == now.UID && authz.OwnerOf(before) == authz.OwnerOf(now) {
				return
			}
			if name, err := cache.MetaNamespaceKeyFunc(newObject); err == nil {
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
