// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/kubetenant/kubetenant/internal/kube"
)

// resource is a resource or subresource that the server serves.
type resource struct {
	schema.GroupVersion
	name, subresource string
	namespaced        bool
	verbs             []string
}

// path returns the path of the collection in a namespace, or at cluster scope if namespace is
// empty.
func (r *resource) path(namespace string) string {
	p := "/apis/" + r.Group + "/" + r.Version
	if r.Group == "" {
		p = "/api/" + r.Version
	}
	if namespace != "" {
		p += "/namespaces/" + namespace
	}
	return p + "/" + r.name
}

// required are the core resources without which a run does not start.
var required = []string{"configmaps", "namespaces", "secrets", "serviceaccounts"}

// verbs are the verbs that the requests of a run cover.
var verbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// discover returns the resources that the server serves, in every version. If the discovery of a
// group fails, or a verb is not in [verbs], discover records this as not tested.
func (m *matrix) discover(admin kube.Interface) ([]resource, error) {
	_, lists, err := discovery.ServerGroupsAndResources(admin.Discovery())
	failed := &discovery.ErrGroupDiscoveryFailed{}
	if err != nil && !errors.As(err, &failed) {
		return nil, err
	}
	for gv, err := range failed.Groups {
		if len(m.Groups) == 0 || slices.Contains(m.Groups, gv.Group) {
			m.find(Untested, "", "", "the resources of an API group could not be discovered", fmt.Sprintf("%s: %v", gv, err))
		}
	}
	var all []resource
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			name, sub := splitResource(r.Name)
			all = append(all, resource{gv, name, sub, r.Namespaced, r.Verbs})
		}
	}
	for _, name := range required {
		if !slices.ContainsFunc(all, func(r resource) bool { return r.matches("", name) }) {
			return nil, fmt.Errorf("discovery does not list %s: the server is not a Kubernetes API server, or it is not "+
				"ready", name)
		}
	}
	for _, r := range ofGroups(all, m.Groups) {
		for _, verb := range r.verbs {
			if !slices.Contains(verbs, verb) {
				m.find(Untested, "", "", "no request has this verb", fmt.Sprintf("%s %s", verb, r.path("")))
			}
		}
	}
	return all, nil
}

// ofGroups returns the resources of the given API groups, or all resources if groups is empty.
func ofGroups(all []resource, groups []string) []resource {
	if len(groups) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(r resource) bool { return !slices.Contains(groups, r.Group) })
}

func (r *resource) matches(group, name string) bool { return r.Group == group && r.name == name }

// isSelf reports whether a resource is a self review. Every caller with a tenant may create self
// reviews.
func (r *resource) isSelf() bool { return strings.HasPrefix(r.name, "selfsubject") }

// isShared reports whether tenants may read a cluster-scoped resource under the default
// configuration.
func (r *resource) isShared() bool {
	return slices.Contains([]string{
		"storageclasses", "volumeattributesclasses", "ingressclasses", "gatewayclasses", "runtimeclasses",
		"priorityclasses", "volumesnapshotclasses", "deviceclasses",
	}, r.name) && r.subresource == ""
}

func splitResource(full string) (name, subresource string) {
	name, subresource, _ = strings.Cut(full, "/")
	return name, subresource
}

// String returns the resource and its group in the form RESOURCE.GROUP/SUBRESOURCE.
func (r *resource) String() string {
	full := r.name
	if r.Group != "" {
		full += "." + r.Group
	}
	if r.subresource != "" {
		full += "/" + r.subresource
	}
	return full
}
