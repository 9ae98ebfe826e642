// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"hash/maphash"
	"strconv"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/kubetenant/kubetenant/internal/stack"
)

// maxLimitedNames is the number of priority level names that are used for rejected requests.
// Upstream's filter determines Retry-After from the number of rejected requests at the same
// priority level. It never removes a level, so one name for each tenant would use too much
// memory.
const maxLimitedNames = 256

const limitedPrefix = "kubetenant-fair-use-"

// flowByTenant makes API Priority and Fairness use one flow for each tenant. It rejects requests
// above the limits of the tenant before they wait for a seat.
type flowByTenant struct {
	flowcontrol.Interface

	stack *stack.Stack
	seed  maphash.Seed // random, so that no tenant can choose the tenants with the same priority level name
}

// FlowByTenant wraps next so that it uses one flow for each tenant. If next is nil, the server
// has no API Priority and Fairness, and FlowByTenant returns nil.
func FlowByTenant(next flowcontrol.Interface, s *stack.Stack) flowcontrol.Interface {
	if next == nil {
		return nil
	}
	return &flowByTenant{next, s, maphash.MakeSeed()}
}

// Handle implements [flowcontrol.Interface]. If Handle does not execute a request, upstream's
// filter responds with status 429. Retry-After grows with the number of such requests
// (k8s.io/apiserver pkg/server/filters/priority-and-fairness.go, v0.37.1).
//
// Handle records how long the request occupies its initial seats. This duration does not include
// the additional time that a write occupies seats for the watches that it notifies.
func (f *flowByTenant) Handle(
	ctx context.Context,
	digest flowcontrol.RequestDigest,
	note func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	estimate func() flowcontrolrequest.WorkEstimate,
	queued fairqueuing.QueueNoteFn,
	execute func(),
) {
	flow, leave, refused := f.stack.AdmitFlow(ctx, digest.User)
	if refused != nil {
		meta := metav1.ObjectMeta{Name: f.limitedName(ctx, digest.User)}
		note(&flowcontrolv1.FlowSchema{ObjectMeta: meta}, &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: meta}, "")
		return
	}
	defer leave()
	seats := uint64(1)
	var lasted time.Duration
	defer func() { f.stack.RecordSeats(ctx, seats, lasted) }() // after the seats are released
	digest.User = flow
	f.Interface.Handle(ctx, digest, note, func() flowcontrolrequest.WorkEstimate {
		work := estimate()
		seats = work.InitialSeats
		return work
	}, queued, func() {
		began := time.Now()
		defer func() { lasted = time.Since(began) }()
		execute()
	})
}

// limitedName returns the name of the priority level that is reported for a rejected request of
// the given user. It depends on the user's tenant.
func (f *flowByTenant) limitedName(ctx context.Context, u user.Info) string {
	id, _, err := f.stack.Subject(ctx, u)
	if err != nil {
		return limitedPrefix
	}
	return limitedPrefix + strconv.FormatUint(maphash.String(f.seed, id.String())%maxLimitedNames, 10)
}
