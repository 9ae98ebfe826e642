package service

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/go-json-experiment/json"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errReview says that a body is none of the reviews that a path answers. What it holds stays out of
// errors: it may be a token.
var errReview = errors.New("not a review of this path")

var errTooLarge = errors.New("the body is too large")

// answerer decides about one review, given as it came, and returns what to answer with.
type answerer func(r *http.Request, body []byte) (any, error)

// readBody reads a body of at most limit bytes.
func readBody(r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, errTooLarge
	}
	if r.ContentLength >= 0 {
		body := make([]byte, r.ContentLength)
		_, err := io.ReadFull(r.Body, body)
		return body, err
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err == nil && int64(len(body)) > limit {
		err = errTooLarge
	}
	return body, err
}

// decodeReview decodes a review of a kind in group, v1 or v1beta1, of which is is the type. Names are
// case-sensitive and stand once (the rules of encoding/json/v2, of which this is the module); fields of a
// newer kube-apiserver are passed over.
func decodeReview(body []byte, v any, is *metav1.TypeMeta, group, kind string) error {
	if err := json.Unmarshal(body, v); err != nil {
		return errReview
	}
	if is.Kind != kind || is.APIVersion != group+"/v1" && is.APIVersion != group+"/v1beta1" {
		return fmt.Errorf("%w: want %s of %s/v1 or v1beta1", errReview, kind, group)
	}
	return nil
}

// review is the handler of one kind of reviews.
func review(limit int64, answer answerer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "only POST", http.StatusMethodNotAllowed)
			return
		}
		body, err := readBody(r, limit)
		switch {
		case errors.Is(err, errTooLarge):
			// What is left of the body is not read: the connection cannot be used again.
			w.Header().Set("Connection", "close")
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		case err != nil:
			http.Error(w, "the body could not be read", http.StatusBadRequest)
			return
		}
		out, err := answer(r, body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		data, err := stdjson.Marshal(out) // of Kubernetes' types, whose tags are those of encoding/json
		if err != nil {
			http.Error(w, "the answer could not be encoded", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(data) // the client is gone otherwise
	}
}
