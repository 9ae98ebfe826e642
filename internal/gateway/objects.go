// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/gateway/views"
	"github.com/kubetenant/kubetenant/internal/projection"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// viewBytes is the maximum number of bytes of objects that the gateway holds for the responses
	// of one cluster's views.
	viewBytes = 64 << 20
	// viewBytesPerTenant is the maximum for the responses to one tenant.
	viewBytesPerTenant = 16 << 20
	// maxViewListsPerTenant is the maximum number of lists that the gateway reads at the same
	// time for one tenant's views. The gateway reads them, and the data that the boundary needs,
	// with the reader's credential. The cluster's API Priority and Fairness treats all requests
	// with this credential as one flow.
	maxViewListsPerTenant = 4
	// maxViewLists is the maximum for the views of all tenants. While a list is read, the gateway
	// holds one object of at most 4 MiB, in addition to the bytes that viewBytes limits.
	maxViewLists = 24
)

var errViewSource = errors.New("the cluster does not allow the gateway to read the objects of the view: check the " +
	"gateway's roles (kubetenant-gateway generate)")

// withObjects returns the last handler of a route with views. It sets [route.objects], which sends
// requests for views through the same steps as all other requests.
func (c *route) withObjects(next http.Handler) (http.Handler, error) {
	objects, err := c.newObjects()
	if err != nil {
		return nil, err
	}
	c.objects = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxyStateFrom(r.Context()).isView = true
		c.handler.ServeHTTP(w, r)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if proxyStateFrom(r.Context()).isView {
			objects.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	}), nil
}

// newObjects returns the handler of the views of the cluster's objects. The handler reads the
// objects with the reader's credential, after the cluster has allowed the caller's own identity
// to read the view.
func (c *route) newObjects() (http.Handler, error) {
	config := rest.CopyConfig(c.cluster.reader)
	config.QPS = -1 // no rate limit: callers wait for each response, and their number is limited
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil && resp.StatusCode != http.StatusOK { // client-go reads the whole body of an error
				resp.Body = &limitedBody{ReadCloser: resp.Body, limit: newByteLimit(responseBytes)}
			}
			return resp, err
		})
	})
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	// The credential must not be sent to another address.
	connection.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client, err := rest.UnversionedRESTClientForConfigAndClient(config, connection)
	if err != nil {
		return nil, err
	}
	all := map[string]*views.ObjectView{}
	for i := range c.shared.Views.Objects {
		v, err := newObjectView(&c.shared.Views.Objects[i])
		if err != nil {
			return nil, err
		}
		all[v.Name] = v
	}
	return &views.Objects{
		Views:     all,
		Client:    client,
		Authorize: c.authorizeView,
		Tenant: func(r *http.Request) string {
			id, _ := c.callerTenant(r)
			return id.String()
		},
		Acquire: func(r *http.Request) (leave func(), refused *apierrors.StatusError) {
			id, err := c.callerTenant(r)
			if err != nil {
				return nil, forbidden(errNoTenant)
			}
			return c.cluster.acquireList(id)
		},
		ClusterError: func(ctx context.Context, err error) *apierrors.StatusError {
			klog.FromContext(ctx).V(2).Info("The gateway could not read the objects of a view", "cluster", c.name, "err", err)
			if apierrors.IsForbidden(err) {
				out := apierrors.NewGenericServerResponse(http.StatusBadGateway, "", schemaNone, "", "", 0, true)
				out.ErrStatus.Message = errViewSource.Error()
				out.ErrStatus.Details = nil
				return out
			}
			return statusOf(ctx, err)
		},
		Budget: c.cluster.viewBudget,
	}, nil
}

// callerTenant returns the tenant of the request's user, under the tenant's name in the cluster.
func (c *route) callerTenant(r *http.Request) (tenant.ID, error) {
	u, _ := request.UserFrom(r.Context())
	id, _, err := c.cluster.stack.Subject(r.Context(), u)
	return id, err
}

