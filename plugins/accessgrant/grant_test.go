// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessgrant_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/accessgrant"
	"github.com/kubetenant/kubetenant/tenant"
)

var errUnavailable = errors.New("away")

// subject returns the first group of a caller as its tenant. It fails for one user name.
func subject(_ context.Context, u user.Info) (tenant.ID, error) {
	if u.GetName() == "nobody" {
		return tenant.System(), errUnavailable
	}
	return tenant.Parse(u.GetGroups()[0])
}

func owner(_ context.Context, namespace string) (tenant.ID, error) {
	switch namespace {
	case "away":
		return tenant.System(), errUnavailable
	case "bad":
		return tenant.ID{}, nil
	}
	return tenant.Parse(namespace)
}

// read returns a request with one action from the tenant in spec.from.
func read(obj runtime.Object) (*accessgrant.Request, error) {
	u := obj.(*unstructured.Unstructured)
	from, _, _ := unstructured.NestedString(u.Object, "spec", "from")
	id, err := tenant.Parse(from)
	return &accessgrant.Request{
		From: id,
		Actions: []authorizer.AttributesRecord{{
			Verb:            "get",
			Resource:        "pods",
			Namespace:       u.GetNamespace(),
			ResourceRequest: true,
		}},
	}, err
}

func object(namespace, from string, grantor map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"from": from}}}
	u.SetNamespace(namespace)
	if grantor != nil {
		u.Object["spec"].(map[string]any)["grantor"] = grantor
	}
	return u
}

func attributes(newObj, oldObj *unstructured.Unstructured, sub string, u user.Info) admission.Attributes {
	op, namespace := admission.Create, newObj.GetNamespace()
	var old runtime.Object
	if oldObj != nil {
		op, old = admission.Update, oldObj
	}
	return admission.NewAttributesRecord(newObj, old,
		schema.GroupVersionKind{Group: tenant.Domain, Version: "v1alpha1", Kind: "AccessGrant"}, namespace, "g",
		schema.GroupVersionResource{Group: tenant.Domain, Version: "v1alpha1", Resource: "accessgrants"}, sub, op, nil,
		false, u)
}

// plugin returns the plugin. Its authorizer allows the callers in allowed, and fails for the user
// "away".
func plugin(allowed ...string) plugins.Interface {
	return accessgrant.New(accessgrant.Options{
		Subject: subject,
		Owner:   owner,
		Read:    read,
		Authorizer: authorizer.AuthorizerFunc(func(
			_ context.Context, a authorizer.Attributes,
		) (authorizer.Decision, string, error) {
			for _, name := range allowed {
				if a.GetUser().GetName() == name {
					return authorizer.DecisionAllow, "", nil
				}
			}
			if a.GetUser().GetName() == "away" {
				return authorizer.DecisionAllow, "", errUnavailable
			}
			return authorizer.DecisionNoOpinion, "", nil
		}),
	})
}

func caller(name, id string) user.Info { return &user.DefaultInfo{Name: name, Groups: []string{id}} }

