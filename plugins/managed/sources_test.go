// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package managed_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubetenant/kubetenant/tenant"
)

// source returns a ConfigMap with annotations.
func source(namespace, name, data string, annotations map[string]string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{Data: map[string]string{"x": data}}
	m.Namespace, m.Name, m.Annotations = namespace, name, annotations
	return m
}

// withLabel returns m with an additional label.
func withLabel(m *corev1.ConfigMap) *corev1.ConfigMap {
	m.Labels = map[string]string{"team": "x"}
	return m
}

// marks returns annotations with the hash and the tenants. An empty value means no annotation.
func marks(hash, publish string) map[string]string {
	out := map[string]string{}
	if hash != "" {
		out[tenant.PublishedAnnotation] = hash
	}
	if publish != "" {
		out[tenant.PublishAnnotation] = publish
	}
	return out
}

// TestRecordedHashes checks which writes of a published object record the hash of their content.
func TestRecordedHashes(t *testing.T) {
	const old, now = "map[x:old]", "map[x:new]"
	named := func(rights ...string) publishing {
		return publishing{rights: rights, named: []string{"configmaps platform/x"}}
	}
	replaced, unknown, away := named(configMapRights...), named("*"), named("*")
	replaced.replace, unknown.unknown, away.unavailable = true, true, true
	author, editor := named(configMapRights...), named("get configmaps platform x")
	plain := func(rights ...string) publishing { return publishing{rights: rights} }
	for name, c := range map[string]struct {
		publishing
		by             string
		sub            string
		was, is        *corev1.ConfigMap
		want           string
		hash, publish  string
		warned, silent bool
	}{
		"created by an author":       {publishing: author, is: source("platform", "x", "new", nil), hash: now},
		"created without rights":     {publishing: editor, is: source("platform", "x", "new", nil), warned: true},
		"created with a forged hash": {publishing: editor, is: source("platform", "x", "new", marks(now, "")), warned: true},
		"edited by an author": {
			publishing: author,
			was:        source("platform", "x", "old", marks(old, "")),
			is:         source("platform", "x", "new", marks(old, "")),
			hash:       now,
		},
		"edited without rights": {
			publishing: editor,
			was:        source("platform", "x", "old", marks(old, "")),
			is:         source("platform", "x", "new", marks(old, "")),
			hash:       old,
			warned:     true,
		},
		"edited with a forged hash": {
			publishing: editor,
			was:        source("platform", "x", "old", marks(old, "")),
			is:         source("platform", "x", "new", marks(now, "")),
			hash:       old,
			warned:     true,
		},
		"edited without the right to replace": {
			publishing: replaced,
			was:        source("platform", "x", "old", marks(old, "")),
			is:         source("platform", "x", "new", marks(old, "")),
			hash:       old,
			warned:     true,
		},
		"edited by the manager": {
			publishing: named("*"),
			by:         tenant.ManagerUser,
			was:        source("platform", "x", "old", marks(old, "")),
			is:         source("platform", "x", "new", marks(now, "")),
			hash:       old,
			warned:     true,
		},
		"edited while Publications are unknown": {
			publishing: unknown,
			was:        source("platform", "x", "old", marks(old, "")),
			is:         source("platform", "x", "new", marks(now, "")),
			hash:       old,
			warned:     true,
		},
		"created while Publications are unknown": {publishing: unknown, is: source("platform", "x", "new", nil)},
		"edited while the authorizer fails": {
			publishing: away,
			was:        source("platform", "x", "old", marks(old, "")),
			is:         source("platform", "x", "new", marks(now, "")),
			hash:       old,
			warned:     true,
		},
		"only labeled by an author": {
			publishing: author,
			was:        source("platform", "x", "new", marks(old, "")),
			is:         withLabel(source("platform", "x", "new", marks(old, ""))),
			hash:       old,
			silent:     true,
		},
		"unchanged with a forged hash": {
			publishing: author,
			was:        source("platform", "x", "new", marks(old, "")),
			is:         source("platform", "x", "new", marks(now, "")),
			hash:       old,
			warned:     true,
		},
		"only labeled by an author, without a hash": {
			publishing: author,
			was:        source("platform", "x", "new", nil),
			is:         withLabel(source("platform", "x", "new", nil)),
			silent:     true,
		},
		"confirmed for the first time by an author": {
			publishing: author,
			was:        source("platform", "x", "new", nil),
			is:         source("platform", "x", "new", marks("?", "")),
			hash:       now,
		},
		"confirmed for the first time without rights": {
			publishing: editor,
			was:        source("platform", "x", "new", nil),
			is:         source("platform", "x", "new", marks(now, "")),
			warned:     true,
		},
		"confirmed again by an author": {
			publishing: author,
			was:        source("platform", "x", "new", marks(old, "")),
			is:         source("platform", "x", "new", nil),
			hash:       now,
		},
		"confirmed again without rights": {
			publishing: editor,
			was:        source("platform", "x", "new", marks(old, "")),
			is:         source("platform", "x", "new", nil),
			hash:       old,
			warned:     true,
		},
		"a hash by the status": {
			publishing: author,
			sub:        "status",
			was:        source("platform", "x", "old", marks(old, "")),
			is:         source("platform", "x", "new", marks(now, "*")),
			hash:       old,
			warned:     true,
		},
		"a hash of another object": {
			publishing: plain("*"),
			is:         source("platform", "x", "new", marks(now, "")),
			warned:     true,
		},
		"a hash added to another object": {
			publishing: plain("*"),
			was:        source("platform", "x", "new", nil),
			is:         source("platform", "x", "new", marks(now, "")),
			warned:     true,
		},
		"the hash of an earlier source removed": {
			publishing: plain(),
			was:        source("platform", "x", "new", marks(now, "")),
			is:         source("platform", "x", "new", nil),
			silent:     true,
		},
		"another object": {publishing: plain(), is: source("platform", "x", "new", nil), silent: true},
		"annotated by an author": {
			publishing: plain(configMapRights...),
			was:        source("platform", "x", "new", nil),
			is:         source("platform", "x", "new", marks("", "*")),
			hash:       now,
			publish:    "*",
		},
		"annotated with tenants": {
			publishing: plain(configMapRights...),
			is:         source("platform", "x", "new", marks("", "a,b")),
			hash:       now,
			publish:    "a,b",
		},
		"annotated without rights": {
			publishing: editor,
			was:        source("platform", "x", "new", marks(now, "")),
			is:         source("platform", "x", "new", marks(now, "*")),
			want:       "metadata.annotations[kubetenant.dev/publish]: the caller may not create configmaps",
		},
		"created annotated without rights": {
			publishing: plain(),
			is:         source("platform", "x", "new", marks("", "*")),
			want:       "the caller may not get configmaps platform/x",
		},
		"annotated for more without rights": {
			publishing: editor,
			was:        source("platform", "x", "new", marks(now, "a")),
			is:         source("platform", "x", "new", marks(now, "*")),
			want:       "may not create",
		},
		"annotated by the manager": {
			publishing: plain("*"),
			by:         tenant.ManagerUser,
			is:         source("platform", "x", "new", marks("", "*")),
			want:       "only the server may set",
		},
		"annotated with an empty value": {
			publishing: plain("*"),
			is:         source("platform", "x", "new", map[string]string{tenant.PublishAnnotation: ""}),
			want:       `must be "*" or a list of tenant IDs`,
		},
		"annotated with a wildcard and more": {
			publishing: plain("*"),
			is:         source("platform", "x", "new", marks("", "a,*")),
			want:       `"*" is not the ID of a tenant`,
		},
		"annotated with the system tenant": {
			publishing: plain("*"),
			is:         source("platform", "x", "new", marks("", "system")),
			want:       "is not the ID of a tenant",
		},
		"annotated with a space": {
			publishing: plain("*"),
			is:         source("platform", "x", "new", marks("", "a, b")),
			want:       "is not the ID of a tenant",
		},
		"an excluded object annotated": {
			publishing: plain("*"),
			is:         source("platform", "kube-root-ca.crt", "new", marks("", "*")),
			want:       "metadata.annotations[kubetenant.dev/publish]: excluded",
		},
		"an annotated object edited": {
			publishing: plain(),
			was:        source("platform", "x", "old", marks(old, "*")),
			is:         source("platform", "x", "new", marks(old, "*")),
			hash:       old,
			publish:    "*",
			warned:     true,
		},
		"no longer annotated": {
			publishing: plain(),
			was:        source("platform", "x", "old", marks(old, "*")),
			is:         source("platform", "x", "old", marks(old, "")),
			hash:       old,
		},
		"annotated with a generated name": {
			publishing: plain("*"),
			is:         source("platform", "", "new", marks("", "*")),
			want:       "metadata.generateName cannot be published",
		},
		"a tenant's object annotated": {
			publishing: plain("*"),
			by:         "alice",
			is:         source("a--web", "x", "new", marks("", "*")),
			publish:    "*",
			warned:     true,
		},
		"annotated by the platform in a tenant": {
			publishing: plain("*"),
			is:         source("a--web", "x", "new", marks("", "*")),
			publish:    "*",
			warned:     true,
		},
		"a tenant's object with a hash": {
			publishing: plain("*"),
			by:         "alice",
			is:         source("a--web", "x", "new", marks(now, "")),
			warned:     true,
		},
		"a tenant's object gets a hash": {
			publishing: plain("*"),
			by:         "alice",
			was:        source("a--web", "x", "new", nil),
			is:         source("a--web", "x", "new", marks(now, "")),
			warned:     true,
		},
		"annotated after a failed owner lookup": {
			publishing: away,
			is:         source("platform", "x", "new", marks(now, "*")),
			publish:    "*",
			warned:     true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			by := user.Info(&user.DefaultInfo{Name: c.by})
			switch c.by {
			case "":
				by = &user.DefaultInfo{Name: "root"}
			case "alice":
				by = &user.DefaultInfo{Name: c.by, Groups: []string{"a"}}
			}
			operation := admission.Create
			var was runtime.Object
			if c.was != nil {
				operation, was = admission.Update, c.was
			}
			a := admission.NewAttributesRecord(c.is, was, corev1.SchemeGroupVersion.WithKind("ConfigMap"), c.is.Namespace,
				c.is.Name, corev1.SchemeGroupVersion.WithResource("configmaps"), c.sub, operation, nil, false, by)
			var told warnings
			ctx := warning.WithWarningRecorder(t.Context(), &told)
			p := c.plugin()
			err := p.Admit(ctx, a, nil)
			if err == nil {
				err = p.Validate(ctx, a, nil)
			}
			if got := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%s, want %q", got, c.want)
			}
			if err != nil {
				return
			}
			if got := c.is.Annotations[tenant.PublishedAnnotation]; got != c.hash {
				t.Errorf("the hash is %q, want %q", got, c.hash)
			}
			if got := c.is.Annotations[tenant.PublishAnnotation]; got != c.publish {
				t.Errorf("the tenants are %q, want %q", got, c.publish)
			}
			if c.warned && len(told) == 0 || c.silent && len(told) > 0 {
				t.Errorf("warnings %q", told)
			}
		})
	}
}

