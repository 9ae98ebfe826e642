// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package replay authorizes the requests in recorded audit events again with another configuration,
// to preview the effect of a change.
package replay

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"runtime"
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// maxLine is the maximum size of an event, in bytes. kube-apiserver truncates events at 10 MiB
	// by default.
	maxLine = 16 << 20
	// batch is the number of events that a worker processes at a time.
	batch = 256
	// maxChanges is the maximum number of different changes that a report lists.
	maxChanges = 10000
)

// event contains the fields of an audit event (audit.k8s.io/v1) that are read.
type event struct {
	Kind             string                     `json:"kind"`
	Stage            string                     `json:"stage"`
	AuditID          string                     `json:"auditID"`
	Timestamp        string                     `json:"requestReceivedTimestamp"`
	RequestURI       string                     `json:"requestURI"`
	Verb             string                     `json:"verb"`
	User             authenticationv1.UserInfo  `json:"user"`
	ImpersonatedUser *authenticationv1.UserInfo `json:"impersonatedUser"`
	ObjectRef        *struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
		APIVersion  string `json:"apiVersion"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
}

// Change is a decision that differs from the recorded decision.
type Change struct {
	// Time and AuditID are from the first event with this change.
	Time    string `json:"time"`
	AuditID string `json:"auditID"`
	User    string `json:"user"`
	// By is the user who impersonated User, or empty.
	By      string `json:"impersonatedBy,omitempty"`
	Tenant  string `json:"tenant,omitempty"`
	Request string `json:"request"`
	Was     string `json:"was"`
	Now     string `json:"now"`
	Reason  string `json:"reason,omitempty"`
	// Times is the number of events with this change.
	Times int `json:"times"`
}

// Report is the result of a replay.
type Report struct {
	Events int `json:"events"`
	// Decided is the number of events that were authorized again. Skipped is the number of other
	// valid events. These events have another stage than ResponseComplete, have no user or no
	// decision, or are from nodes, about which the configuration does not decide.
	Decided int `json:"decided"`
	Skipped int `json:"skipped"`
	// Unread is the number of lines that are not events.
	Unread int `json:"unread"`
	// NowDenied and NowAllowed are the numbers of events whose decision changed.
	NowDenied  int       `json:"nowDenied"`
	NowAllowed int       `json:"nowAllowed"`
	Changes    []*Change `json:"changes"`
	// More is the number of events with a change that is not listed in Changes.
	More int `json:"more,omitempty"`

	changes map[string]*Change
}

// Replayer authorizes the requests in events again.
type Replayer struct{ stack *stack.Stack }

// New returns a Replayer with a configuration and the objects of a snapshot. It runs until ctx
// ends.
func New(ctx context.Context, config *configv1alpha1.Settings, s *simulator.Snapshot) (*Replayer, error) {
	stack, err := simulator.New(ctx, config, s, nil, nil)
	return &Replayer{stack}, err
}

// outcome is the result for one event. The zero value means that the event was skipped.
type outcome struct {
	decided, unread bool
	change          *Change
}

// Play reads a log with one event on each line, and adds the results to the report. It uses all
// processors. If ctx is canceled, Play returns the cause immediately, even if it is waiting for
// more of the log.
func (p *Replayer) Play(ctx context.Context, log io.Reader, report *Report) error {
	type work struct {
		lines [][]byte
		done  chan []outcome
	}
	// The workers stop when Play returns.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	todo, inOrder := make(chan *work), make(chan *work, 4*runtime.GOMAXPROCS(0))
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for w := range todo {
				out := make([]outcome, len(w.lines))
				for i, line := range w.lines {
					out[i] = p.decide(ctx, line)
				}
				w.done <- out
			}
		})
	}
	var failed error
	go func() {
		failed = batches(log, func(lines [][]byte) error {
			w := &work{lines, make(chan []outcome, 1)}
			select {
			case inOrder <- w:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			todo <- w
			return nil
		})
		close(todo)
		close(inOrder)
	}()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case w, more := <-inOrder:
			if !more {
				workers.Wait()
				return failed
			}
			for _, o := range <-w.done {
				report.add(o)
			}
		}
	}
}

// batches passes the lines of a log to next. It truncates a line that is longer than the longest
// valid event, so that the line becomes invalid.
func batches(log io.Reader, next func([][]byte) error) error {
	lines := bufio.NewReaderSize(log, 1<<20)
	var some [][]byte
	for {
		line, err := lines.ReadSlice('\n')
		whole := bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) {
			line, err = lines.ReadSlice('\n')
			if len(whole) < maxLine {
				whole = append(whole, line...)
			}
		}
		if len(bytes.TrimSpace(whole)) > 0 {
			if some = append(some, whole); len(some) == batch {
				if err := next(some); err != nil {
					return err
				}
				some = nil
			}
		}
		if err == nil {
			continue
		}
		if len(some) > 0 {
			if err := next(some); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
}

func (r *Report) add(o outcome) {
	r.Events++
	switch {
	case o.unread:
		r.Unread++
		return
	case !o.decided:
		r.Skipped++
		return
	}
	r.Decided++
	c := o.change
	if c == nil {
		return
	}
	if c.Now == "denied" {
		r.NowDenied++
	} else {
		r.NowAllowed++
	}
	if r.changes == nil {
		r.changes = map[string]*Change{}
	}
	key := strings.Join([]string{c.User, c.By, c.Tenant, c.Request, c.Was, c.Reason}, "\x00")
	switch change := r.changes[key]; {
	case change != nil:
		change.Times++
	case len(r.Changes) == maxChanges:
		r.More++
	default:
		r.changes[key] = c
		r.Changes = append(r.Changes, c)
	}
}

var errNone = errors.New("no response")

// decide authorizes the request of one event again.
func (p *Replayer) decide(ctx context.Context, line []byte) outcome {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Kind != "Event" {
		return outcome{unread: true}
	}
	wasAllowed, ok := e.decision()
	if e.Stage != "ResponseComplete" || !ok || e.User.Username == "" {
		return outcome{}
	}
	caller := e.User
	if e.ImpersonatedUser != nil {
		caller = *e.ImpersonatedUser
	}
	for _, group := range caller.Groups {
		if group == user.NodesGroup { // only the Node authorizer can decide for a node
			return outcome{}
		}
	}
	now, reason, err := p.authorize(ctx, &e)
	if err != nil {
		now, reason = authorizer.DecisionDeny, err.Error()
	}
	if allowed := now == authorizer.DecisionAllow; allowed == wasAllowed {
		return outcome{decided: true}
	}
	c := &Change{
		Time:    e.Timestamp,
		AuditID: e.AuditID,
		User:    caller.Username,
		Request: e.request(),
		Was:     "denied",
		Now:     "allowed",
		Reason:  reason,
		Times:   1,
	}
	if wasAllowed {
		c.Was, c.Now = "allowed", "denied"
	}
	if c.Reason == "" {
		c.Reason = "no role bound to the caller allows it"
	}
	if e.ImpersonatedUser != nil {
		c.By = e.User.Username
	}
	if ids := e.User.Extra[tenant.ExtraKey]; len(ids) == 1 {
		c.Tenant = ids[0]
	}
	return outcome{decided: true, change: c}
}

// decision reports whether the request was allowed. ok is false if the event contains no decision
// about the request.
func (e *event) decision() (allowed, ok bool) {
	switch e.Annotations["authorization.k8s.io/decision"] {
	case "allow":
		return true, true
	case "forbid":
		return false, !e.wasNotImpersonated()
	}
	if e.ResponseStatus == nil || e.ResponseStatus.Code == http.StatusUnauthorized {
		return false, false
	}
	return e.ResponseStatus.Code != http.StatusForbidden, !e.wasNotImpersonated()
}

// refusedImpersonation matches the error of kube-apiserver for a denied impersonation, such as:
// users "bob" is forbidden: User "alice" cannot impersonate ... (k8s.io/apiserver
// pkg/endpoints/handlers/responsewriters, ForbiddenStatus).
var refusedImpersonation = regexp.MustCompile(`^[a-z0-9/.-]+ ("[^"]*" )?is forbidden: ` +
	`User "[^"]*" cannot impersonate(-on)?[ :]`)

