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

// waitForSlot makes a request wait in the cluster's [turns.Queue] until the gateway may send it to
// the cluster. Each cluster has its own queue, in which its tenants take turns. Streams do not
// wait. If the session of a waiting request ends, the request ends.
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

// waitForSlotBeforeReviews is [route.waitForSlot] for requests of tenants for which the gateway
// sends reviews to the cluster before it forwards anything. These are requests with an
// impersonated user, and reviews of other users. A tenant can impersonate only its own users, so
// the tenant of the impersonated user is known here. If a caller of the system tenant
// impersonates a user, the user's tenant is not known yet. The request then waits after the
// impersonation step.
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

// flow returns the [turns.Flow] of the request's user. If the user's tenant is unknown, the flow is
// not exempt from its share of the slots.
func (c *route) flow(r *http.Request) turns.Flow {
	id, err := c.callerTenant(r)
	if err != nil {
		return turns.Flow{}
	}
	u, _ := request.UserFrom(r.Context())
	return turns.FlowOf(id, u.GetName())
}
