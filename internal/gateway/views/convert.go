// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package views

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
)

// conversion is the kind to which a response is converted, or "" if the caller requests the objects
// themselves.
type conversion string

const (
	asTable   conversion = "Table"
	asPartial conversion = "PartialObjectMetadata"
)

// allowedKinds are the kinds that a caller may request. For watches, table is false.
type allowedKinds struct {
	tableRestrictions

	table bool
}

// AllowsMediaTypeTransform implements [negotiation.EndpointRestrictions].
func (f allowedKinds) AllowsMediaTypeTransform(_, _ string, target *schema.GroupVersionKind) bool {
	if target == nil {
		return true
	}
	kind := conversion(strings.TrimSuffix(target.Kind, "List"))
	return target.GroupVersion() == metav1.SchemeGroupVersion &&
		(kind == asPartial || f.table && target.Kind == string(asTable))
}

// negotiate returns the conversion that a caller requests. For a watch, only JSON is allowed.
func negotiate(r *http.Request, allowed allowedKinds) (conversion, *apierrors.StatusError) {
	media, _, err := negotiation.NegotiateOutputMediaType(r, codecs(), allowed)
	if err != nil || !allowed.table && media.Accepted.MediaType != runtime.ContentTypeJSON {
		return "", errNotAcceptable()
	}
	if media.Convert == nil {
		return "", nil
	}
	return conversion(strings.TrimSuffix(media.Convert.Kind, "List")), nil
}

func errNotAcceptable() *apierrors.StatusError {
	out := apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "", schema.GroupResource{}, "", "", 0, true)
	out.ErrStatus.Reason = metav1.StatusReasonNotAcceptable
	out.ErrStatus.Details = nil
	out.ErrStatus.Message = "a view can be read as application/json or application/yaml, and watched as application/json"
	return out
}

// convert returns an object of a view, or only its metadata if the caller requests metadata.
func (c conversion) convert(object map[string]any) map[string]any {
	if c != asPartial {
		return object
	}
	return map[string]any{
		"apiVersion": metav1.SchemeGroupVersion.String(),
		"kind":       string(asPartial),
		"metadata":   object["metadata"],
	}
}

func (c conversion) writeObject(w http.ResponseWriter, r *http.Request, _ *ObjectView, object map[string]any) {
	if c == asTable {
		c.writeTable(w, r, []any{object}, stringAt(object, "metadata", "resourceVersion"))
		return
	}
	c.writeNegotiated(w, r, c.convert(object))
}

func (c conversion) writeList(
	w http.ResponseWriter,
	r *http.Request,
	v *ObjectView,
	items []any,
	resourceVersion string,
) {
	if c == asTable {
		c.writeTable(w, r, items, resourceVersion)
		return
	}
	kind := v.kind()
	in := GroupVersion.String()
	if c == asPartial {
		kind, in = string(asPartial), metav1.SchemeGroupVersion.String()
	}
	for i := range items {
		object, _ := items[i].(map[string]any)
		items[i] = c.convert(object)
	}
	c.writeNegotiated(w, r, map[string]any{
		"apiVersion": in,
		"kind":       kind + "List",
		"metadata":   map[string]any{"resourceVersion": resourceVersion},
		"items":      items,
	})
}

// writeNegotiated writes an object or a list of a view.
func (c conversion) writeNegotiated(w http.ResponseWriter, r *http.Request, object map[string]any) {
	in := GroupVersion
	if c == asPartial {
		in = metav1.SchemeGroupVersion
	}
	respondNegotiated(w, r, in, &unstructured.Unstructured{Object: object})
}

// writeTable writes a table with the names of objects.
func (c conversion) writeTable(w http.ResponseWriter, r *http.Request, items []any, resourceVersion string) {
	out := &metav1.Table{
		ListMeta: metav1.ListMeta{ResourceVersion: resourceVersion},
		Rows:     make([]metav1.TableRow, len(items)),
		ColumnDefinitions: []metav1.TableColumnDefinition{
			{
				Name:        "Name",
				Type:        "string",
				Format:      "name",
				Description: "name of the object in the cluster",
			},
		},
	}
	include := metav1.IncludeObjectPolicy(r.URL.Query().Get("includeObject"))
	for i := range items {
		object, _ := items[i].(map[string]any)
		out.Rows[i].Cells = []any{nameOf(object)}
		switch include {
		case metav1.IncludeNone:
		case metav1.IncludeObject:
			out.Rows[i].Object.Object = &unstructured.Unstructured{Object: object}
		default:
			out.Rows[i].Object.Object = &unstructured.Unstructured{Object: asPartial.convert(object)}
		}
	}
	respondNegotiated(w, r, metav1.SchemeGroupVersion, out)
}
