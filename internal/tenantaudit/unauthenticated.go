// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantaudit

import (
	"net/http"
	"net/netip"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubetenant/kubetenant/internal/budget"
)

// The maximum numbers of records of unauthenticated requests in each second, from one address and
// from all addresses together.
const (
	recordsPerAddress = 10
	recordsInTotal    = 100
)

// unauthenticatedLimits limits the records of requests that were not authenticated, and of
// anonymous requests that were denied. Safe for concurrent use.
type unauthenticatedLimits struct {
	byAddress *budget.Budgets
	total     flowcontrol.RateLimiter
}

func newUnauthenticatedLimits() *unauthenticatedLimits {
	return &unauthenticatedLimits{
		byAddress: budget.New(recordsPerAddress, recordsPerAddress),
		total:     flowcontrol.NewTokenBucketRateLimiter(recordsInTotal, recordsInTotal),
	}
}

// accept reports whether the records of an event are stored. It returns true for each event of an
// authenticated caller and of an allowed anonymous request.
func (s *unauthenticatedLimits) accept(event *auditinternal.Event) bool {
	return !isUnauthenticated(event) || s.byAddress.Limiter(addressOf(event)).TryAccept() && s.total.TryAccept()
}

func isUnauthenticated(event *auditinternal.Event) bool {
	switch event.User.Username {
	case "":
		return true
	case user.Anonymous:
		status := event.ResponseStatus
		return status != nil && (status.Code == http.StatusForbidden || status.Code == http.StatusUnauthorized)
	}
	return false
}

// addressOf returns the address from which the server received a request. A client can forge all
// other addresses of an event. For IPv6, addressOf returns the 64-bit network, which usually
// belongs to one host.
func addressOf(event *auditinternal.Event) string {
	if len(event.SourceIPs) == 0 {
		return ""
	}
	address, err := netip.ParseAddr(event.SourceIPs[len(event.SourceIPs)-1])
	if err != nil {
		return ""
	}
	address = address.Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	network, err := address.Prefix(64)
	if err != nil {
		return ""
	}
	return network.Masked().String()
}
