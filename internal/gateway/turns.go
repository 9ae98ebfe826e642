// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubetenant/kubetenant/internal/turns"
)

const errQueue = "too many requests wait for the cluster: try again"

// waitForSlot is the step at which a request waits until the gateway may send it to the cluster. The
// tenants of a cluster take turns, and each cluster has its own queue. Streams do not wait. If its
// session ends, a waiting request ends.
func (c *route) waitForSlot(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := proxyStateFrom(r.Context())
		if x.isStream || x.hasSlot {
			next.ServeHTTP(w, r)
			return
		}
		flow := c.flow(r)
		leave, err := c.cluster.queue.Enter(r.Context(), 0, func() turns.Flow { return flow })
		switch {
		case errors.Is(err, turns.ErrBusy), errors.Is(err, context.DeadlineExceeded): // nothing was sent
			respond(w, r, apierrors.NewTooManyRequests(errQueue, 1))
			return
		case err != nil:
			c.respondError(w, r, err)
			return
		}
		defer leave()
		x.hasSlot = true
		next.ServeHTTP(w, r)
	})
}

// waitForSlotBeforeReviews is [route.waitForSlot] for requests of tenants for which the gateway sends reviews to
// the cluster before it forwards anything. These are requests with an impersonated user, and
// reviews of other users. A tenant can impersonate only its own users, so the tenant is known here.
// For a caller of the system tenant, it is unknown, and the request waits after the impersonation
// step.
func (c *route) waitForSlotBeforeReviews(next http.Handler) http.Handler {
	inTurn := c.waitForSlot(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		sendsReviews := proxyStateFrom(r.Context()).impersonates || ok && answersLocally(info)
		if sendsReviews && !c.flow(r).Exempt {
			inTurn.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// flow returns the flow of the caller in the cluster. A caller whose tenant is unknown is not
// exempt.
func (c *route) flow(r *http.Request) turns.Flow {
	id, err := c.callerTenant(r)
	if err != nil {
		return turns.Flow{}
	}
	u, _ := request.UserFrom(r.Context())
	return turns.FlowOf(id, u.GetName())
}
