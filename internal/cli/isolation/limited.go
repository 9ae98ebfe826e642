// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/tenant"
)

// listed is an object in a list or in a watch event.
type listed struct {
	Metadata struct{ Name, Namespace string }
	Spec     map[string]any
	Code     int // set for a Status
}

// document is a list or one event of a watch.
type document struct {
	Kind, Type string
	Metadata   struct{ Continue, RemainingItemCount any } // set if more objects exist
	Items      *[]listed
	Object     *listed
}

// revealsMore reports whether a list reveals that more objects exist than it contains.
func (d *document) revealsMore() bool {
	return d.Metadata.Continue != nil && d.Metadata.Continue != "" || d.Metadata.RemainingItemCount != nil
}

// onlyOwn returns a function that judges the response to a list or watch over all namespaces.
// The response may contain only objects in the caller's own namespace, and that Namespace
// itself. An error response is accepted, because it contains no objects.
func (w *fixture) onlyOwn(own int, path string) func(answer) (Outcome, string) {
	ownNamespace := w.namespace(own)
	// A webhook cannot remove the limit parameter of a list, so the list reveals the number of
	// remaining objects: see docs/webhook.md.
	more := w.mode == installation.Webhook
	isOwn := func(o listed) bool {
		return o.Metadata.Namespace == ownNamespace || o.Metadata.Namespace == "" && o.Metadata.Name == ownNamespace
	}
	return func(a answer) (Outcome, string) {
		if a.code >= http.StatusBadRequest {
			return Limited, ""
		}
		return objects{isWatch(path), more}.judge(a.body, isOwn)
	}
}

// objects specifies what a response may contain. If watch is true, a response without a list is
// accepted. If more is true, the response may reveal that more objects exist.
type objects struct{ watch, more bool }

// judge returns [Leaked] if a response contains an object for which isOwn returns false, or
// reveals that more objects exist although o.more is false. It returns [Untested] if it cannot
// read the response.
func (o objects) judge(body []byte, isOwn func(listed) bool) (Outcome, string) {
	documents, err := decodeAll(body)
	if err != nil || len(documents) == 0 && !o.watch {
		return Untested, untestedNoList
	}
	outcome := Limited
	reason := ""
	for _, d := range documents {
		switch {
		case d.revealsMore() && !o.more:
			return Leaked, ""
		case d.Items != nil:
			if slices.ContainsFunc(*d.Items, func(o listed) bool { return !isOwn(o) }) {
				return Leaked, ""
			}
		case d.Object == nil:
			outcome, reason = Untested, untestedNoList
		case d.Type == "ERROR" && d.Object.Code >= http.StatusInternalServerError:
			outcome, reason = Untested, untestedNoAnswer
		case d.Type != "BOOKMARK" && d.Type != "ERROR" && !isOwn(*d.Object):
			return Leaked, ""
		}
	}
	return outcome, reason
}

// decodeAll decodes a list, or the events of a watch.
func decodeAll(body []byte) (all []document, err error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	for {
		var d document
		switch err := decoder.Decode(&d); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, d)
	}
}

// onlyAbout returns a function that judges the response to a list or watch of objects that name
// their tenant in a field of their spec. An object of another tenant is a leak, and so is any
// status code except 200.
func onlyAbout(id tenant.ID, field string, watch bool) func(answer) (Outcome, string) {
	isOwn := func(o listed) bool { return o.Spec[field] == id.String() }
	return func(a answer) (Outcome, string) {
		if a.code != http.StatusOK {
			return Leaked, ""
		}
		outcome, reason := objects{watch: watch}.judge(a.body, isOwn)
		if reason == untestedNoList && holdsObject(a.body) {
			return Leaked, ""
		}
		return outcome, reason
	}
}

// holdsObject reports whether a body is a JSON object with at least one field.
func holdsObject(body []byte) bool {
	var object map[string]any
	return json.Unmarshal(body, &object) == nil && len(object) > 0
}
