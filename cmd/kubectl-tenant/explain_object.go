// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/simulate/explain"
	"github.com/kubetenant/kubetenant/internal/simulate/scenario"
	"github.com/kubetenant/kubetenant/tenant"
)

// readFiles reads the files of -f: a scenario file, a file with one object, or one of each.
func (o *explainOptions) readFiles() error {
	for _, file := range o.files {
		data, err := os.ReadFile(file) // #nosec G304 -- the caller's own
		if err != nil {
			return err
		}
		decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		switch {
		case object.GetKind() == scenario.KindScenario && o.scenario == "":
			o.scenario = file
			continue
		case object.GetKind() == scenario.KindScenario:
			return fmt.Errorf("%s: only one scenario can be explained at a time", file)
		case object.GetKind() == "" || object.GetAPIVersion() == "":
			return fmt.Errorf("%s: must contain a scenario, or an object with apiVersion and kind", file)
		case o.object != nil:
			return fmt.Errorf("%s: only one object can be explained at a time", file)
		}
		if err := decoder.Decode(&map[string]any{}); !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: contains several objects: use a file with one object", file)
		}
		o.object = object
	}
	return nil
}

// request sets the request of a query from the arguments, or from the object.
func (o *explainOptions) request(
	ctx context.Context, cmd *cobra.Command, c *client.Cluster, q *explain.Query, args []string,
) error {
	if o.object == nil {
		action, err := o.requestFlags.question(cmd, c, args)
		if err == nil {
			q.Request = action.AttributesRecord
		}
		return err
	}
	mapper, err := c.Mapper()
	if err != nil {
		return err
	}
	kind := o.object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	r := authorizer.AttributesRecord{
		Verb:            args[0],
		APIVersion:      kind.Version,
		APIGroup:        mapping.Resource.Group,
		Resource:        mapping.Resource.Resource,
		Name:            o.object.GetName(),
		ResourceRequest: true,
	}
	if err := o.checkObject(cmd, c, mapping.Resource, args[1:]); err != nil {
		return err
	}
	r.Subresource = o.requestFlags.subresource
	k, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		return err
	}
	resource := dynamic.ResourceInterface(k.Resource(mapping.Resource))
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if r.Namespace, err = o.namespace(cmd, c); err != nil {
			return err
		}
		resource = k.Resource(mapping.Resource).Namespace(r.Namespace)
	}
	q.Write = &explain.Write{Kind: kind}
	switch r.Verb {
	case "create":
		r.Name = "" // the path of a POST contains no name
	case "update", "patch":
		old, err := resource.Get(ctx, r.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if q.Write.Old, err = decoded(old); err != nil {
			return err
		}
	default:
		return fmt.Errorf("-f with an object needs the verb create, update or patch, not %s", r.Verb)
	}
	q.Request = r
	q.Write.Object, err = decoded(o.object)
	return err
}