// acquireList reserves one of the lists that a tenant's views may read at the same time. It
// returns an error if no list is left. If refused is nil, the caller MUST call leave. Further
// calls of leave have no effect.
func (k *cluster) acquireList(id tenant.ID) (leave func(), refused *apierrors.StatusError) {
	leaveOwn, ok := k.listsByTenant.acquire(id, maxViewListsPerTenant)
	if !ok {
		return nil, apierrors.NewTooManyRequests("the tenant reads too many lists of views at the same time", 1)
	}
	leaveAll, ok := k.totalLists.acquire(tenant.ID{}, maxViewLists)
	if !ok {
		leaveOwn()
		out := apierrors.NewServiceUnavailable("callers read too many lists of views at the same time")
		out.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		return nil, out
	}
	return sync.OnceFunc(func() { leaveAll(); leaveOwn() }), nil
}

func newObjectView(config *configv1alpha1.GatewayObjectView) (*views.ObjectView, error) {
	from, err := projection.Parse(config.NamespaceFrom)
	if err != nil {
		return nil, err
	}
	fields := make([]projection.Path, len(config.Fields))
	for i, text := range config.Fields {
		if fields[i], err = projection.Parse(text); err != nil {
			return nil, err
		}
	}
	return &views.ObjectView{
		Name: config.Name,
		Source: schema.GroupVersionResource{
			Group:    config.Of.Group,
			Version:  config.Of.Version,
			Resource: config.Of.Resource,
		},
		Projection: projection.New(from, fields),
	}, nil
}

// authorizeView returns an error if the caller may not read a view. The boundary has already
// checked the request. The cluster decides with a SubjectAccessReview about the identity that it
// would receive with a forwarded request.
func (c *route) authorizeView(r *http.Request) *apierrors.StatusError {
	ctx := r.Context()
	attributes, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return forbidden(errNoTenant)
	}
	record := copyAttributes(attributes)
	forwarded, err := c.forwardedIdentity(ctx, record.User)
	if err != nil {
		return statusOf(ctx, err)
	}
	record.User = forwarded
	decision, reason, err := c.reviewAccess(ctx, record)
	if err == nil && decision == authorizer.DecisionAllow {
		return nil
	}
	return responsewriters.ForbiddenStatusError(record, reason)
}

// copyAttributes returns attributes as a record, in which the user can be replaced.
func copyAttributes(a authorizer.Attributes) *authorizer.AttributesRecord {
	byField, errField := a.GetFieldSelector()
	byLabel, errLabel := a.GetLabelSelector()
	return &authorizer.AttributesRecord{
		User:                      a.GetUser(),
		Verb:                      a.GetVerb(),
		Namespace:                 a.GetNamespace(),
		APIGroup:                  a.GetAPIGroup(),
		APIVersion:                a.GetAPIVersion(),
		Resource:                  a.GetResource(),
		Subresource:               a.GetSubresource(),
		Name:                      a.GetName(),
		ResourceRequest:           a.IsResourceRequest(),
		Path:                      a.GetPath(),
		FieldSelectorRequirements: byField,
		FieldSelectorParsingErr:   errField,
		LabelSelectorRequirements: byLabel,
		LabelSelectorParsingErr:   errLabel,
	}
}

// forwardedIdentity returns the identity that the cluster would receive if the gateway forwarded a
// request of the caller. The error is the same as for a forwarded request.
func (c *route) forwardedIdentity(ctx context.Context, u user.Info) (user.Info, error) {
	if u == nil {
		return nil, &notForwardedError{errForm}
	}
	if proxyStateFrom(ctx).passesToken() {
		return u, nil // the cluster's TokenReview returned this identity
	}
	impersonated, err := c.mapping.impersonation(u)
	if err != nil {
		return nil, &notForwardedError{err}
	}
	if err := c.gatewayNames.check(ctx, impersonated.UserName); err != nil {
		return nil, err
	}
	groups := append(slices.Clone(impersonated.Groups), user.AllAuthenticated)
	if namespace, ok := tenant.ServiceAccountNamespace(impersonated.UserName); ok && len(impersonated.Groups) == 0 {
		groups = append(groups, serviceaccount.MakeGroupNames(namespace)...)
	}
	return &user.DefaultInfo{
		Name:   impersonated.UserName,
		UID:    impersonated.UID,
		Groups: groups,
		Extra:  impersonated.Extra,
	}, nil
}
