// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubetenant/kubetenant/tenant"
)

const labelSelector = "labelSelector"

var errSelectorTwice = errors.New("labelSelector is set twice or in the wrong case")

// selectsOnlyTenant reports whether a selector matches only objects with the label of tenant id.
// The selector must contain a requirement on the tenant label with exactly this value.
func selectsOnlyTenant(selector labels.Requirements, id tenant.ID) bool {
	for i := range selector {
		if value, ok := tenantValue(&selector[i]); ok && value == id.String() {
			return true
		}
	}
	return false
}

// selectedTenant returns the only tenant whose objects a selector can match. It returns false if
// the selector is not limited to a valid tenant, or if it requires two different tenants.
func selectedTenant(selector labels.Requirements) (tenant.ID, bool) {
	found := ""
	for i := range selector {
		value, ok := tenantValue(&selector[i])
		if !ok {
			continue
		}
		if found != "" && found != value {
			return tenant.ID{}, false
		}
		found = value
	}
	id, err := tenant.Parse(found)
	return id, err == nil
}

// tenantValue returns the only value of the tenant label that the requirement allows. It returns
// false if the requirement is about another label or allows other values.
func tenantValue(r *labels.Requirement) (string, bool) {
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
		if values := r.ValuesUnsorted(); r.Key() == tenant.Label && len(values) == 1 {
			return values[0], true
		}
	}
	return "", false
}

// withTenantRequirement returns a copy of selector with a requirement on the label of tenant id.
func withTenantRequirement(selector labels.Requirements, id tenant.ID) (labels.Requirements, error) {
	r, err := labels.NewRequirement(tenant.Label, selection.Equals, []string{id.String()})
	if err != nil {
		return nil, err
	}
	return append(append(labels.Requirements{}, selector...), *r), nil
}

// decideLimitedList decides about a list, watch or deletecollection that must be limited to
// tenant id. The server adds the label requirement to a request that later passes [WithTenant],
// and to the request that a SelfSubjectAccessReview is about. Any other request must already
// contain the requirement. A label selector that does not parse or occurs twice is denied.
func (b *Boundary) decideLimitedList(
	ctx context.Context,
	state *requestState,
	id tenant.ID,
	attrs *requestAttributes,
) verdict {
	selector, err := attrs.GetLabelSelector()
	if err != nil {
		return verdict{reason: ReasonNotLimited, err: err}
	}
	if state != nil {
		if selector, err = onlyLabelSelector(state.query); err != nil {
			return verdict{reason: ReasonNotLimited, err: err}
		}
	}
	if state == nil && selectsOnlyTenant(selector, id) {
		return verdict{delegate: true, rule: RuleLimited}
	}
	if state == nil && !isForSelfReview(ctx) {
		return verdict{reason: ReasonNotLimited}
	}
	if !selectsOnlyTenant(selector, id) {
		if selector, err = withTenantRequirement(selector, id); err != nil {
			return verdict{reason: ReasonNotLimited, err: err}
		}
	}
	return verdict{delegate: true, rule: RuleLimited, limits: &limits{selector: selector}}
}

// onlyLabelSelector returns the only label selector of a query. It parses the query itself,
// because RequestInfo contains only the first of several selectors, and none on the deprecated
// watch paths.
func onlyLabelSelector(query string) (labels.Requirements, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	text := ""
	for key, selectors := range values {
		if !strings.EqualFold(key, labelSelector) {
			continue
		}
		if key != labelSelector || len(selectors) > 1 {
			return nil, errSelectorTwice
		}
		text = selectors[0]
	}
	return labels.ParseToRequirements(text)
}

// isForSelfReview reports whether ctx belongs to a SelfSubjectAccessReview. If the client sent
// the reviewed request, the server would limit it to the tenant.
func isForSelfReview(ctx context.Context) bool {
	info, ok := request.RequestInfoFrom(ctx)
	return ok && info.IsResourceRequest && info.APIGroup == "authorization.k8s.io" &&
		info.Resource == "selfsubjectaccessreviews" && info.Verb == "create"
}

