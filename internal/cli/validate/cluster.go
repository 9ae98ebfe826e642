// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/cluster"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/internal/leaving"
)

// export returns the findings for objects that were exported from a cluster.
func (r *run) export(f *file, docs []document) ([]Finding, error) {
	if found := misshapen(docs); len(found) > 0 {
		return found, nil
	}
	all, err := leaving.FindingsInExport(f.data, r.systemNamespaces)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, l := range all {
		d := named(docs, l.Object)
		if d == nil {
			d = &docs[0]
		}
		at := d.at("", l.Reason, l.Remedy)
		at.Field = l.Object
		found = append(found, at)
	}
	return found, nil
}

// misshapen returns a finding for each field that its type does not allow. No server writes such
// fields.
func misshapen(docs []document) []Finding {
	types := map[string]reflect.Type{
		"ClusterRoleBinding": reflect.TypeFor[rbacv1.ClusterRoleBinding](),
		"RoleBinding":        reflect.TypeFor[rbacv1.RoleBinding](),
		"Namespace":          reflect.TypeFor[corev1.Namespace](),
	}
	var found []Finding
	for i := range docs {
		value, err := docs[i].value()
		if err != nil {
			found = append(found, docs[i].at("", err.Error(), "write an object"))
			continue
		}
		for _, m := range mismatches(types[docs[i].kind], value, "") {
			found = append(found, m.finding(&docs[i]))
		}
	}
	return found
}

// named returns the document of the object that a finding names, or nil. The finding may name
// further objects after it.
func named(docs []document, object string) *document {
	for i := range docs {
		d := &docs[i]
		name := ""
		if meta := valueOf(d.node, "metadata"); meta != nil {
			for _, key := range []string{"namespace", "name"} {
				if v := valueOf(meta, key); v != nil {
					name += "/" + v.Value
				}
			}
		}
		name = d.kind + " " + strings.TrimPrefix(name, "/")
		if object == name || strings.HasPrefix(object, name+" ") {
			return d
		}
	}
	return nil
}

// Cluster adds findings for the objects of a cluster that would allow more access on a server
// without kubetenant. namespaces contains the system namespaces. If nil, the system namespaces
// from the server's published configuration are used. Cluster returns only errors from the client.
func (r *Report) Cluster(ctx context.Context, name string, k kube.Interface, namespaces []string) error {
	before := len(r.Unread)
	if namespaces == nil {
		published, warning, err := publishedNamespaces(ctx, k)
		switch {
		case errors.Is(err, errNamespacesUnknown):
			r.Unread = append(r.Unread, err)
		case err != nil:
			return err
		case warning != "":
			r.Findings = append(r.Findings, Finding{
				Cluster:  name,
				Severity: Warning,
				Reason:   warning,
				Fix:      "name the TenancyConfiguration as a file, if it has other ones",
			})
		}
		namespaces = published
	}
	all, unread := leaving.FindingsInCluster(ctx, k, namespaces)
	r.Unread = append(r.Unread, unread...)
	for _, l := range all {
		r.Findings = append(r.Findings, Finding{
			Cluster:  name,
			Field:    l.Object,
			Severity: Error,
			Reason:   l.Reason,
			Fix:      l.Remedy,
		})
	}
	if len(all) == 0 && len(r.Unread) == before {
		r.Valid = append(r.Valid, "cluster "+name)
	}
	return nil
}

// errNamespacesUnknown reports that the system namespaces of a cluster are unknown.
var errNamespacesUnknown = errors.New("system Namespaces could not be checked: " +
	"the configuration that the server publishes cannot be read (name the TenancyConfiguration as a file)")

// publishedNamespaces returns the system namespaces from the server's published configuration. If
// it returns the default system namespaces instead, it also returns a warning. The error is
// [errNamespacesUnknown] or an error from the client.
func publishedNamespaces(ctx context.Context, k kube.Interface) (all []string, warning string, err error) {
	unknown := false
	for _, namespace := range []string{metav1.NamespaceSystem, installation.WebhookNamespace} {
		p, err := cluster.PublishedConfiguration(ctx, k.CoreV1(), namespace)
		switch {
		case err == nil:
			return p.Settings.Authorization.SystemNamespaces, "", nil
		case apierrors.IsForbidden(err), errors.Is(err, configv1alpha1.ErrNotPublished):
			unknown = true
		case !apierrors.IsNotFound(err):
			return nil, "", fmt.Errorf("the published configuration: %w", err)
		}
	}
	if unknown {
		return nil, "", errNamespacesUnknown
	}
	return defaultSystemNamespaces(),
		"no server publishes its configuration: the default systemNamespaces are assumed", nil
}

func defaultSystemNamespaces() []string {
	s := configv1alpha1.Settings{}
	configv1alpha1.Default(&s)
	return s.Authorization.SystemNamespaces
}
