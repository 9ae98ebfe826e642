// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubetenant/kubetenant/internal/gateway/views"
	"github.com/kubetenant/kubetenant/tenant"
)

// view returns the handler for the clusters view of a snapshot. Each caller receives only the
// clusters that the caller's tenant may use.
func (c *route) view(g *snapshot) http.Handler {
	// The view responds only while its snapshot is current. Snapshots change rarely.
	shown := c.gateway.requireCurrent(func(current *snapshot) bool { return current == g },
		&views.Handler{Clusters: func(r *http.Request) ([]views.Cluster, *apierrors.StatusError) {
			u, _ := request.UserFrom(r.Context())
			id, err := tenant.Of(u)
			if err != nil {
				return nil, forbidden(errNoTenant)
			}
			leave, ok := c.gateway.views.acquire(id, maxViewRequests)
			if !ok {
				return nil, errTooManyRequests()
			}
			defer leave()
			return g.tenantClusters(id, proxyStateFrom(r.Context()).issued), nil
		}})
	return c.gateway.stack.WithRequestState(c.withAuthentication(shown, c.gateway.stack.Authenticator, g.auditing))
}

// tenantClusters returns the clusters that the callers of a tenant may use, sorted by name. It
// omits clusters in which a credential that was issued at the given time may belong to a deleted
// tenant. If issued is nil, it returns none.
func (s *snapshot) tenantClusters(id tenant.ID, issued *time.Time) []views.Cluster {
	all := []views.Cluster{}
	for _, name := range slices.Sorted(maps.Keys(s.routes)) {
		c := s.routes[name]
		mapped, ok := c.mapping.tenant(id)
		if !c.allowsTenant(id) || !ok || issued == nil || !c.acceptsIssueTime(mapped, *issued) {
			continue
		}
		shown := views.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: maps.Clone(c.config.Labels)}}
		shown.Status.Reachable = c.cluster.state.Current()
		if reported := c.cluster.version.Load(); reported != nil {
			shown.Status.Version = *reported
		}
		all = append(all, shown)
	}
	return all
}

const (
	// maxViewRequests is the maximum number of a tenant's concurrent requests for the clusters
	// view.
	maxViewRequests = 64
	// versionInterval is the interval at which the gateway requests the version of a cluster.
	versionInterval = time.Minute
	// versionBytes is the maximum length of a version in bytes. A longer version is ignored.
	versionBytes = 64
)

// pollVersion requests the version of the cluster immediately and at intervals, until ctx ends.
func (k *cluster) pollVersion(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		text, err := k.client.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
		var info version.Info
		if err == nil && json.Unmarshal(text, &info) == nil && len(info.GitVersion) <= versionBytes {
			k.version.Store(&info.GitVersion)
		}
	}, versionInterval)
}