// decideOwnObjectList decides about a list or a watch of a resource whose objects each describe one
// tenant. It limits the request to the objects that describe tenant id. It denies a request for the
// name of another object, and a request with another field selector.
func (b *Boundary) decideOwnObjectList(
	ctx context.Context, state *requestState, id tenant.ID, verb string, attrs *requestAttributes,
) verdict {
	field, value := b.options.ObjectField(attrs.resource, id)
	byName := field == metav1.ObjectNameField
	switch {
	case field == "", attrs.name != "" && !b.describesTenant(attrs.resource, attrs.name, id),
		attrs.name != "" && byName && attrs.name != value:
		return verdict{reason: ReasonCluster}
	}
	l := limits{name: attrs.name, fields: fields.OneTermEqualSelector(field, value)}
	if byName {
		l.name = value
	} else if attrs.name != "" {
		l.fields = fields.AndSelectors(fields.OneTermEqualSelector(metav1.ObjectNameField, attrs.name), l.fields)
	}
	// For these requests, the server reads only the object with that name.
	readsOne := attrs.name != "" && (byName || verb == "list")
	var err error
	limited := true
	switch {
	case state != nil:
		limited, err = requiresOnly(state.query, l.fields.Requirements())
	case !isForSelfReview(ctx) && !readsOne:
		limited, err = requires(attrs, fields.OneTermEqualSelector(field, value).Requirements())
	}
	if !limited || err != nil {
		return verdict{reason: ReasonNotNamed, err: err}
	}
	return verdict{
		delegate: true,
		rule:     RuleOwnObject,
		owner:    id,
		limits:   &l,
	}
}

const fieldSelector = "fieldSelector"

var errFieldsTwice = errors.New("fieldSelector is set twice or in the wrong case")

// requiresOnly reports whether every term in the field selector of a query is also in terms. It
// parses the query itself, because RequestInfo contains only the first of several selectors.
func requiresOnly(query string, terms fields.Requirements) (bool, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return false, err
	}
	for key, selectors := range values {
		if !strings.EqualFold(key, fieldSelector) {
			continue
		}
		if key != fieldSelector || len(selectors) > 1 {
			return false, errFieldsTwice
		}
		selector, err := fields.ParseSelector(selectors[0])
		if err != nil {
			return false, err
		}
		for _, r := range selector.Requirements() {
			if !slices.Contains(terms, r) {
				return false, nil
			}
		}
	}
	return true, nil
}

// requires reports whether the field selector of a request contains all terms.
func requires(attrs *requestAttributes, terms fields.Requirements) (bool, error) {
	requirements, err := attrs.GetFieldSelector()
	for _, term := range terms {
		if !slices.Contains(requirements, term) {
			return false, err
		}
	}
	return true, err
}

// withFieldSelector returns the request limited by a field selector and without paging. The
// RequestInfo gets the given name, which is empty if the selector requires no name. If there is
// an error, it is the response to the client.
func withFieldSelector(
	ctx context.Context, r *http.Request, selector fields.Selector, name string,
) (context.Context, *http.Request, error) {
	values, err := queryWithoutPaging(r)
	if err != nil {
		return nil, nil, err
	}
	text := selector.String()
	values.Set(fieldSelector, text)
	ctx, r = withQuery(ctx, r, values, func(info *request.RequestInfo) { info.Name, info.FieldSelector = name, text })
	return ctx, r, nil
}

// withQuery returns the request with another query. It applies change to a copy of the RequestInfo,
// which the handlers read.
func withQuery(
	ctx context.Context, r *http.Request, query url.Values, change func(*request.RequestInfo),
) (context.Context, *http.Request) {
	if info, ok := request.RequestInfoFrom(ctx); ok {
		changed := *info
		change(&changed)
		ctx = request.WithRequestInfo(ctx, &changed)
	}
	u := *r.URL
	u.RawQuery = query.Encode()
	r = r.WithContext(ctx)
	r.URL = &u
	return ctx, r
}

// errExpired is the response to a list with a continue token. A limited list has one page, because
// the end of a page would depend on objects of other tenants. Clients then start the list again.
var errExpired error = apierrors.NewResourceExpired("the list cannot be continued: start again without continue")

var errLimitedDelete error = apierrors.NewBadRequest("limit may not be set to delete a collection across all " +
	"namespaces")

// queryWithoutPaging returns the query of a request without limit and continue. With a limit, the
// continue token would reveal that more objects exist, even if only other tenants have them. If
// there is an error, it is the response to the client.
func queryWithoutPaging(r *http.Request) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	for key, tokens := range values {
		if strings.EqualFold(key, "continue") {
			if slices.ContainsFunc(tokens, func(token string) bool { return token != "" }) {
				return nil, errExpired
			}
			delete(values, key)
		}
	}
	for key := range values {
		if strings.EqualFold(key, "limit") {
			if r.Method == http.MethodDelete {
				return nil, errLimitedDelete // without the limit, more objects would be deleted
			}
			delete(values, key)
		}
	}
	return values, nil
}

// withLabelSelector returns the request limited to the selector and without paging. If there is
// an error, it is the response to the client.
func withLabelSelector(
	ctx context.Context, r *http.Request, selector labels.Requirements,
) (context.Context, *http.Request, error) {
	values, err := queryWithoutPaging(r)
	if err != nil {
		return nil, nil, err
	}
	text := labels.NewSelector().Add(selector...).String()
	values.Set(labelSelector, text)
	ctx, r = withQuery(ctx, r, values, func(info *request.RequestInfo) { info.LabelSelector = text })
	return ctx, r, nil
}
