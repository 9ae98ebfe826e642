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
	// headBytes is the size of the part of a body that is read before the request waits. This part
	// contains the user, because kube-apiserver writes it before the object.
	headBytes = 16 << 10
	// memoryFactor is the memory of a request, as a multiple of its body's size. It covers the body,
	// the decoded objects and their copies (TestWebhookMemory).
	memoryFactor = 24
)

// Limits bound the requests of one kind.
type Limits struct {
	// Concurrent limits the concurrent requests. Queued limits the requests that wait for them, in
	// turns by tenant. Further requests get 429.
	Concurrent, Queued int
	// Timeout limits the duration of a request, including its time in the queue.
	Timeout time.Duration
	// BodyBytes limits the size of a body.
	BodyBytes int64
	// Memory limits, in bytes, the memory of all requests together. Each kind has a share. A
	// request that may need more than the share runs alone in it. A request that may need more than
	// Memory is rejected.
	Memory int64
}

// tooManyRequests responds that the request did not get its turn in time.
func tooManyRequests(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, turns.ErrBusy.Error(), http.StatusTooManyRequests)
}

func onlyPost(w http.ResponseWriter) {
	w.Header().Set("Allow", http.MethodPost)
	http.Error(w, "only POST is supported", http.StatusMethodNotAllowed)
}

// admitter admits requests of one kind. Each kind has its own queue, so that requests that wait for
// a slow identity provider do not delay decisions.
type admitter struct {
	limits Limits
	queue  *turns.Queue
	// clientLimits limits the clients that are not authenticated. It is nil if all are.
	clientLimits *clientLimits
	flowOf       func(head []byte) turns.Flow
}

// limited returns a handler that answers the requests that the limits and the queue admit.
func limited(a *admitter, answer answerer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			onlyPost(w)
			return
		}
		l := &a.limits
		size := r.ContentLength
		if size < 0 {
			size = l.BodyBytes // kube-apiserver sends the length
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

// noTenant is the flow of users without a tenant. No tenant has this name.
const noTenant = "(none)"

// flowOf returns the flow of a review, from the part of its body that was read. It is the flow of
// the user's tenant. For a user of the system tenant, it is the flow of the tenant that owns the
// namespace of an AdmissionReview. A controller works for that tenant. All users without a tenant
// are one flow, because a caller that impersonates can invent any number of names. The flow only
// determines turns.
//
// Security: an exempt flow is correct only if kube-apiserver wrote the body, see [forgeableFlow].
func flowOf(body []byte, ownerOf func(namespace string) string) turns.Flow {
	u := userOf(body)
	name, system := u.tenant, tenant.System().String()
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

// isControlPlane reports whether kube-apiserver reserves a user name for the control plane. The
// name of requests that are not authenticated is reserved too, and any client can send them.
func isControlPlane(name string) bool {
	return strings.HasPrefix(name, "system:") && !tenant.IsServiceAccountName(name) && name != user.Anonymous
}

// forgeableFlow is [flowOf] for a body that any client can write. No flow is exempt.
func forgeableFlow(body []byte, ownerOf func(namespace string) string) turns.Flow {
	flow := flowOf(body, ownerOf)
	flow.Exempt = false
	return flow
}

// reviewedUser is the user of a review, and the namespace of an admission review.
type reviewedUser struct{ name, tenant, namespace string }

// userOf returns the user of an AdmissionReview or a SubjectAccessReview. The end of the body may
// be missing.
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
