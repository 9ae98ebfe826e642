// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package views

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// Handler serves the view of the clusters. The caller MUST remove [Path] from the request's path.
// It is safe for concurrent use.
type Handler struct {
	// Clusters returns the clusters that the caller of a request may use, or the error to respond
	// with.
	Clusters func(r *http.Request) ([]Cluster, *apierrors.StatusError)
}

// discovery is the API version of discovery documents and of errors.
var discovery = schema.GroupVersion{Version: "v1"}

var resource = GroupVersion.WithResource(Resource).GroupResource()

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		respondError(w, r, apierrors.NewMethodNotSupported(resource, strings.ToLower(r.Method)))
		return
	}
	path := strings.TrimSuffix(r.URL.Path, "/")
	if serveDiscovery(w, r, path, metav1.APIResource{
		Name:         Resource,
		SingularName: "cluster",
		Kind:         Kind,
		Verbs:        metav1.Verbs{"get", "list"},
	}) {
		return
	}
	switch path {
	case versionPath + "/" + Resource:
		h.list(w, r)
	default:
		name, found := strings.CutPrefix(path, versionPath+"/"+Resource+"/")
		if !found || strings.Contains(name, "/") {
			respondError(w, r, errPathNotFound())
			return
		}
		h.get(w, r, name)
	}
}

// versionPath is the path of the API version of the views.
const versionPath = "/apis/" + group + "/" + version

// serveDiscovery responds to a discovery request, and returns false for every other request.
func serveDiscovery(w http.ResponseWriter, r *http.Request, path string, resources ...metav1.APIResource) bool {
	all := metav1.APIGroup{Name: GroupVersion.Group}
	all.PreferredVersion = metav1.GroupVersionForDiscovery{
		GroupVersion: GroupVersion.String(),
		Version:      GroupVersion.Version,
	}
	all.Versions = []metav1.GroupVersionForDiscovery{all.PreferredVersion}
	switch path {
	case "/apis":
		respond(w, r, discovery, &metav1.APIGroupList{Groups: []metav1.APIGroup{all}})
	case "/apis/" + group:
		respond(w, r, discovery, &all)
	case versionPath:
		respond(w, r, discovery, &metav1.APIResourceList{GroupVersion: GroupVersion.String(), APIResources: resources})
	default:
		return false
	}
	return true
}

// errPathNotFound is the response to a path that is neither a view nor discovery.
func errPathNotFound() *apierrors.StatusError {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "", 0, false)
}

func (h *Handler) get(w http.ResponseWriter, r *http.Request, name string) {
	all, err := h.Clusters(r)
	if err != nil {
		respondError(w, r, err)
		return
	}
	at := slices.IndexFunc(all, func(c Cluster) bool { return c.Name == name })
	if at < 0 { // same response as for a cluster that the caller may not use
		respondError(w, r, apierrors.NewNotFound(resource, name))
		return
	}
	object := all[at]
	object.TypeMeta = metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: Kind}
	respondObjectOrTable(w, r, &object, []Cluster{object})
}

func (h *Handler) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if watch, _ := strconv.ParseBool(query.Get("watch")); watch || query.Has("watch") && query.Get("watch") == "" {
		respondError(w, r, apierrors.NewMethodNotSupported(resource, "watch"))
		return
	}
	byLabel, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		respondError(w, r, apierrors.NewBadRequest("malformed labelSelector"))
		return
	}
	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil ||
		slices.ContainsFunc(byField.Requirements(), func(f fields.Requirement) bool { return f.Field != "metadata.name" }) {
		respondError(w, r, apierrors.NewBadRequest("malformed fieldSelector: only metadata.name is supported"))
		return
	}
	all, refused := h.Clusters(r)
	if refused != nil {
		respondError(w, r, refused)
		return
	}
	all = slices.DeleteFunc(all, func(c Cluster) bool {
		return !byLabel.Matches(labels.Set(c.Labels)) || !byField.Matches(fields.Set{"metadata.name": c.Name})
	})
	respondObjectOrTable(w, r, &ClusterList{Items: all}, all)
}

