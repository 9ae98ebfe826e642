// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package views

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/projection"
)

// ObjectView is a namespaced view of a cluster-scoped resource.
type ObjectView struct {
	// Name is the name of the view's resource.
	Name string
	// Source is the resource that the view reads.
	Source schema.GroupVersionResource
	// Projection reduces an object to the part that belongs to a namespace.
	Projection *projection.Projection
}

// kind returns the kind of the view's objects, which is its name with a capital letter.
func (v *ObjectView) kind() string { return strings.ToUpper(v.Name[:1]) + v.Name[1:] }

func (v *ObjectView) resource() schema.GroupResource {
	return schema.GroupResource{Group: group, Resource: v.Name}
}

// Objects serves the views of one cluster's objects. The caller MUST remove [Path] from the
// request's path. Requests MUST have a RequestInfo. It is safe for concurrent use.
type Objects struct {
	// Views contains the views, keyed by name.
	Views map[string]*ObjectView
	// Client reads the objects. It MUST NOT be limited to a namespace or a tenant.
	Client rest.Interface
	// Authorize returns an error if the caller may not make a request for a view. It MUST check
	// the caller's own rights in the namespace of the request.
	Authorize func(*http.Request) *apierrors.StatusError
	// Tenant returns the name of the caller's tenant.
	Tenant func(*http.Request) string
	// Acquire returns an error if too many lists are being read for the caller's tenant, or in
	// total. If refused is nil, leave MUST be called at least once after the list was read.
	Acquire func(*http.Request) (leave func(), refused *apierrors.StatusError)
	// ClusterError returns the response to an error from the cluster. It MUST NOT repeat the
	// error.
	ClusterError func(context.Context, error) *apierrors.StatusError
	// Budget limits the bytes of objects that are held for responses.
	Budget *Budget
}

// ServeHTTP implements [http.Handler].
func (h *Objects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		respondError(w, r, apierrors.NewMethodNotSupported(schema.GroupResource{Group: group}, strings.ToLower(r.Method)))
		return
	}
	path := strings.TrimSuffix(r.URL.Path, "/")
	if serveDiscovery(w, r, path, h.resources()...) {
		return
	}
	info, found := request.RequestInfoFrom(r.Context())
	if !found || !info.IsResourceRequest {
		respondError(w, r, errPathNotFound())
		return
	}
	v := h.Views[info.Resource]
	switch {
	case v == nil || !strings.HasPrefix(path, versionPath+"/"):
		respondError(w, r, errPathNotFound())
		return
	case path == versionPath+"/"+v.Name:
		respondError(w, r, apierrors.NewBadRequest("a view can only be read in one namespace: specify a namespace"))
		return
	}
	all := versionPath + "/namespaces/" + info.Namespace + "/" + v.Name
	isGet := info.Verb == "get" && path == all+"/"+info.Name
	if info.Namespace == "" || info.Subresource != "" || !isGet && path != all {
		respondError(w, r, errPathNotFound())
		return
	}
	if refused := h.Authorize(r); refused != nil {
		respondError(w, r, refused)
		return
	}
	switch {
	case isGet:
		h.get(w, r, v, info)
	case info.Verb == "list":
		h.list(w, r, v, info)
	case info.Verb == "watch":
		h.watch(w, r, v, info)
	default:
		respondError(w, r, apierrors.NewMethodNotSupported(v.resource(), info.Verb))
	}
}