// TestHashOfSourceSetByOtherPlugins checks that Validate denies a hash that another admission
// plugin set, unless it is the hash of the content and the caller may publish the object.
func TestHashOfSourceSetByOtherPlugins(t *testing.T) {
	const now = "map[x:new]"
	author := publishing{rights: []string{"*"}, named: []string{"configmaps platform/x", "configmaps a--web/x"}}
	unnamed, unknown := author, author
	unnamed.named, unknown.unknown = nil, true
	for name, c := range map[string]struct {
		publishing
		by, namespace, sub string
		was                map[string]string
		is                 map[string]string
		ok                 bool
	}{
		"by an author":              {publishing: author, is: marks(now, ""), ok: true},
		"of other content":          {publishing: author, is: marks("g", "")},
		"without rights":            {publishing: publishing{named: author.named}, is: marks(now, "")},
		"that no Publication names": {publishing: unnamed, is: marks(now, "")},
		"unknown Publications":      {publishing: unknown, is: marks(now, "")},
		"by the manager":            {publishing: author, by: tenant.ManagerUser, is: marks(now, "")},
		"in a tenant's namespace":   {publishing: author, namespace: "a--web", is: marks(now, "")},
		"by a status": {
			publishing: author,
			sub:        "status",
			was:        marks("f", ""),
			is:         marks(now, ""),
		},
		"updated by an author": {
			publishing: author,
			was:        marks("f", ""),
			is:         marks(now, ""),
			ok:         true,
		},
		"updated without rights": {publishing: publishing{named: author.named}, was: marks("f", ""), is: marks(now, "")},
		"unchanged": {
			publishing: publishing{},
			was:        marks("f", ""),
			is:         marks("f", ""),
			ok:         true,
		},
		"removed": {
			publishing: publishing{},
			was:        marks("f", ""),
			is:         nil,
			ok:         true,
		},
		"with tenants":                 {publishing: unnamed, is: marks(now, "a"), ok: true},
		"with tenants, other content":  {publishing: unnamed, is: marks("g", "a")},
		"with tenants, without rights": {publishing: publishing{}, is: marks("", "a")},
	} {
		t.Run(name, func(t *testing.T) {
			by, namespace, operation := c.by, "platform", admission.Create
			if by == "" {
				by = "root"
			}
			if c.namespace != "" {
				namespace = c.namespace
			}
			var was runtime.Object
			if c.was != nil {
				operation, was = admission.Update, source(namespace, "x", "old", c.was)
			}
			a := admission.NewAttributesRecord(source(namespace, "x", "new", c.is), was,
				corev1.SchemeGroupVersion.WithKind("ConfigMap"), namespace, "x",
				corev1.SchemeGroupVersion.WithResource("configmaps"), c.sub, operation, nil, false, &user.DefaultInfo{Name: by})
			if err := c.plugin().Validate(t.Context(), a, nil); (err == nil) != c.ok {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestUnpublishableObjectsWarn checks that the caller gets one warning if it annotates an object
// that cannot be published.
func TestUnpublishableObjectsWarn(t *testing.T) {
	p := publishing{rights: []string{"*"}}
	for name, c := range map[string]struct {
		was, is map[string]string
		sub     string
		warned  bool
	}{
		"created":            {is: marks("", "*"), warned: true},
		"created without it": {is: marks("", "")},
		"added":              {was: marks("", ""), is: marks("", "*"), warned: true},
		"unchanged":          {was: marks("", "*"), is: marks("", "*")},
		"by the status":      {was: marks("", ""), is: marks("", "*"), sub: "status"},
	} {
		t.Run(name, func(t *testing.T) {
			of := func(annotations map[string]string) *corev1.Service {
				s := &corev1.Service{}
				s.Name, s.Namespace, s.Annotations = "x", "platform", annotations
				return s
			}
			w := write{
				by:       &user.DefaultInfo{Name: "root"},
				resource: corev1.SchemeGroupVersion.WithResource("services"),
				in:       "platform",
				sub:      c.sub,
				obj:      of(c.is),
			}
			if c.was != nil {
				w.old = of(c.was)
			}
			var told warnings
			ctx := warning.WithWarningRecorder(t.Context(), &told)
			if err := p.plugin().Admit(ctx, w.attributes(), nil); err != nil || (len(told) == 1) != c.warned {
				t.Errorf("%v, warnings %q", err, told)
			}
			if err := p.plugin().Validate(ctx, w.attributes(), nil); err != nil {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestContentAsServed checks that the plugin hashes an object as the server returns it. An empty
// list of a built-in kind is hashed like a missing list. The namespace comes from the request path.
func TestContentAsServed(t *testing.T) {
	rule := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}
	for name, c := range map[string]struct {
		sent runtime.Object
		want string
	}{
		"a Role": {
			&rbacv1.Role{Rules: []rbacv1.PolicyRule{rule}},
			`{"apiVersion":"v1","kind":"X","metadata":{"name":"x","namespace":"platform"},` +
				`"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`,
		},
		"a Role with an empty list": {
			&rbacv1.Role{Rules: []rbacv1.PolicyRule{}},
			`{"apiVersion":"v1","kind":"X","metadata":{"name":"x","namespace":"platform"},"rules":null}`,
		},
		"a Role without rules": {
			&rbacv1.Role{},
			`{"apiVersion":"v1","kind":"X","metadata":{"name":"x","namespace":"platform"},"rules":null}`,
		},
		"a Secret": {
			&corev1.Secret{Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"x": []byte("y")}},
			`{"apiVersion":"v1","data":{"x":"eQ=="},"kind":"X","metadata":{"name":"x","namespace":"platform"},"type":"Opaque"}`,
		},
		"a custom resource with an empty list": {
			&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"list": []any{}, "n": int64(3)}}},
			`{"apiVersion":"v1","kind":"X","metadata":{"name":"x","namespace":"platform"},"spec":{"list":[],"n":3}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			obj, err := meta.Accessor(c.sent)
			if err != nil {
				t.Fatal(err)
			}
			obj.SetName("x")
			obj.SetAnnotations(marks("", "*"))
			p := publishing{rights: []string{"*"}}
			a := admission.NewAttributesRecord(c.sent, nil, schema.GroupVersionKind{Version: "v1", Kind: "X"}, "platform", "x",
				corev1.SchemeGroupVersion.WithResource("secrets"), "", admission.Create, nil, false,
				&user.DefaultInfo{Name: "root"})
			if err := p.plugin().Admit(t.Context(), a, nil); err != nil {
				t.Fatal(err)
			}
			p.hashed.SetAnnotations(nil)
			unstructured.RemoveNestedField(p.hashed.Object, "metadata", "creationTimestamp")
			got, err := json.Marshal(p.hashed.Object)
			if err != nil || string(got) != c.want {
				t.Errorf("%s, %v; want %s", got, err, c.want)
			}
		})
	}
}