// TestGrantorMustHaveTheRights checks that the grantor must be allowed to perform the actions, and
// must belong to the owner of the namespace or to the system tenant. Otherwise, a grantee could use
// its grant to create further grants.
func TestGrantorMustHaveTheRights(t *testing.T) {
	for name, c := range map[string]struct {
		user            user.Info
		namespace, from string
		want            bool
	}{
		"caller with the permissions":    {caller("admin", "b"), "b", "a", true},
		"the system tenant":              {caller("admin", "system"), "b", "a", true},
		"caller without the permissions": {caller("bob", "b"), "b", "a", false},
		"grantee with the permissions":   {caller("admin", "a"), "b", "a", false},
		"grantee for a third tenant":     {caller("admin", "a"), "b", "c", false},
		"grant to the owner":             {caller("admin", "b"), "b", "b", false},
		"caller of an unknown tenant": {
			&user.DefaultInfo{Name: "nobody", Groups: []string{"b"}}, "b", "a", false,
		},
		"failed lookup of the owner": {caller("admin", "system"), "away", "a", false},
		"unowned namespace":          {caller("admin", "system"), "bad", "a", false},
		"authorizer with an error":   {caller("away", "b"), "b", "a", false},
		"grant to no tenant":         {caller("admin", "b"), "b", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			a := attributes(object(c.namespace, c.from, nil), nil, "", c.user)
			p := plugin("admin")
			err := p.Admit(t.Context(), a, nil)
			if err == nil {
				err = p.Validate(t.Context(), a, nil)
			}
			if (err == nil) != c.want {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestOnlyTheServerRecordsTheGrantor checks that an update without a change of the spec retains the
// grantor, and that a forged grantor is denied.
func TestOnlyTheServerRecordsTheGrantor(t *testing.T) {
	p := plugin("admin")
	was := object("b", "a", map[string]any{"owner": "b", "tenant": "b", "user": "somebody"})
	same := object("b", "a", map[string]any{"owner": "b", "tenant": "system", "user": "root"})
	if err := p.Admit(t.Context(), attributes(same, was, "", caller("bob", "b")), nil); err != nil {
		t.Fatal(err)
	}
	if got, _, _ := unstructured.NestedString(same.Object, "spec", "grantor", "user"); got != "somebody" {
		t.Errorf("an update that does not change the spec records the grantor %q", got)
	}
	// A caller that may not grant may still change the metadata.
	if err := p.Validate(t.Context(), attributes(same, was, "", caller("bob", "b")), nil); err != nil {
		t.Errorf("an update that does not change the spec: %v", err)
	}
	forged := object("b", "a", map[string]any{"owner": "b", "tenant": "system", "user": "root"})
	if err := p.Validate(t.Context(), attributes(forged, was, "", caller("admin", "b")), nil); err == nil {
		t.Error("a grantor that a later webhook forged was admitted")
	}
	if err := p.Validate(t.Context(), attributes(forged, nil, "", caller("admin", "b")), nil); err == nil {
		t.Error("a grantor that a later webhook forged was admitted on create")
	}
	// A grant without a grantor gets none until its spec changes.
	bare, none := object("b", "a", nil), object("b", "a", map[string]any{"owner": "b", "tenant": "system", "user": "root"})
	if err := p.Admit(t.Context(), attributes(none, bare, "", caller("admin", "b")), nil); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := unstructured.NestedMap(none.Object, "spec", "grantor"); ok {
		t.Error("a grantor was recorded for an unchanged spec")
	}
}

// TestOnlyTheServerRecordsTheGrantee checks that only the server records the Tenant that gets
// access.
func TestOnlyTheServerRecordsTheGrantee(t *testing.T) {
	uid := "u1"
	fromA := func(runtime.Object) (*accessgrant.Request, error) {
		id, err := tenant.Parse("a")
		return &accessgrant.Request{From: id}, err
	}
	p := accessgrant.New(accessgrant.Options{
		Subject: subject,
		Owner:   owner,
		Read:    fromA,
		Lineage: func(tenant.ID) tenant.Lineage { return tenant.Lineage{UID: uid} },
		Authorizer: authorizer.AuthorizerFunc(func(
			context.Context, authorizer.Attributes,
		) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		}),
	})
	made := func(grantee any) *unstructured.Unstructured {
		u := object("b", "a", map[string]any{
			"owner":   "b",
			"tenant":  "b",
			"user":    "admin",
			"groups":  []any{"b"},
			"grantee": grantee,
		})
		u.Object["spec"].(map[string]any)["from"] = map[string]any{"tenant": "a"}
		return u
	}
	admin := caller("admin", "b")
	written := made(tenant.Seal("u2"))
	if err := p.Admit(t.Context(), attributes(written, nil, "", admin), nil); err != nil {
		t.Fatal(err)
	}
	seal, _, _ := unstructured.NestedString(written.Object, "spec", "grantor", "grantee")
	if !tenant.IsSealOf(seal, "u1") {
		t.Errorf("the grantee that the client sent was not replaced: %s", seal)
	}
	for name, c := range map[string]struct {
		grantee any
		uid     string
		want    bool
	}{
		"seal of the Tenant":     {tenant.Seal("u1"), "u1", true},
		"seal of another Tenant": {tenant.Seal("u2"), "u1", false},
		"no seal":                {"", "u1", false},
		"UID instead of a seal":  {"u1", "u1", false},
		"no Tenant":              {tenant.Seal(""), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			uid = c.uid
			if err := p.Validate(t.Context(), attributes(made(c.grantee), nil, "", admin), nil); (err == nil) != c.want {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestOnlyTheSystemTenantWritesTheStatus(t *testing.T) {
	p := plugin("admin")
	o := object("b", "a", nil)
	for who, want := range map[string]bool{"b": false, "a": false, "system": true} {
		t.Run(who, func(t *testing.T) {
			for _, sub := range []string{"status", "scale"} {
				if err := p.Validate(t.Context(), attributes(o, o, sub, caller("admin", who)), nil); (err == nil) != want {
					t.Errorf("%s of tenant %s: %v", sub, who, err)
				}
			}
		})
	}
}

// TestExpiredGrantsWarn checks that the author of an expired grant gets a warning.
func TestExpiredGrantsWarn(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		expires time.Time
		warned  bool
	}{
		"past":   {now.Add(-time.Second), true},
		"now":    {now, true},
		"future": {now.Add(time.Second), false},
		"never":  {time.Time{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := accessgrant.New(accessgrant.Options{
				Subject: subject,
				Owner:   owner,
				Now:     func() time.Time { return now },
				Read: func(obj runtime.Object) (*accessgrant.Request, error) {
					r, err := read(obj)
					r.Expires = c.expires
					return r, err
				},
				Authorizer: authorizer.AuthorizerFunc(func(
					context.Context, authorizer.Attributes,
				) (authorizer.Decision, string, error) {
					return authorizer.DecisionAllow, "", nil
				}),
			})
			said := &warnings{}
			ctx := warning.WithWarningRecorder(t.Context(), said)
			a := attributes(object("acme", "globex", nil), nil, "", &user.DefaultInfo{Name: "alice", Groups: []string{"acme"}})
			if err := errors.Join(p.Admit(ctx, a, nil), p.Validate(ctx, a, nil)); err != nil {
				t.Errorf("%v", err)
			}
			if warned := len(*said) > 0; warned != c.warned {
				t.Errorf("warnings %v", *said)
			}
		})
	}
}

// warnings records the warnings of a request.
type warnings []string

func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

// TestForgedGrantorWarns checks that a new grant that names another grantor gets the caller as its
// grantor, with a warning.
func TestForgedGrantorWarns(t *testing.T) {
	alice := &user.DefaultInfo{Name: "alice", Groups: []string{"acme"}}
	for name, c := range map[string]struct {
		grantor map[string]any
		warned  bool
	}{
		"none":    {nil, false},
		"another": {map[string]any{"user": "root", "tenant": "system"}, true},
		"empty":   {map[string]any{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			said := &warnings{}
			obj := object("acme", "globex", c.grantor)
			err := plugin().Admit(warning.WithWarningRecorder(t.Context(), said), attributes(obj, nil, "", alice), nil)
			got, _, _ := unstructured.NestedString(obj.Object, "spec", "grantor", "user")
			if err != nil || got != "alice" || (len(*said) > 0) != c.warned {
				t.Errorf("%q, %v, warnings %q", got, err, *said)
			}
		})
	}
}