// respondObjectOrTable writes object, or a table of items if the caller requests a table.
func respondObjectOrTable(w http.ResponseWriter, r *http.Request, object runtime.Object, items []Cluster) {
	media, _, err := negotiation.NegotiateOutputMediaType(r, codecs(), tableRestrictions{})
	if err != nil {
		respond(w, r, GroupVersion, object) // respond writes the error
		return
	}
	if media.Convert == nil {
		respond(w, r, GroupVersion, object)
		return
	}
	respond(w, r, metav1.SchemeGroupVersion, table(items, metav1.IncludeObjectPolicy(r.URL.Query().Get("includeObject"))))
}

// table returns a table of clusters. kubectl prints the column for labels only with -o wide.
func table(items []Cluster, include metav1.IncludeObjectPolicy) *metav1.Table {
	out := &metav1.Table{
		Rows: make([]metav1.TableRow, len(items)),
		ColumnDefinitions: []metav1.TableColumnDefinition{
			{
				Name:        "Name",
				Type:        "string",
				Format:      "name",
				Description: "name of the cluster in paths",
			},
			{Name: "Reachable", Type: "boolean", Description: "whether the gateway's data about the cluster is current"},
			{Name: "Version", Type: "string", Description: "version of the kube-apiserver"},
			{
				Name:        "Labels",
				Type:        "string",
				Priority:    1,
				Description: "labels from the gateway's configuration",
			},
		},
	}
	for i := range items {
		c := items[i].DeepCopyObject().(*Cluster)
		c.TypeMeta = metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: Kind}
		row := metav1.TableRow{Cells: []any{c.Name, c.Status.Reachable, c.Status.Version, labels.Set(c.Labels).String()}}
		switch include {
		case metav1.IncludeNone:
		case metav1.IncludeObject:
			row.Object.Object = c
		default:
			row.Object.Object = &metav1.PartialObjectMetadata{
				ObjectMeta: c.ObjectMeta,
				TypeMeta:   metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "PartialObjectMetadata"},
			}
		}
		out.Rows[i] = row
	}
	return out
}

func respond(w http.ResponseWriter, r *http.Request, version schema.GroupVersion, object runtime.Object) {
	responsewriters.WriteObjectNegotiated(codecs(), tableRestrictions{}, version, w, r, http.StatusOK, object, false)
}

// respondNegotiated writes an object of a view in the format that the caller requests.
func respondNegotiated(w http.ResponseWriter, r *http.Request, version schema.GroupVersion, object runtime.Object) {
	responsewriters.WriteObjectNegotiated(codecs(), allowedKinds{table: true}, version, w, r, http.StatusOK, object, false)
}

func respondError(w http.ResponseWriter, r *http.Request, err *apierrors.StatusError) {
	responsewriters.ErrorNegotiated(err, codecs(), discovery, w, r)
}

// textCodecs encodes JSON and YAML. The views do not support protocol buffers.
type textCodecs struct{ serializer.CodecFactory }

// SupportedMediaTypes implements [runtime.NegotiatedSerializer].
func (t textCodecs) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(t.CodecFactory.SupportedMediaTypes()), func(i runtime.SerializerInfo) bool {
		return i.MediaType != runtime.ContentTypeJSON && i.MediaType != runtime.ContentTypeYAML
	})
}

var codecs = sync.OnceValue(func() textCodecs {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, discovery)
	scheme.AddKnownTypes(GroupVersion, &Cluster{}, &ClusterList{})
	scheme.AddKnownTypes(metav1.SchemeGroupVersion, &metav1.Table{})
	return textCodecs{serializer.NewCodecFactory(scheme)}
})

// tableRestrictions allows callers to request the objects themselves or a Table.
type tableRestrictions struct{}

// AllowsMediaTypeTransform implements [negotiation.EndpointRestrictions].
func (tableRestrictions) AllowsMediaTypeTransform(_, _ string, target *schema.GroupVersionKind) bool {
	return target == nil || *target == metav1.SchemeGroupVersion.WithKind("Table")
}

// AllowsServerVersion implements [negotiation.EndpointRestrictions].
func (tableRestrictions) AllowsServerVersion(string) bool { return false }

// AllowsStreamSchema implements [negotiation.EndpointRestrictions].
func (tableRestrictions) AllowsStreamSchema(string) bool { return false }
