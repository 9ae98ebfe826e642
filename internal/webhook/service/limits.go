package service

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// headBytes of a body are read before the request waits: they tell whose it is. kube-apiserver
	// writes the user before the object.
	headBytes = 16 << 10
	// expansion is how many times its body's size a request takes of memory: the body, its objects in
	// Go's form and their copies (TestWebhookMemory).
	expansion = 24
)

// Limits bound the requests of one kind.
type Limits struct {
	// Concurrent requests, and Queued ones that wait for them, by turns of their
	// tenants. More are answered 429.
	Concurrent, Queued int
	// Timeout of a request, its time in the queue included.
	Timeout time.Duration
	// BodyBytes bounds a body.
	BodyBytes int64
	// Memory bounds, in bytes, what all requests may take together. Each kind has a share;
	// a request that may take more than that has the share alone, and one that may take
	// more than all is refused.
	Memory int64
}

// busy says that there was no room in time.
func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, errBusy.Error(), http.StatusTooManyRequests)
}

// limited lets through what the limits and a queue allow. Each kind of requests has its own queue,
// so that those that wait for a slow identity provider take no room from decisions. Where bodies
// are bounded until they are let in, nil for not, they are read before.
func limited(
	l Limits, queue *queue, bodies *arrivals, ownerOf func(namespace string) string, answer answerer,
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "only POST is supported", http.StatusMethodNotAllowed)
			return
		}
		size := r.ContentLength
		if size < 0 {
			size = l.BodyBytes // kube-apiserver says how long it is
		}
		if size > l.BodyBytes || r.ContentLength*expansion > l.Memory {
			tooLarge(w)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), l.Timeout)
		defer cancel()
		head := make([]byte, min(size, headBytes))
		n, err := io.ReadFull(r.Body, head)
		head = head[:n]
		if err != nil && (r.ContentLength >= 0 || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)) {
			http.Error(w, "the body could not be read", http.StatusBadRequest)
			return
		}
		whose := func() string { return flowOf(head, ownerOf) }
		body := &content{head, size, l.BodyBytes}
		if bodies != nil && size > int64(len(head)) {
			leave, ok := bodies.read(ctx, w, r, body, whose)
			if !ok {
				return
			}
			defer leave()
		}
		leave, err := queue.enter(ctx, size*expansion, whose)
		if err != nil {
			busy(w)
			return
		}
		defer leave()
		answerBody(ctx, w, r, body, answer)
	})
}

// flowOf names whose request a body is, by what is there of it: of the tenant that the user names
// or that owns its service account's namespace, or of the user. It decides about nothing but turns.
func flowOf(body []byte, ownerOf func(namespace string) string) string {
	user := userOf(body)
	if user.tenant != "" {
		return user.tenant
	}
	if namespace, _, err := serviceaccount.SplitUsername(user.name); err == nil {
		return ownerOf(namespace)
	}
	return "user " + user.name
}

// reviewed is the user of a review.
type reviewed struct{ name, tenant string }

// userOf returns the user of an AdmissionReview or a SubjectAccessReview, of
// which the end may be missing.
func userOf(body []byte) (u reviewed) {
	extra := "/extra/" + strings.ReplaceAll(tenant.ExtraKey, "/", "~1") + "/0"
	d := jsontext.NewDecoder(bytes.NewReader(body))
	for {
		token, err := d.ReadToken()
		if err != nil {
			return u
		}
		if token.Kind() != '"' {
			continue
		}
		if kind, length := d.StackIndex(d.StackDepth()); kind == '{' && length%2 == 1 { // a name
			if d.StackPointer() == "/request/object" {
				return u
			}
			continue
		}
		switch at := string(d.StackPointer()); {
		case at == "/request/userInfo/username", at == "/spec/user":
			u.name = token.String()
		case at == "/request/userInfo"+extra, at == "/spec"+extra:
			u.tenant = token.String()
		case u.tenant == "" &&
			slices.Contains([]string{"/request/userInfo/groups", "/spec/groups"}, at[:max(0, strings.LastIndexByte(at, '/'))]):
			if id, names := strings.CutPrefix(token.String(), tenant.GroupPrefix); names {
				u.tenant = id
			}
		}
	}
}
