// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
)

// target is the target of a request, as in kubectl auth can-i: a path, or a resource with an
// optional name and subresource.
type target struct {
	path                        string
	resource, name, subresource string
	// slash reports whether the arguments have the form TYPE/NAME.
	slash bool
}

var (
	errTwoNames    = errors.New("name the object once: TYPE/NAME or TYPE NAME")
	errSubresource = errors.New("--subresource cannot be used with PATH")
)

// parseTarget parses the arguments after VERB: PATH, TYPE, TYPE/NAME or TYPE NAME.
func parseTarget(args []string, subresource string) (target, error) {
	switch {
	case len(args) == 0 || args[0] == "":
		return target{}, errors.New("TYPE must not be empty")
	case len(args) > 2:
		return target{}, errTwoNames
	case strings.HasPrefix(args[0], "/") && len(args) > 1:
		return target{}, errors.New("PATH cannot be used with NAME")
	case strings.HasPrefix(args[0], "/") && subresource != "":
		return target{}, errSubresource
	case strings.HasPrefix(args[0], "/"):
		return target{path: args[0]}, nil
	}
	resource, name, named := strings.Cut(args[0], "/")
	t := target{
		resource:    resource,
		name:        name,
		subresource: subresource,
		slash:       named,
	}
	switch {
	case named && len(args) == 2, named && name == "":
		return target{}, errTwoNames
	case len(args) == 2 && args[1] == "":
		return target{}, errors.New("NAME must not be empty")
	case len(args) == 2:
		t.name = args[1]
	}
	return t, nil
}

// requestFlags are the flags that describe a request together with the arguments.
type requestFlags struct {
	subresource string
	everywhere  bool
	// eachNamespace specifies a separate check in each namespace if the request specifies neither a
	// namespace nor an object.
	eachNamespace bool
}

func (f *requestFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.subresource, "subresource", "", "subresource of TYPE, such as log, exec or scale")
	cmd.Flags().BoolVarP(&f.everywhere, "all-namespaces", "A", false, "check one request across all namespaces")
}

// question returns the request that the flags and the arguments describe. The first argument is
// VERB.
func (f *requestFlags) question(cmd *cobra.Command, c *client.Cluster, args []string) (*privileges.Action, error) {
	q := &privileges.Action{AttributesRecord: authorizer.AttributesRecord{Verb: args[0], APIVersion: "*"}}
	t, err := parseTarget(args[1:], f.subresource)
	if err != nil {
		return nil, err
	}
	if t.path != "" {
		q.Path = t.path
		return q, nil
	}
	if slices.Contains(verbs(), args[1]) && !slices.Contains(verbs(), args[0]) {
		return nil, fmt.Errorf("the verb must come first: %s %s", args[1], args[0])
	}
	r, namespaced, err := resourceOf(cmd, c, &t)
	if err != nil {
		return nil, err
	}
	q.ResourceRequest = true
	q.APIGroup, q.Resource, q.Subresource, q.Name = r.Group, r.Resource, t.subresource, t.name
	if q.Resource == "signers" && q.APIGroup == "" {
		q.APIGroup = "certificates.k8s.io"
	}
	given := client.Changed(cmd.Flags(), "namespace")
	if f.everywhere && given {
		return nil, errors.New("-A and -n cannot be used together")
	}
	if !namespaced && given {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s are not namespaced: -n is ignored\n", r.Resource)
	}
	if f.everywhere || !namespaced {
		return q, nil
	}
	if !given && f.eachNamespace && q.Name == "" {
		q.Everywhere = true
		return q, nil
	}
	if given {
		if err := client.CheckNamespace("-n", c.Namespace); err != nil {
			return nil, err
		}
	}
	q.Namespace = c.Namespace
	return q, nil
}

// reviewOnlyResources returns resources that no server serves. Authorizers check access to them for
// impersonation and for certificate signers.
func reviewOnlyResources() []string {
	return []string{"users", "groups", "uids", "userextras", "signers"}
}

// resourceOf returns the resource of t, which may be in any form that kubectl accepts. It also
// reports whether the resource is namespaced. It prints a warning if the name in t is also the name
// of a subresource.
func resourceOf(cmd *cobra.Command, c *client.Cluster, t *target) (schema.GroupResource, bool, error) {
	mapper, err := c.Mapper()
	if err != nil {
		return schema.GroupResource{}, false, err
	}
	parsed := schema.ParseGroupResource(t.resource)
	found, err := mapper.ResourceFor(parsed.WithVersion(""))
	if meta.IsNoMatchError(err) && slices.Contains(reviewOnlyResources(), parsed.Resource) {
		if parsed.Resource == "userextras" && t.subresource == "" && t.slash {
			warnOfName(cmd, t)
		}
		return parsed, false, nil
	}
	if meta.IsNoMatchError(err) {
		return schema.GroupResource{}, false, fmt.Errorf("the server has no resource %q: to list resources, run kubectl "+
			"api-resources", t.resource)
	}
	if err != nil {
		return schema.GroupResource{}, false, err
	}
	kind, err := mapper.KindFor(found)
	if err != nil {
		return schema.GroupResource{}, false, err
	}
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return schema.GroupResource{}, false, err
	}
	switch {
	case t.subresource != "":
		err = checkSubresource(c, found, t.subresource)
	case t.slash: // in earlier versions, this specified a subresource
		var names []string
		if names, err = subresources(c, found); slices.Contains(names, t.name) {
			warnOfName(cmd, t)
		}
	}
	return found.GroupResource(), mapping.Scope.Name() == meta.RESTScopeNameNamespace, err
}

// warnOfName prints a warning that the name of an object is also the name of a subresource.
func warnOfName(cmd *cobra.Command, t *target) {
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(),
		"warning: %s/%s names the object %[2]q: for the subresource, use %[1]s --subresource %[2]s\n",
		t.resource, output.Safe(t.name))
}

// checkSubresource returns an error if the server does not serve a subresource.
func checkSubresource(c *client.Cluster, resource schema.GroupVersionResource, name string) error {
	names, err := subresources(c, resource)
	if err != nil || slices.Contains(names, name) {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("%s has no subresources, so it has no %q", resource.Resource, name)
	}
	return fmt.Errorf(
		"%s has no subresource %q: its subresources are %s",
		resource.Resource,
		name,
		strings.Join(names, ", "),
	)
}

// subresources returns the subresources of a resource that the server serves.
func subresources(c *client.Cluster, resource schema.GroupVersionResource) ([]string, error) {
	k, err := c.Kube()
	if err != nil {
		return nil, err
	}
	list, err := k.Discovery().ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range list.APIResources {
		if name, ok := strings.CutPrefix(list.APIResources[i].Name, resource.Resource+"/"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}