// wasNotImpersonated reports whether the server denied the caller an impersonation. The event then
// does not contain the impersonated user.
func (e *event) wasNotImpersonated() bool {
	return e.ImpersonatedUser == nil && e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusForbidden &&
		refusedImpersonation.MatchString(e.ResponseStatus.Message)
}

// request returns the text of the request on one line.
func (e *event) request() string {
	if e.ObjectRef == nil {
		path, _, _ := strings.Cut(e.RequestURI, "?")
		return e.Verb + " " + path
	}
	o := e.ObjectRef
	text := e.Verb + " " + o.Resource
	if o.Subresource != "" {
		text += "/" + o.Subresource
	}
	if o.APIGroup != "" {
		text += "." + o.APIGroup
	}
	if o.Name != "" {
		text += " " + o.Name
	}
	if o.Namespace != "" {
		text += " -n " + o.Namespace
	}
	return text
}

// authorize authorizes the request of an event with the stack, as the server's filters do. It
// passes the path and query of the request. It also passes the real caller, because the real caller
// limits which users may be impersonated.
func (p *Replayer) authorize(ctx context.Context, e *event) (decision authorizer.Decision, reason string, err error) {
	uri := e.RequestURI
	if path := e.Annotations[authz.PathTenantAuditAnnotation]; path != "" {
		uri = "/tenants/" + path + uri
	}
	u, err := url.ParseRequestURI(uri)
	if err != nil {
		return authorizer.DecisionDeny, "", fmt.Errorf("parse the event's requestURI: %w", err)
	}
	decision, err = authorizer.DecisionDeny, errNone
	r := (&http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}).WithContext(ctx)
	p.stack.WithRequestState(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		a := e.attributes(r.URL)
		a.User = authz.RecordCaller(r.Context(), infoOf(&e.User))
		if e.ImpersonatedUser != nil {
			a.User = infoOf(e.ImpersonatedUser)
		}
		decision, reason, err = p.stack.Authorizer.Authorize(r.Context(), a)
	})).ServeHTTP(httptest.NewRecorder(), r)
	if errors.Is(err, errNone) {
		err = errors.New("the tenant path is malformed")
	}
	return decision, reason, err
}

func infoOf(u *authenticationv1.UserInfo) user.Info {
	extra := make(map[string][]string, len(u.Extra))
	for key, values := range u.Extra {
		extra[key] = values
	}
	return &user.DefaultInfo{
		Name:   u.Username,
		UID:    u.UID,
		Groups: u.Groups,
		Extra:  extra,
	}
}

func (e *event) attributes(u *url.URL) *authorizer.AttributesRecord {
	a := &authorizer.AttributesRecord{Verb: e.Verb, Path: u.Path}
	if o := e.ObjectRef; o != nil {
		a.ResourceRequest = true
		a.APIGroup, a.APIVersion, a.Resource, a.Subresource = o.APIGroup, o.APIVersion, o.Resource, o.Subresource
		a.Namespace, a.Name = o.Namespace, o.Name
		if selector := u.Query().Get("labelSelector"); selector != "" {
			a.LabelSelectorRequirements, a.LabelSelectorParsingErr = labels.ParseToRequirements(selector)
		}
		a.FieldSelectorRequirements, a.FieldSelectorParsingErr = simulator.Fields(u.Query().Get("fieldSelector"))
	}
	return a
}
