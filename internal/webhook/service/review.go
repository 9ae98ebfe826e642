// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/internal/turns"
)

// errReview is the error for a body that is not a review that the path accepts. The error does not
// contain the body, because the body may contain a token.
var errReview = errors.New("the path does not accept this review")

var errTooLarge = errors.New("the body is too large")

// answer is the response to a review.
type answer interface {
	// encode returns the response as JSON.
	encode() ([]byte, error)
}

// answerer decodes one review and returns the response.
type answerer func(ctx context.Context, body []byte) (answer, error)

// requestBody is a body whose first bytes, the head, have been read. size equals limit if the
// client did not send the length.
type requestBody struct {
	head        []byte
	size, limit int64
}

// readAll reads the rest of the body and returns the whole body.
func (c *requestBody) readAll(r *http.Request) ([]byte, error) {
	if r.ContentLength >= 0 {
		if int64(len(c.head)) == c.size {
			return c.head, nil
		}
		body := make([]byte, c.size)
		n := copy(body, c.head)
		_, err := io.ReadFull(r.Body, body[n:])
		return body, err
	}
	body, err := io.ReadAll(io.MultiReader(bytes.NewReader(c.head), io.LimitReader(r.Body, c.limit-int64(len(c.head))+1)))
	if err == nil && int64(len(body)) > c.limit {
		err = errTooLarge
	}
	return body, err
}

func tooLarge(w http.ResponseWriter) {
	// The rest of the body is not read, so the connection cannot be reused.
	w.Header().Set("Connection", "close")
	http.Error(w, errTooLarge.Error(), http.StatusRequestEntityTooLarge)
}

// review is a TokenReview or a SubjectAccessReview. v1 and v1beta1 differ only in their specs.
type review[S any] struct {
	metav1.TypeMeta `json:",inline"`
	Spec            S `json:"spec"`
}

// reviewFormat describes the encoding of the reviews of a kind.
type reviewFormat[S any] struct {
	group, kind string
	decodeSpec  func(*fastDecoder, *S) bool // accepts only the encoding of kube-apiserver
	emptyStatus string                      // the encoded status in a request
}

// read decodes a review.
func (f *reviewFormat[S]) read(body []byte) (*review[S], error) {
	in := &review[S]{}
	if f.recognize(body, in) {
		return in, checkType(&in.TypeMeta, f.group, f.kind)
	}
	in = &review[S]{}
	return in, decodeReview(body, in, &in.TypeMeta, f.group, f.kind)
}

// recognize decodes a review that has the encoding of kube-apiserver. It returns false for any
// other encoding.
func (f *reviewFormat[S]) recognize(body []byte, in *review[S]) bool {
	q := &fastDecoder{body}
	return q.object(func(name []byte) bool {
		switch string(name) {
		case "kind":
			return q.string(&in.Kind)
		case "apiVersion":
			return q.string(&in.APIVersion)
		case "spec":
			return f.decodeSpec(q, &in.Spec)
		case "metadata":
			return q.literal(`{}`)
		case "status":
			return q.literal(f.emptyStatus)
		}
		return false
	}) && q.atEnd()
}

// decodeReview decodes a review of the given group and kind, in version v1 or v1beta1, into v.
// typeMeta MUST point to the type in v. Names of fields are case-sensitive, and a duplicate name is
// an error, as in encoding/json/v2. Unknown fields are ignored, because newer versions of
// kube-apiserver may send more fields.
func decodeReview(body []byte, v any, typeMeta *metav1.TypeMeta, group, kind string) error {
	if err := json.Unmarshal(body, v); err != nil {
		return errReview
	}
	return checkType(typeMeta, group, kind)
}

func checkType(typeMeta *metav1.TypeMeta, group, kind string) error {
	apiGroup, version, _ := strings.Cut(typeMeta.APIVersion, "/")
	if typeMeta.Kind != kind || apiGroup != group || version != "v1" && version != "v1beta1" {
		return fmt.Errorf("%w: want %s of %s/v1 or v1beta1", errReview, kind, group)
	}
	return nil
}

// readRest reads the whole body. If ok is false, it has already sent an error response.
func readRest(w http.ResponseWriter, r *http.Request, c *requestBody) (body []byte, ok bool) {
	body, err := c.readAll(r)
	switch {
	case errors.Is(err, errTooLarge):
		tooLarge(w)
		return nil, false
	case err != nil:
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return nil, false
	}
	return body, true
}

// answerBody reads and handles one review and writes the response.
func answerBody(ctx context.Context, w http.ResponseWriter, r *http.Request, c *requestBody, handle answerer) {
	body, ok := readRest(w, r, c)
	if !ok {
		return
	}
	out, err := handle(ctx, body)
	if err != nil {
		answerError(w, err)
		return
	}
	data, err := out.encode()
	if err != nil {
		http.Error(w, "the answer could not be encoded", http.StatusInternalServerError)
		return
	}
	w.Header()["Content-Type"] = []string{"application/json"}
	_, _ = w.Write(data) // an error means that the client has disconnected
}

// answerError writes the response to a request that failed.
func answerError(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, turns.ErrBusy):
		tooManyRequests(w)
	case errors.Is(err, errTooLarge):
		tooLarge(w)
	case errors.Is(err, errStore):
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}
