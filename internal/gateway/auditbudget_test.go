// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
)

// TestEventsAreBounded checks that the line in the log stays short if a text of an authenticated
// caller's event is long, and that the event specifies the fields that were cut.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	const maxLine = 32 << 10
	long := strings.Repeat("&<\"x", 20_000)
	texts := map[string]func(*auditinternal.Event){
		"requestURI":               func(e *auditinternal.Event) { e.RequestURI = long },
		"verb":                     func(e *auditinternal.Event) { e.Verb = long },
		"userAgent":                func(e *auditinternal.Event) { e.UserAgent = long },
		"objectRef.resource":       func(e *auditinternal.Event) { e.ObjectRef.Resource = long },
		"objectRef.namespace":      func(e *auditinternal.Event) { e.ObjectRef.Namespace = long },
		"objectRef.name":           func(e *auditinternal.Event) { e.ObjectRef.Name = long },
		"objectRef.apiGroup":       func(e *auditinternal.Event) { e.ObjectRef.APIGroup = long },
		"objectRef.apiVersion":     func(e *auditinternal.Event) { e.ObjectRef.APIVersion = long },
		"objectRef.subresource":    func(e *auditinternal.Event) { e.ObjectRef.Subresource = long },
		"responseStatus":           func(e *auditinternal.Event) { e.ResponseStatus.Message = long },
		"annotations":              func(e *auditinternal.Event) { e.Annotations["a"] = long },
		"user.username":            func(e *auditinternal.Event) { e.User.Username = long },
		"user.groups":              func(e *auditinternal.Event) { e.User.Groups = strings.Split(long, "x") },
		"impersonatedUser":         func(e *auditinternal.Event) { e.ImpersonatedUser.Username = long },
		"impersonatedUser.uid":     func(e *auditinternal.Event) { e.ImpersonatedUser.UID = long },
		"impersonatedUser.groups":  func(e *auditinternal.Event) { e.ImpersonatedUser.Groups = []string{"dev", long} },
		"impersonatedUser.extra":   func(e *auditinternal.Event) { e.ImpersonatedUser.Extra["a"] = []string{long} },
		"impersonatedUser.extra's": func(e *auditinternal.Event) { e.ImpersonatedUser.Extra[long] = nil },
	}
	event := func() *auditinternal.Event {
		e := eventFrom("192.0.2.1", "alice")
		e.ObjectRef = &auditinternal.ObjectReference{Name: "p"}
		e.ResponseStatus = &metav1.Status{Message: "no"}
		e.Annotations = map[string]string{"b": "c"}
		e.ImpersonatedUser = &authenticationv1.UserInfo{
			Username: "bob",
			Extra:    map[string]authenticationv1.ExtraValue{},
		}
		return e
	}
	r := newRecordingSink()
	for what, fill := range texts {
		t.Run(what, func(t *testing.T) {
			full := event()
			fill(full)
			before, err := json.Marshal(full)
			if err != nil {
				t.Fatal(err)
			}
			if bytes, written := r.process(full); !written || bytes > maxLine {
				t.Errorf("a line of %d bytes", bytes)
			}
			field, _, _ := strings.Cut(what, ".")
			e := r.events(t)[0]
			if e.Annotations[cutAuditAnnotation] != field || e.Annotations["b"] != "c" || e.ObjectRef == nil {
				t.Errorf("%v, %v", e.Annotations[cutAuditAnnotation], e.ObjectRef)
			}
			if after, _ := json.Marshal(full); !slices.Equal(before, after) {
				t.Error("the event itself was changed")
			}
		})
	}
	all := event()
	for _, fill := range texts {
		fill(all)
	}
	if bytes, written := r.process(all); !written || bytes > maxLine {
		t.Errorf("all texts: a line of %d bytes", bytes)
	}
}

// TestTextsAreCutToEncodedSize checks that a text is cut only if its encoded size in the log
// exceeds the limit.
func TestTextsAreCutToEncodedSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":              "",
		"0123456789ab":  "0123456789ab",
		"&&":            "&&",
		"&&&":           "&...",
		"0123456789abc": "012345678...",
		"é":             "é",
		"éé":            "\xc3...",
	} {
		t.Run(text, func(t *testing.T) {
			if got := cutTo(text, 12); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// TestAuditBudgets checks that one tenant needs a long time to fill the retained files. With
// smaller files, the minimum budget applies.
func TestAuditBudgets(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		rotation rotation
		fills    time.Duration
	}{
		"the defaults": {rotation{megabytes: 100, backups: 10}, 20 * time.Minute},
		"small files":  {rotation{megabytes: 10, backups: 4}, 9 * time.Minute},
		"no rotation":  {rotation{}, 20 * time.Minute},
		"all kept":     {rotation{megabytes: 100}, 20 * time.Minute},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				retained := c.rotation.megabytes * (c.rotation.backups + 1) << 20
				if c.rotation.megabytes == 0 || c.rotation.backups == 0 {
					retained = auditDefaultBytes
				}
				b, began, written := auditBudgets(c.rotation), time.Now(), 0
				const line = 100 << 10
				for ; written < retained; time.Sleep(10 * time.Millisecond) {
					for b.HasBytes("acme") {
						b.Charge("acme", line)
						written += line
					}
				}
				if took := time.Since(began); took < c.fills || took > time.Hour {
					t.Errorf("filled after %v", took)
				}
			})
		})
	}
}

// TestOmissionsAreWritten checks that the count of a tenant's omitted events is retained until an
// event with this count was written.
func TestOmissionsAreWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o omissions
		var mu sync.Mutex // guards full and stated
		full := true
		stated := map[string][]string{}
		write := func(e *auditinternal.Event) bool {
			mu.Lock()
			defer mu.Unlock()
			if full {
				return false
			}
			tenant := e.Annotations[omittedTenantAuditAnnotation]
			stated[tenant] = append(stated[tenant], e.Annotations[omittedAuditAnnotation])
			return true
		}
		setFull := func(isFull bool) {
			mu.Lock()
			defer mu.Unlock()
			full = isFull
		}
		written := func(tenant string) []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(stated[tenant])
		}
		for range 3 {
			o.record("", "192.0.2.1", write)
			o.record("acme", "192.0.2.2", write)
			time.Sleep(omittedInterval + time.Second)
		}
		o.record("globex", "192.0.2.2", write)
		for _, tenant := range []string{"", "acme", "globex"} {
			if got := written(tenant); len(got) != 0 {
				t.Fatalf("%q: %v, but no event can be written", tenant, got)
			}
		}
		setFull(false)
		time.Sleep(2 * omittedInterval)
		synctest.Wait()
		for tenant, want := range map[string]string{"": "3", "acme": "3", "globex": "1"} {
			if got := written(tenant); !slices.Equal(got, []string{want}) {
				t.Errorf("%q: %v, want %s", tenant, got, want)
			}
		}
		o.record("acme", "192.0.2.2", write)
		setFull(true)
		o.flush()
		setFull(false)
		o.flush()
		time.Sleep(2 * omittedInterval)
		synctest.Wait()
		if got := written("acme"); !slices.Equal(got, []string{"3", "1"}) || len(o.byTenant) != 0 {
			t.Errorf("at the end: %v, %v", got, o.byTenant)
		}
	})
}
