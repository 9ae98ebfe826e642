// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package views

import (
	"crypto/sha256"
	"encoding/json"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// watchState is the state of one watch of a view.
type watchState struct {
	view      *ObjectView
	namespace string
	options   *options
	convert   conversion
	// sentDigests are the digests of the objects that the caller already has, keyed by name.
	sentDigests map[string][sha256.Size]byte
	out         *json.Encoder
	flush       func() error
}

// watch sends the changes of the parts that belong to a namespace. It first lists the objects at
// the caller's resource version, to find out which objects the caller already has. If one of these
// objects later leaves the namespace, the caller receives a deletion.
func (h *Objects) watch(w http.ResponseWriter, r *http.Request, v *ObjectView, info *request.RequestInfo) {
	convert, refused := negotiate(r, allowedKinds{})
	if refused != nil {
		respondError(w, r, refused)
		return
	}
	o, refused := parseOptions(r, info)
	if refused != nil {
		respondError(w, r, refused)
		return
	}
	s := &watchState{
		view:        v,
		namespace:   info.Namespace,
		options:     o,
		convert:     convert,
		sentDigests: map[string][sha256.Size]byte{},
		out:         json.NewEncoder(w),
		flush:       http.NewResponseController(w).Flush,
	}
	held := h.Budget.reserve(h.Tenant(r))
	defer held.release()
	initial, version, refused := h.listInitial(r, s, held)
	if refused != nil {
		respondError(w, r, refused)
		return
	}
	next, closed, err := h.openWatch(r.Context(), v, version, o)
	if err != nil {
		respondError(w, r, h.errorResponse(r.Context(), err))
		return
	}
	defer closed()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	for _, object := range initial {
		if s.send(watch.Added, object) != nil {
			return
		}
	}
	held.release()
	if s.flush() != nil {
		return
	}
	for {
		e, err := next()
		if err != nil || s.forward(e) != nil || s.flush() != nil {
			return
		}
	}
}

// listInitial reads the objects that the caller already has at its resource version. If the
// caller has none, it reads the current objects, and returns them to be sent first. It also
// returns the resource version from which the watch continues.
func (h *Objects) listInitial(
	r *http.Request, s *watchState, held *memoryReservation,
) (initial []map[string]any, from string, refused *apierrors.StatusError) {
	leave, refused := h.Acquire(r)
	if refused != nil {
		return nil, "", refused
	}
	defer leave()
	known, match := s.options.ResourceVersion, metav1.ResourceVersionMatchExact
	fresh := known == "" || known == "0" // the caller has no objects yet
	if fresh {
		match = ""
	}
	from, err := h.readAll(r.Context(), s.view, known, match, func(raw []byte) error {
		object, belongs := s.view.namespacePart(raw, s.namespace)
		if !belongs || !s.options.matches(object) {
			return nil
		}
		s.sentDigests[nameOf(object)] = digest(object)
		if !fresh {
			return nil
		}
		initial = append(initial, object)
		return held.add(len(raw))
	})
	if err != nil {
		return nil, "", h.errorResponse(r.Context(), err)
	}
	if !fresh {
		from = known
	}
	return initial, from, nil
}

// forward translates a watch event of the cluster into the event for this namespace, if any, and
// sends it to the caller. If it returns an error, the watch ends.
func (s *watchState) forward(e *event) error {
	switch watch.EventType(e.Type) {
	case watch.Added, watch.Modified:
		return s.sendChanged(e.Object)
	case watch.Deleted:
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(e.Object, &object); err != nil {
			return err
		}
		return s.sendDeleted(object.Name, object.ResourceVersion)
	case watch.Bookmark:
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(e.Object, &object); err != nil || !s.options.AllowWatchBookmarks {
			return err
		}
		return s.send(watch.Bookmark, s.metadataOnly("", object.ResourceVersion))
	}
	failed := apierrors.NewInternalError(errForm)
	var status metav1.Status
	if err := json.Unmarshal(e.Object, &status); err == nil && status.Code == http.StatusGone {
		failed = errExpired()
	}
	status = failed.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: discovery.String(), Kind: "Status"}
	_ = s.out.Encode(map[string]any{"type": watch.Error, "object": &status}) // the watch ends even if this fails
	return failed
}

// sendChanged handles an object that was created or changed.
func (s *watchState) sendChanged(raw []byte) error {
	object, belongs := s.view.namespacePart(raw, s.namespace)
	if !belongs || !s.options.matches(object) {
		var removed metav1.PartialObjectMetadata
		if err := json.Unmarshal(raw, &removed); err != nil {
			return err
		}
		return s.sendDeleted(removed.Name, removed.ResourceVersion)
	}
	name := nameOf(object)
	now := digest(object)
	before, ok := s.sentDigests[name]
	s.sentDigests[name] = now
	switch {
	case !ok:
		return s.send(watch.Added, object)
	case before != now:
		return s.send(watch.Modified, object)
	}
	return nil // only fields that the view does not show have changed
}

// sendDeleted sends a deletion if the caller has the object. The cluster's event may not contain
// the part of this namespace, so the deletion contains only the name and the resource version.
func (s *watchState) sendDeleted(name, resourceVersion string) error {
	if _, ok := s.sentDigests[name]; !ok {
		return nil
	}
	delete(s.sentDigests, name)
	return s.send(watch.Deleted, s.metadataOnly(name, resourceVersion))
}

// metadataOnly returns an object of the view without its fields.
func (s *watchState) metadataOnly(name, resourceVersion string) map[string]any {
	metadata := map[string]any{"resourceVersion": resourceVersion}
	if name != "" {
		metadata["name"], metadata["namespace"] = name, s.namespace
	}
	return map[string]any{"apiVersion": GroupVersion.String(), "kind": s.view.kind(), "metadata": metadata}
}

func (s *watchState) send(what watch.EventType, object map[string]any) error {
	return s.out.Encode(map[string]any{"type": what, "object": s.convert.convert(object)})
}

// digest returns a digest of the part of an object in the view, without its resource version.
func digest(object map[string]any) [sha256.Size]byte {
	metadata, _ := object["metadata"].(map[string]any)
	version := metadata["resourceVersion"]
	delete(metadata, "resourceVersion")
	text, _ := json.Marshal(object) // its values are strings, numbers and booleans
	metadata["resourceVersion"] = version
	return sha256.Sum256(text)
}
