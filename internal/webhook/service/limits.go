// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

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
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/internal/turns"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// headBytes is the number of bytes of a body that are read before the request is queued. They
	// contain the user, because kube-apiserver writes the user before the object.
	headBytes = 16 << 10
	// memoryFactor is the memory that a request uses, as a multiple of the size of its body. It
	// includes the body, the decoded objects and their copies (TestWebhookMemory).
	memoryFactor = 24
)

// Limits contains the limits of the requests of a service. Each path has its own queue.
type Limits struct {
	// Concurrent is the maximum number of concurrent requests of a path. Queued is the maximum
	// number of waiting requests. The tenants of waiting requests take turns. All further requests
	// get 429.
	Concurrent, Queued int
	// Timeout is the maximum duration of a request, including its time in the queue.
	Timeout time.Duration
	// BodyBytes is the maximum size of a body, except for batches of audit events.
	BodyBytes int64
	// Memory is the memory for all requests together, in bytes. Each path has a share. A request
	// that may need more than the share of its path runs alone on this path. A request that may
	// need more than Memory is rejected.
	Memory int64
}

// tooManyRequests responds with 429 to a request that did not get its turn in time.
func tooManyRequests(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, turns.ErrBusy.Error(), http.StatusTooManyRequests)
}

func onlyPost(w http.ResponseWriter) {
	w.Header().Set("Allow", http.MethodPost)
	http.Error(w, "only POST is supported", http.StatusMethodNotAllowed)
}

// admitter admits the requests of one path. Each path has its own queue, so that requests that wait
// for a slow identity provider do not delay requests of other paths.
type admitter struct {
	limits Limits
	queue  *turns.Queue
	// clientLimits limits the clients that are not authenticated. It is nil if all clients are
	// authenticated.
	clientLimits *clientLimits
	flowOf       func(head []byte) turns.Flow
}

// limited returns a handler that handles the requests that the limits and the queue admit.
func limited(a *admitter, answer answerer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			onlyPost(w)
			return
		}
		l := &a.limits
		size := r.ContentLength
		if size < 0 {
			size = l.BodyBytes // kube-apiserver always sends the length
		}
		if size > l.BodyBytes || r.ContentLength*memoryFactor > l.Memory {
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
		flow := func() turns.Flow { return a.flowOf(head) }
		body := &requestBody{head, size, l.BodyBytes}
		if a.clientLimits != nil {
			leave, ok := a.clientLimits.admit(ctx, w, r, body, flow)
			if !ok {
				return
			}
			defer leave()
			flow = func() turns.Flow { return turns.Flow{Name: addressOf(r).String()} }
		}
		leave, err := a.queue.Enter(ctx, size*memoryFactor, flow)
		if err != nil {
			tooManyRequests(w)
			return
		}
		defer leave()
		answerBody(ctx, w, r, body, answer)
	})
}

// noTenant is the name of the [turns.Flow] of all users without a tenant. A tenant ID cannot
// contain parentheses.
const noTenant = "(none)"

// flowOf returns the [turns.Flow] of a review from the head of its body. It is the flow of the
// user's tenant. If a user of the system tenant writes to a tenant's namespace, it is the flow of
// that tenant, because a controller may work for the tenant. All users without a tenant are one
// flow, because a caller that impersonates can invent any number of user names. The flow only
// determines the order of requests.
//
// Security: the field Exempt is correct only if kube-apiserver wrote the body. See [forgeableFlow].
func flowOf(body []byte, ownerOf func(namespace string) string) turns.Flow {
	u := userOf(body)
	name := u.tenant
	system := tenant.System().String()
	if name == "" {
		if namespace, ok := tenant.ServiceAccountNamespace(u.name); ok {
			name = ownerOf(namespace)
		} else if isControlPlane(u.name) {
			name = system
		}
	}
	if name == system && u.namespace != "" {
		if owner := ownerOf(u.namespace); owner != "" {
			name = owner
		}
	}
	switch name {
	case "":
		return turns.Flow{Name: noTenant}
	case system:
		return turns.FlowOf(tenant.System(), "user "+u.name)
	}
	return turns.Flow{Name: name}
}

// isControlPlane reports whether kube-apiserver reserves a user name for the control plane. It
// returns false for system:anonymous, because any client can send an unauthenticated request.
func isControlPlane(name string) bool {
	return strings.HasPrefix(name, "system:") && !tenant.IsServiceAccountName(name) && name != user.Anonymous
}

// forgeableFlow is like [flowOf], for a body that any client can forge. No flow is exempt from the
// turns.
func forgeableFlow(body []byte, ownerOf func(namespace string) string) turns.Flow {
	flow := flowOf(body, ownerOf)
	flow.Exempt = false
	return flow
}

// reviewedUser contains the name and the tenant of the user of a review, and the namespace of an
// AdmissionReview.
type reviewedUser struct{ name, tenant, namespace string }

// userOf reads the user and the namespace of an AdmissionReview, or the user of a
// SubjectAccessReview. body may be only the head of a body.
func userOf(body []byte) (u reviewedUser) {
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
		if kind, length := d.StackIndex(d.StackDepth()); kind == '{' && length%2 == 1 { // the name of a member
			if d.StackPointer() == "/request/object" {
				return u
			}
			continue
		}
		switch path := string(d.StackPointer()); {
		case path == "/request/namespace":
			u.namespace = token.String()
		case path == "/request/userInfo/username", path == "/spec/user":
			u.name = token.String()
		case path == "/request/userInfo"+extra, path == "/spec"+extra:
			u.tenant = token.String()
		case u.tenant == "" &&
			slices.Contains([]string{"/request/userInfo/groups", "/spec/groups"},
				path[:max(0, strings.LastIndexByte(path, '/'))]):
			if id, ok := strings.CutPrefix(token.String(), tenant.GroupPrefix); ok {
				u.tenant = id
			}
		}
	}
}