// resources returns the views for discovery.
func (h *Objects) resources() []metav1.APIResource {
	out := []metav1.APIResource{}
	for _, v := range h.Views {
		out = append(out, metav1.APIResource{
			Name:         v.Name,
			SingularName: v.Name,
			Namespaced:   true,
			Kind:         v.kind(),
			Verbs:        metav1.Verbs{"get", "list", "watch"},
		})
	}
	slices.SortFunc(out, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (h *Objects) get(w http.ResponseWriter, r *http.Request, v *ObjectView, info *request.RequestInfo) {
	convert, refused := negotiate(r, allowedKinds{table: true})
	if refused != nil {
		respondError(w, r, refused)
		return
	}
	if len(rest.IsValidPathSegmentName(info.Name)) > 0 {
		respondError(w, r, apierrors.NewNotFound(v.resource(), info.Name))
		return
	}
	held := h.Budget.reserve(h.Tenant(r))
	defer held.release()
	raw, err := h.read(r.Context(), v, info.Name, r.URL.Query().Get("resourceVersion"), held)
	switch {
	case apierrors.IsNotFound(err):
		respondError(w, r, apierrors.NewNotFound(v.resource(), info.Name))
		return
	case err != nil:
		respondError(w, r, h.errorResponse(r.Context(), err))
		return
	}
	object, belongs := v.namespacePart(raw, info.Namespace)
	if !belongs || nameOf(object) != info.Name { // same response as for an object that does not exist
		respondError(w, r, apierrors.NewNotFound(v.resource(), info.Name))
		return
	}
	convert.writeObject(w, r, v, object)
}

func (h *Objects) list(w http.ResponseWriter, r *http.Request, v *ObjectView, info *request.RequestInfo) {
	convert, refused := negotiate(r, allowedKinds{table: true})
	if refused != nil {
		respondError(w, r, refused)
		return
	}
	wanted, refused := parseOptions(r, info)
	if refused != nil {
		respondError(w, r, refused)
		return
	}
	leave, refused := h.Acquire(r)
	if refused != nil {
		respondError(w, r, refused)
		return
	}
	defer leave()
	held := h.Budget.reserve(h.Tenant(r))
	defer held.release()
	items := []any{}
	version, err := h.readAll(r.Context(), v, wanted.ResourceVersion, wanted.ResourceVersionMatch, func(raw []byte) error {
		object, belongs := v.namespacePart(raw, info.Namespace)
		if !belongs || !wanted.matches(object) {
			return nil
		}
		items = append(items, object)
		return held.add(len(raw))
	})
	leave() // sending the response to the caller may take long
	if err != nil {
		respondError(w, r, h.errorResponse(r.Context(), err))
		return
	}
	convert.writeList(w, r, v, items, version)
}

// errorResponse returns the response to an error from reading the objects. It contains no text of
// the error.
func (h *Objects) errorResponse(ctx context.Context, err error) *apierrors.StatusError {
	if refused := budgetError(err); refused != nil {
		return refused
	}
	switch {
	case apierrors.IsNotFound(err):
		return errPathNotFound()
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		return errExpired()
	case apierrors.IsBadRequest(err) || apierrors.IsInvalid(err):
		return apierrors.NewBadRequest("the cluster rejected the resourceVersion")
	}
	return h.ClusterError(ctx, err)
}

func errExpired() *apierrors.StatusError {
	return apierrors.NewResourceExpired("the resourceVersion is too old: list the view again")
}

// options are the options of a list or a watch. The field selector is also the source of the name
// in RequestInfo, for which the request was authorized.
type options struct{ internalversion.ListOptions }

// parseOptions returns the options of a list or a watch. It rejects the options that a view does
// not support. It ignores limit, because each list has one page.
func parseOptions(r *http.Request, info *request.RequestInfo) (*options, *apierrors.StatusError) {
	out := &options{}
	query := r.URL.Query()
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion,
		&out.ListOptions); err != nil {
		return nil, apierrors.NewBadRequest("malformed list options")
	}
	if errs := validation.ValidateListOptions(&out.ListOptions, false); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if out.Continue != "" {
		return nil, apierrors.NewBadRequest("a view has no continue tokens: its lists have one page")
	}
	if out.Watch != (info.Verb == "watch") {
		return nil, apierrors.NewBadRequest("malformed watch option")
	}
	if _, err := strconv.ParseUint(out.ResourceVersion, 10, 64); err != nil && out.ResourceVersion != "" {
		return nil, apierrors.NewBadRequest("malformed resourceVersion")
	}
	if out.FieldSelector != nil && slices.ContainsFunc(out.FieldSelector.Requirements(), func(f fields.Requirement) bool {
		return f.Field != "metadata.name" && f.Field != "metadata.namespace"
	}) {
		return nil, apierrors.NewBadRequest("malformed fieldSelector: specify metadata.name or metadata.namespace")
	}
	return out, nil
}

// matches reports whether the part of an object in the view matches the selectors. Selectors do not
// match labels that the view does not show.
func (o *options) matches(object map[string]any) bool {
	name := nameOf(object)
	namespace := stringAt(object, "metadata", "namespace")
	shown := labelsOf(object)
	return (o.LabelSelector == nil || o.LabelSelector.Matches(shown)) &&
		(o.FieldSelector == nil ||
			o.FieldSelector.Matches(fields.Set{"metadata.name": name, "metadata.namespace": namespace}))
}
