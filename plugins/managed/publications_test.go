// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package managed_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestPublications checks which callers may write a Publication, and which hash is recorded
// afterwards.
func TestPublications(t *testing.T) {
	const from = "ConfigMap platform/x"
	sources := map[string]*managed.Content{"platform/x": {Hash: "h"}}
	with := func(rights ...string) publishing { return publishing{rights: rights, sources: sources} }
	without := func(right string) publishing {
		return with(slices.DeleteFunc(slices.Clone(configMapRights), func(r string) bool { return r == right })...)
	}
	author := with(configMapRights...)
	for name, c := range map[string]publicationCase{
		"by an author":       {publishing: author, obj: published(from, "", nil), hash: "h"},
		"with a forged hash": {publishing: author, obj: published(from, "", hash("g")), hash: "h"},
		"of a source that does not exist": {
			publishing: publishing{rights: configMapRights},
			obj:        published(from, "", hash("h")),
		},
		"by an author who cannot get it": {
			publishing: without(configMapRights[0]),
			obj:        published(from, "", nil),
			want:       "spec.from: the caller may not get configmaps platform/x",
		},
		"by an author who cannot create it": {
			publishing: without(configMapRights[1]),
			obj:        published(from, "", nil),
			want:       "spec.from: the caller may not create configmaps in all namespaces",
		},
		"by an author who cannot update it": {
			publishing: without(configMapRights[2]),
			obj:        published(from, "", nil),
			want:       "spec.from: the caller may not update configmaps in all namespaces",
		},
		"by an author who cannot replace": {
			publishing: author,
			obj:        published(from, "Replace", nil),
			want:       "spec.from: the caller may not delete configmaps in all namespaces",
		},
		"by an author who can replace": {
			publishing: with(append(slices.Clone(configMapRights), "delete configmaps")...),
			obj:        published(from, "Replace", nil),
			hash:       "h",
		},
		"that is invalid": {
			publishing: with("*"),
			obj:        published(from, "bad", nil),
			want:       "spec.onConflict: must be Report or Replace",
		},
		"of an unknown kind": {
			publishing: with("*"),
			obj:        published("Pod platform/x", "", nil),
			want:       "spec.from: objects of the kind",
		},
		"of a tenant's object": {
			publishing: with("*"),
			obj:        published("ConfigMap a--web/x", "", nil),
			want:       "spec.from.namespace: must be a namespace of the system tenant",
		},
		"of an object in no namespace": {
			publishing: with("*"),
			obj:        published("ConfigMap missing/x", "", nil),
			want:       "spec.from.namespace: must be a namespace",
		},
		"while the authorizer fails": {
			publishing: publishing{rights: []string{"*"}, unavailable: true},
			obj:        published(from, "", nil),
			want:       "cannot check now",
		},
		"by a tenant's caller without rights": {
			publishing: publishing{},
			by:         "alice",
			obj:        published(from, "", nil),
			want:       "the caller may not get",
		},
		"by the manager":             {publishing: with("*"), by: tenant.ManagerUser, obj: published(from, "", nil)},
		"by the manager with a hash": {publishing: with("*"), by: tenant.ManagerUser, obj: published(from, "", hash("h"))},
		"by the manager of an unknown kind": {
			publishing: with("*"),
			by:         tenant.ManagerUser,
			obj:        published("Pod platform/x", "", nil),
			want:       "spec.from: objects of the kind",
		},
		"changed by an author": {
			publishing: with("*"),
			old:        published(from, "", hash("g")),
			obj:        published(from, "Replace", hash("g")),
			hash:       "g", // the author may not have read the content
		},
		"changed to another object by an author": {
			publishing: with("*"),
			old:        published("ConfigMap platform/other", "", hash("g")),
			obj:        published(from, "", hash("g")),
			hash:       "h",
		},
		"changed without the rights": {
			publishing: author,
			old:        published(from, "", hash("g")),
			obj:        published(from, "Replace", hash("g")),
			want:       "may not delete",
		},
		"unchanged without rights": {
			publishing: publishing{},
			old:        published(from, "", hash("g")),
			obj:        published(from, "", hash("g")),
			hash:       "g",
		},
		"unchanged by an author": {
			publishing: author,
			old:        published(from, "", hash("g")),
			obj:        published(from, "", hash("g")),
			hash:       "g",
		},
		"labeled by an author, without a hash": {
			publishing: author,
			old:        published(from, "", nil),
			obj:        published(from, "", nil),
		},
		"confirmed for the first time by an author": {
			publishing: author,
			old:        published(from, "", nil),
			obj:        published(from, "", hash("?")),
			hash:       "h",
		},
		"confirmed again by an author": {
			publishing: author,
			old:        published(from, "", hash("g")),
			obj:        published(from, "", nil),
			hash:       "h",
		},
		"confirmed again without rights": {
			publishing: publishing{sources: sources},
			old:        published(from, "", hash("g")),
			obj:        published(from, "", nil),
			hash:       "g",
		},
		"forged in an update without rights": {
			publishing: publishing{sources: sources},
			old:        published(from, "", hash("g")),
			obj:        published(from, "", hash("h")),
			hash:       "g",
		},
		"forged in an update by an author": {
			publishing: author,
			old:        published(from, "", hash("g")),
			obj:        published(from, "", hash("f")),
			hash:       "g",
		},
		"added in an update without rights": {
			publishing: publishing{sources: sources},
			old:        published(from, "", nil),
			obj:        published(from, "", hash("h")),
		},
		"changed by the manager": {
			publishing: with("*"),
			by:         tenant.ManagerUser,
			old:        published(from, "", hash("g")),
			obj:        published(from, "", hash("h")),
			hash:       "g",
		},
		"a forged hash by the status": {
			publishing: author,
			sub:        "status",
			old:        published(from, "", hash("g")),
			obj:        published(from, "", hash("h")),
			hash:       "g",
		},
		"the status by a tenant's caller": {
			publishing: author,
			by:         "alice",
			sub:        "status",
			old:        published(from, "", nil),
			obj:        published(from, "", nil),
			want:       "only the server may write the status",
		},
		"the status by the manager": {
			publishing: author,
			by:         tenant.ManagerUser,
			sub:        "status",
			old:        published(from, "", hash("g")),
			obj:        published(from, "", hash("g")),
			hash:       "g",
		},
		"of a deleted source, changed": {
			publishing: publishing{rights: []string{"*"}},
			old:        published(from, "", hash("g")),
			obj:        published(from, "Replace", hash("g")),
			hash:       "g",
		},
		"an excluded object": {
			publishing: publishing{rights: []string{"*"}, sources: map[string]*managed.Content{"platform/kube-root-ca.crt": {}}},
			obj:        published("ConfigMap platform/kube-root-ca.crt", "", nil),
			want:       "spec.from.name: excluded",
		},
		"changed while the authorizer fails": {
			publishing: publishing{rights: []string{"*"}, unavailable: true},
			old:        published(from, "", hash("g")),
			obj:        published(from, "Replace", hash("g")),
			want:       "cannot check now",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.run(t, name)
		})
	}
	w := write{by: &user.DefaultInfo{Name: "root"}, resource: publicationsResource, obj: published(from, "", nil)}
	if err := newPlugin().Validate(t.Context(), w.attributes(), nil); err == nil {
		t.Error("a server that cannot check Publications admits one")
	}
	w.obj, w.old = nil, published(from, "", nil)
	if err := author.plugin().Validate(t.Context(), w.attributes(), nil); err != nil {
		t.Errorf("deleted: %v", err)
	}
}

