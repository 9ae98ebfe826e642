package isolation

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
)

// resource is a resource or subresource that the server serves.
type resource struct {
	schema.GroupVersion
	name, subresource string
	namespaced        bool
	verbs             []string
}

// path returns the path of the collection in a namespace, empty for none.
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

// discover asks for everything in every version. A group that is down is an error: what is not seen is
// not tried.
func discover(admin kubernetes.Interface) ([]resource, error) {
	_, lists, err := discovery.ServerGroupsAndResources(admin.Discovery())
	if err != nil {
		return nil, err
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
	return all, nil
}

// ofGroups returns the resources of the groups; without any, all.
func ofGroups(all []resource, groups []string) []resource {
	if len(groups) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(r resource) bool { return !slices.Contains(groups, r.Group) })
}

func (r *resource) is(group, name string) bool { return r.Group == group && r.name == name }

// isSelf reports whether a resource tells callers about themselves, which everybody bound may ask.
func (r *resource) isSelf() bool { return strings.HasPrefix(r.name, "selfsubject") }

// isShared reports whether tenants may read a cluster-scoped resource by default.
func (r *resource) isShared() bool {
	return slices.Contains([]string{"storageclasses", "volumeattributesclasses", "ingressclasses", "gatewayclasses", "runtimeclasses",
		"priorityclasses", "volumesnapshotclasses", "deviceclasses"}, r.name) && r.subresource == ""
}

func splitResource(full string) (name, subresource string) {
	name, subresource, _ = strings.Cut(full, "/")
	return name, subresource
}
