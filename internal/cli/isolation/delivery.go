// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
)

// forms are the media types that the run requests for lists.
var forms = []string{
	"application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor",
	"application/json;as=Table;v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
	"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
	"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
}

// tryDelivery sends lists in every media type, and watches, as each caller of a tenant. It
// searches the responses for the canaries. A response must contain the canary of the caller's
// tenant, and not the canary of the other tenant.
func (m *matrix) tryDelivery(ctx context.Context, _ []resource) error {
	for _, c := range m.fixture.callers {
		if c.own < 0 {
			continue
		}
		for _, path := range []string{"/api/v1/configmaps", "/api/v1/secrets"} {
			for _, form := range forms {
				if err := m.tryList(ctx, c, path, form); err != nil {
					return err
				}
			}
			if err := m.tryWatch(ctx, c, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// tryList requests a list as a whole and, if it is JSON, again in pages of one object.
func (m *matrix) tryList(ctx context.Context, c *caller, path, form string) error {
	for _, pages := range []bool{false, true} {
		if pages && !strings.HasPrefix(form, "application/json") {
			continue // the token of the next page is read from JSON only
		}
		description := fmt.Sprintf("GET %s as %s, pages %t", path, form, pages)
		var body []byte
		next := ""
		for {
			p := m.fixture.ownOnly(c, path)
			if pages {
				p = query(p, "limit", "1", "continue", next)
			}
			a, err := c.send(ctx, http.MethodGet, p, nil, http.Header{"Accept": {form}})
			if err != nil {
				return m.unanswered(ctx, c, targetAll, description, err)
			}
			if a.code == http.StatusNotAcceptable {
				return nil // the server does not support this encoding
			}
			if a.code != http.StatusOK || a.truncated {
				m.notDelivered(c, description, a)
				return nil
			}
			body = append(body, a.body...)
			var list struct{ Metadata metav1.ListMeta }
			if !pages || json.Unmarshal(a.body, &list) != nil || list.Metadata.Continue == "" {
				break
			}
			next = list.Metadata.Continue
		}
		m.judge(c, "list "+strings.TrimPrefix(path, "/api/v1/"), description, body, !pages)
	}
	return nil
}

// notDelivered records a response that is an error or is truncated.
func (m *matrix) notDelivered(c *caller, description string, a answer) {
	example := fmt.Sprintf("%s: %d %s", description, a.code, a.message())
	if a.deniedByAuthorization() {
		m.note(c.name, targetAll, Refused, "", "lists over all namespaces", example)
		return
	}
	reason := a.untested(c)
	if reason == "" {
		reason = untestedNoList
	}
	m.note(c.name, targetAll, Untested, reason, "", example)
}

// judge searches a response for the canaries and records the outcome. If complete is false, the
// response may lack the canary of the caller's tenant.
func (m *matrix) judge(c *caller, group, description string, body []byte, complete bool) {
	w := m.fixture
	switch {
	case bytes.Contains(body, []byte(w.canary(1))):
		m.note(c.name, targetAll, Leaked, "", group, description+": contains an object of another tenant")
	case complete && !bytes.Contains(body, []byte(w.canary(c.own))):
		m.note(c.name, targetAll, Refused, "", group, description+": does not contain the object of the caller's tenant")
	default:
		m.note(c.name, targetAll, Limited, "", "", "")
	}
}

// tryWatch starts a watch, then creates an object of each tenant. The watch must deliver only
// the object of the caller's tenant.
func (m *matrix) tryWatch(ctx context.Context, c *caller, path string) error {
	w, parent := m.fixture, ctx
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	lines, err := c.watch(ctx, query(w.ownOnly(c, path), "watch", "true", "allowWatchBookmarks", "true",
		"sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan"))
	if err != nil {
		return m.unanswered(parent, c, targetAll, "watch "+path, err)
	}
	stamp := fmt.Sprintf("-%d", time.Now().UnixNano())
	for i := 1; i >= 0; i-- { // create the caller's object last, because its arrival ends the test
		if err := w.createObject(ctx, path, w.namespace(i), w.canary(i)+stamp); err != nil {
			return err
		}
	}
	seen, _ := readUntil(ctx, lines, w.canary(0)+stamp, w.canary(1))
	if !bytes.Contains(seen, []byte(w.canary(0)+stamp)) && !bytes.Contains(seen, []byte(w.canary(1))) {
		m.note(c.name, targetAll, Untested, untestedSilent, "", "watch "+path)
		return nil
	}
	m.judge(c, "watch "+strings.TrimPrefix(path, "/api/v1/"), "watch "+path, seen, true)
	return nil
}

// createObject creates a Secret if path is the path of secrets. Otherwise, it creates a
// ConfigMap.
func (w *fixture) createObject(ctx context.Context, path, namespace, name string) error {
	meta := metav1.ObjectMeta{Name: name}
	var err error
	if path == "/api/v1/secrets" {
		_, err = w.admin.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{})
	} else {
		_, err = w.admin.CoreV1().ConfigMaps(namespace).Create(ctx,
			&corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
	}
	return err
}

// watch starts a watch. It sends each line of the response to the returned channel, and closes the
// channel if the watch ends or ctx is done.
func (c *caller) watch(ctx context.Context, path string) (<-chan []byte, error) {
	resp, err := c.do(ctx, c.stream, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("%s: watch %s: %d", c.name, path, resp.StatusCode), resp.Body.Close())
	}
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		defer func() { _ = resp.Body.Close() }()
		in := bufio.NewScanner(resp.Body)
		in.Buffer(nil, maxBody)
		for in.Scan() {
			select {
			case lines <- bytes.Clone(in.Bytes()):
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines, nil
}

// tryRecreation starts watches of a namespace and of all namespaces. Then it deletes the
// namespace and creates it again for the other tenant. The watches must not deliver objects of
// the other tenant.
func (m *matrix) tryRecreation(ctx context.Context, _ []resource) error {
	w := m.fixture
	namespace := w.recreatedNamespace()
	if err := w.makeNamespace(ctx, namespace, w.tenants[0]); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx) // ends the watches
	defer cancel()
	var watches []openWatch
	for _, c := range w.callers {
		if c.own < 0 {
			continue
		}
		for _, path := range []string{"/api/v1/namespaces/" + namespace + "/configmaps", "/api/v1/configmaps"} {
			if w.mode == installation.Webhook && strings.Contains(path, "/namespaces/") {
				continue // a webhook cannot end a watch: see docs/webhook.md
			}
			var lines <-chan []byte
			err := eventually(ctx, func(context.Context) error {
				var err error
				lines, err = c.watch(ctx, query(w.ownOnly(c, path), "watch", "true"))
				return err
			})
			if err != nil {
				return err
			}
			watches = append(watches, openWatch{c, path, lines})
		}
	}
	if err := w.deleteNamespace(ctx, namespace); err != nil {
		return err
	}
	if err := w.awaitDeleted(ctx, namespace); err != nil {
		return err
	}
	if err := w.makeNamespace(ctx, namespace, w.tenants[1]); err != nil {
		return err
	}
	if err := w.createObject(ctx, "", namespace, w.canary(1)+"-reborn"); err != nil {
		return err
	}
	if err := w.createObject(ctx, "", w.namespace(0), w.canary(0)+"-reborn"); err != nil {
		return err
	}
	m.judgeWatches(ctx, watches)
	return nil
}

// openWatch is a watch that started before the namespace was recreated for another tenant.
type openWatch struct {
	*caller
	what  string
	lines <-chan []byte
}

// judgeWatches records for each watch whether it delivered an object of the other tenant after
// the namespace was recreated.
func (m *matrix) judgeWatches(ctx context.Context, watches []openWatch) {
	w := m.fixture
	for _, o := range watches {
		seen, ended := readUntil(ctx, o.lines, w.canary(0)+"-reborn", w.canary(1))
		outcome := Limited
		reason := ""
		switch {
		case bytes.Contains(seen, []byte(w.canary(1))):
			outcome = Leaked
		case !ended && !bytes.Contains(seen, []byte(w.canary(0)+"-reborn")):
			outcome, reason = Untested, untestedSilent
		}
		m.note(o.name, targetForeign, outcome, reason,
			"watch a namespace that was recreated for another tenant", "watch "+o.what)
	}
}

// readUntil reads a watch until a line contains one of the words, the watch ends, or
// [requestTimeout] expires. ended reports whether the server ended the watch.
func readUntil(ctx context.Context, lines <-chan []byte, words ...string) (seen []byte, ended bool) {
	enough := time.After(requestTimeout)
	for {
		select {
		case line, open := <-lines:
			if !open {
				return seen, ctx.Err() == nil
			}
			seen = append(seen, line...)
			if slices.ContainsFunc(words, func(word string) bool { return bytes.Contains(line, []byte(word)) }) {
				return seen, false
			}
		case <-enough:
			return seen, false
		}
	}
}