// TestHashSetByOtherPluginsIsDenied checks that Validate denies a hash that another admission
// plugin set, unless it is the hash that the caller may publish.
func TestHashSetByOtherPluginsIsDenied(t *testing.T) {
	const from = "ConfigMap platform/x"
	c := publishing{rights: []string{"*"}, sources: map[string]*managed.Content{"platform/x": {Hash: "h"}}}
	for name, w := range map[string]struct {
		by      string
		was, is *unstructured.Unstructured
		ok      bool
	}{
		"created":                {by: "root", is: published(from, "", hash("g"))},
		"created, checked":       {by: "root", is: published(from, "", hash("h")), ok: true},
		"created, none":          {by: "root", is: published(from, "", nil), ok: true},
		"created by the manager": {by: tenant.ManagerUser, is: published(from, "", hash("h"))},
		"updated":                {by: "root", was: published(from, "", hash("f")), is: published(from, "", hash("g"))},
		"updated, checked": {
			by:  "root",
			was: published(from, "", hash("f")),
			is:  published(from, "", hash("h")),
			ok:  true,
		},
		"updated by the manager": {
			by:  tenant.ManagerUser,
			was: published(from, "", hash("f")),
			is:  published(from, "", hash("h")),
		},
		"removed by the manager": {by: tenant.ManagerUser, was: published(from, "", hash("f")), is: published(from, "", nil)},
		"updated, unchanged": {
			by:  "root",
			was: published(from, "", hash("f")),
			is:  published(from, "", hash("f")),
			ok:  true,
		},
		"updated, changed spec and hash": {
			by:  "root",
			was: published(from, "", hash("f")),
			is:  published(from, "Replace", hash("g")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			of := write{by: &user.DefaultInfo{Name: w.by}, resource: publicationsResource, obj: w.is}
			if w.was != nil {
				of.old = w.was
			}
			if err := c.plugin().Validate(t.Context(), of.attributes(), nil); (err == nil) != w.ok {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestPublicationFinalizer checks that only [tenant.ManagerUser] removes the server's finalizer.
func TestPublicationFinalizer(t *testing.T) {
	const from, ours = "ConfigMap platform/x", tenant.PublicationFinalizer
	of := func(finalizers ...string) *unstructured.Unstructured {
		u := published(from, "", nil)
		u.SetFinalizers(finalizers)
		return u
	}
	for name, c := range map[string]struct {
		by      string
		was, is *unstructured.Unstructured
		after   []string
		refused bool // without Admit
	}{
		"omitted":  {"root", of(ours), of(), []string{ours}, true},
		"replaced": {"root", of(ours), of("x/y"), []string{"x/y", ours}, true},
		"unchanged": {
			"root",
			of(ours),
			of(ours),
			[]string{ours},
			false,
		},
		"another finalizer":            {"root", of("x/y"), of(), nil, false},
		"removed by the manager":       {tenant.ManagerUser, of(ours), of(), nil, false},
		"omitted by a tenant's caller": {"alice", of(ours), of(), []string{ours}, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, sub := range []string{"", "status"} {
				is := c.is.DeepCopy()
				w := write{
					by:       &user.DefaultInfo{Name: c.by},
					resource: publicationsResource,
					sub:      sub,
					old:      c.was,
					obj:      is,
				}
				p := (&publishing{}).plugin()
				if err := p.Validate(t.Context(), w.attributes(), nil); (err != nil) != c.refused {
					t.Errorf("%s, %q: %v", name, sub, err)
				}
				if sub != "" {
					continue // the server drops the metadata of a status update
				}
				if err := p.Admit(t.Context(), w.attributes(), nil); err != nil || !slices.Equal(is.GetFinalizers(), c.after) {
					t.Errorf("%v, %v", is.GetFinalizers(), err)
				}
				if err := p.Validate(t.Context(), w.attributes(), nil); err != nil {
					t.Errorf("%s, afterwards: %v", name, err)
				}
			}
		})
	}
}

// TestPublicationLabel checks that only [tenant.ManagerUser] sets, changes or removes the label of
// Publications that belong to annotated objects.
func TestPublicationLabel(t *testing.T) {
	of := func(value string) *unstructured.Unstructured {
		u := published("ConfigMap platform/x", "", nil)
		if value != "" {
			u.SetLabels(map[string]string{tenant.ManagedLabel: value})
		}
		return u
	}
	for name, c := range map[string]struct {
		was, is *unstructured.Unstructured
		ok      bool
	}{
		"created":    {is: of("annotation")},
		"added":      {was: of(""), is: of("annotation")},
		"removed":    {was: of("annotation"), is: of("")},
		"changed":    {was: of("annotation"), is: of("x")},
		"unchanged":  {was: of("annotation"), is: of("annotation"), ok: true},
		"without it": {was: of(""), is: of(""), ok: true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, by := range []string{"root", tenant.ManagerUser} {
				w := write{by: &user.DefaultInfo{Name: by}, resource: publicationsResource, obj: c.is}
				if c.was != nil {
					w.old = c.was
				}
				p := publishing{rights: []string{"*"}}
				if err := p.plugin().Validate(t.Context(), w.attributes(), nil); (err == nil) != (c.ok || by != "root") {
					t.Errorf("%s by %s: %v", name, by, err)
				}
			}
		})
	}
}