// storedObject returns the metadata of the stored object that a request changes. It returns nil if
// the request changes no object, the object does not exist, or the caller may not read the object.
func storedObject(
	ctx context.Context, c *client.Cluster, r *authorizer.AttributesRecord,
) (*metav1.PartialObjectMetadata, error) {
	if !explain.ChangesObject(r) {
		return nil, nil
	}
	mapper, err := c.Mapper()
	if err != nil {
		return nil, err
	}
	resource, err := mapper.ResourceFor(schema.GroupVersionResource{Group: r.APIGroup, Resource: r.Resource})
	if meta.IsNoMatchError(err) { // no resource, but a name that authorizers use
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	k, err := metadata.NewForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	m, err := k.Resource(resource).Namespace(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	return m, err
}

// checkObject returns an error if the arguments specify a different resource or object than the
// file, or a subresource that the server does not serve.
func (o *explainOptions) checkObject(
	cmd *cobra.Command, c *client.Cluster, of schema.GroupVersionResource, args []string,
) error {
	if len(args) == 0 {
		if o.requestFlags.subresource == "" {
			return nil
		}
		return checkSubresource(c, of, o.requestFlags.subresource)
	}
	t, err := parseTarget(args, o.requestFlags.subresource)
	if err != nil {
		return err
	}
	if t.path != "" {
		return errObjectWithPath
	}
	named, _, err := resourceOf(cmd, c, &t)
	switch {
	case err != nil:
		return err
	case named != of.GroupResource():
		return fmt.Errorf("the object in the file is one of %s, but TYPE is %s", of.GroupResource(), named)
	case t.name != "" && t.name != o.object.GetName():
		return fmt.Errorf("the name of the object in the file is %q, but NAME is %q", o.object.GetName(), t.name)
	}
	return nil
}

var errObjectWithPath = errors.New("-f with an object cannot be used with PATH")

// namespace returns the namespace of the object. If the object has none, namespace sets it to
// the current namespace.
func (o *explainOptions) namespace(cmd *cobra.Command, c *client.Cluster) (string, error) {
	if o.object.GetNamespace() == "" {
		o.object.SetNamespace(c.Namespace)
	}
	if given := client.Changed(cmd.Flags(), "namespace"); given && o.object.GetNamespace() != c.Namespace {
		return "", fmt.Errorf("the namespace of the object is %q, but -n is %q", o.object.GetNamespace(), c.Namespace)
	}
	return o.object.GetNamespace(), nil
}

// decoded converts an object to the Go type that admission plugins receive.
func decoded(object *unstructured.Unstructured) (runtime.Object, error) {
	raw, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return scenario.Decode(&runtime.RawExtension{Raw: raw})
}

// explainByServer explains a decision about the caller itself. It uses only the server's responses:
// a self review and, for a write, a dry run. The only owner that the explanation names is the
// caller's tenant.
func explainByServer(
	ctx context.Context, c *client.Cluster, q *explain.Query, self *client.Caller,
) (*explain.Explanation, error) {
	k, err := c.Kube()
	if err != nil {
		return nil, c.Explain(err)
	}
	review := &authorizationv1.SelfSubjectAccessReview{}
	if r := &q.Request; r.ResourceRequest {
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb:        r.Verb,
			Group:       r.APIGroup,
			Resource:    r.Resource,
			Subresource: r.Subresource,
			Namespace:   r.Namespace,
			Name:        r.Name,
		}
	} else {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: r.Verb, Path: r.Path}
	}
	review, err = k.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return nil, c.Explain(err)
	}
	tenantText := self.Tenant + ", from " + self.TenantReason
	if self.Tenant == "" {
		tenantText = "none: " + self.TenantReason
	}
	id, _ := tenant.Parse(self.Tenant)
	e := &explain.Explanation{
		Decision: "deny",
		Reason:   review.Status.Reason,
		Steps: []explain.Step{
			{Name: "source", Result: q.Said},
			{Name: "user", Result: q.User.GetName() + "; groups " + strings.Join(q.User.GetGroups(), ", ")},
			{Name: "tenant", Result: tenantText},
			{Name: "request", Result: explain.RequestText(&q.Request)},
		},
	}
	add := func(name, result string) { e.Steps = append(e.Steps, explain.Step{Name: name, Result: result}) }
	switch {
	case strings.HasPrefix(e.Reason, "tenant ") && !review.Status.Allowed: // one of the reasons in docs/reasons.md
		add("boundary", "denies: "+e.Reason)
		e.Remedy = explain.Advice(e.Reason, id)
	case review.Status.Allowed:
		e.Decision = "allow"
	case e.Reason == "":
		e.Reason = "no rule allows it"
	}
	if !e.Allowed() || !explain.IsWrite(&q.Request) {
		return e, nil
	}
	if reason := q.ManagedRefusal(); reason != "" {
		add("admission", "refuses: "+reason)
		e.Decision = "deny"
		e.Reason = reason
		e.Admission = explain.Refused
		return e, nil
	}
	dry, err := tryWrite(ctx, c, q)
	if err != nil {
		return nil, c.Explain(err)
	}
	e.Admission = dry.verdict
	switch dry.verdict {
	case explain.Refused:
		add("admission", "the server refused a dry run: "+dry.said)
		e.Decision = "deny"
		e.Reason = dry.said
	case explain.Undecided:
		add("admission", "undecided: "+dry.said)
		e.NotChecked = []string{"admission"}
		if q.Written() == nil {
			e.NotChecked = []string{explain.NoObject}
		}
	default:
		add("admission", dry.said)
	}
	for _, warning := range dry.warnings {
		add("warning", "the server returned a warning: "+warning)
	}
	return e, nil
}

// dryRun is the response of a server to a dry run of a write.
type dryRun struct {
	verdict  explain.Admission
	said     string
	warnings []string
}

// HandleWarningHeader implements [rest.WarningHandler].
func (d *dryRun) HandleWarningHeader(_ int, _, text string) { d.warnings = append(d.warnings, text) }

// tryWrite sends a dry run of a write and returns the response.
func tryWrite(ctx context.Context, c *client.Cluster, q *explain.Query) (*dryRun, error) {
	dry := &dryRun{verdict: explain.Undecided, said: "depends on " + explain.NoObject}
	write := q.Written()
	if write == nil {
		return dry, nil
	}
	config := rest.CopyConfig(c.Config)
	config.WarningHandler = dry
	config.WarningHandlerWithContext = nil
	k, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(write.Object)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(write.Kind)
	r := &q.Request
	gvr := write.Kind.GroupVersion().WithResource(r.Resource)
	resource := dynamic.ResourceInterface(k.Resource(gvr))
	if r.Namespace != "" && r.Resource != "namespaces" {
		resource = k.Resource(gvr).Namespace(r.Namespace)
	}
	var subresources []string
	if r.Subresource != "" {
		subresources = []string{r.Subresource}
	}
	if r.Verb == "create" {
		_, err = resource.Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, subresources...)
	} else {
		_, err = resource.Update(ctx, object, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}, subresources...)
	}
	return dry.withError(err)
}

// withError sets the verdict and the text from the error of a dry run.
func (d *dryRun) withError(err error) (*dryRun, error) {
	switch {
	case err == nil:
		d.verdict = explain.Admitted
		d.said = "the server accepted a dry run"
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsTooManyRequests(err):
		d.said = err.Error()
	case apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run"):
		// The dry run is rejected because an admission webhook has side effects.
		d.said = err.Error()
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), isMissingNamespace(err):
		d.verdict, d.said = explain.Refused, explain.Refusal(err)
	default:
		return nil, err
	}
	return d, nil
}

// isMissingNamespace reports whether an error means that the namespace of an object does not exist.
func isMissingNamespace(err error) bool {
	status := apierrors.APIStatus(nil)
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil &&
		status.Status().Details.Kind == "namespaces"
}
