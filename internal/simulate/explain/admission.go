// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/internal/simulate/podsecurity"
	"github.com/kubetenant/kubetenant/internal/simulate/scenario"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/plugins/gate"
	"github.com/kubetenant/kubetenant/plugins/lifecycle"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/plugins/request"
	"github.com/kubetenant/kubetenant/plugins/restriction"
)

// Admission is the result of admission for a write that authorization allows. It is empty if the
// server does not run admission for the request.
type Admission string

// Results of admission.
const (
	Admitted  Admission = "admitted"
	Refused   Admission = "refused"
	Undecided Admission = "undecided"
)

// Descriptions of the unknown object on which an undecided result depends.
const (
	NoObject       = "the object (use -f)"
	noStoredObject = "the stored object"
)

// Write is the object of a write request.
type Write struct {
	Kind schema.GroupVersionKind
	// Object is the new object, which plugins may change. Old is the stored object of an update.
	Object, Old runtime.Object
	DryRun      bool
}

// admitted is the result of admission for one write. The zero value means that the server does not
// run admission for the request.
type admitted struct {
	verdict Admission
	// said is the result of the step. If admission rejects the write, it is the reason.
	said string
	// pods is why the Pods of a workload would be rejected, or "".
	pods string
}

// step returns the text of the admission step.
func (is admitted) step() string {
	if is.verdict == Refused {
		return "refuses: " + is.said
	}
	return is.said
}

// Writes sets q.Request and q.Write to the write in a scenario case.
func (q *Query) Writes(a *scenario.Admit) error {
	w, err := scenario.WriteOf(a)
	if err != nil {
		return err
	}
	q.Request = scenario.WriteAttributes(a, &w)
	q.Write = &Write{Kind: w.GVK, DryRun: a.DryRun}
	if q.Write.Object, err = scenario.Decode(a.Object); err != nil {
		return err
	}
	q.Write.Old, err = scenario.Decode(a.OldObject)
	return err
}

// operations contains the admission operation of each verb.
var operations = map[string]admission.Operation{
	"create":           admission.Create,
	"update":           admission.Update,
	"patch":            admission.Update,
	"delete":           admission.Delete,
	"deletecollection": admission.Delete,
	"connect":          admission.Connect,
}

// operationOf returns the admission operation of a request, or false if the server does not run
// admission for the request.
func operationOf(r *authorizer.AttributesRecord) (admission.Operation, bool) {
	switch r.Subresource {
	case "exec", "attach", "portforward", "proxy":
		return admission.Connect, r.ResourceRequest
	}
	operation, writes := operations[r.Verb]
	return operation, writes && r.ResourceRequest
}

// IsWrite reports whether the server runs admission for a request.
func IsWrite(r *authorizer.AttributesRecord) bool {
	_, writes := operationOf(r)
	return writes
}

// admission returns the result of the admission plugins. If the object is unknown, the result may
// be [Undecided].
func (q *Query) admission(ctx context.Context, a *answer) (admitted, error) {
	operation, writes := operationOf(&q.Request)
	if !writes {
		return admitted{said: "not applicable: the request writes nothing"}, nil
	}
	if reason := q.namespaceRefuses(operation); reason != "" {
		return admitted{verdict: Refused, said: reason}, nil
	}
	if reason := q.ManagedRefusal(); reason != "" && q.Written() == nil {
		return admitted{verdict: Refused, said: reason}, nil
	}
	pods, err := podsecurity.New(q.namespace)
	if err != nil {
		return admitted{}, err
	}
	// The server runs PodSecurity before the validating plugins of kubetenant.
	plugins := append([]stack.Plugin{{Name: podsecurity.Name, Interface: pods}}, a.stack.Admission...)
	resource := q.resourceVersion("").GroupResource()
	var names []string
	for _, p := range plugins {
		governs := p.Name != podsecurity.Name || pods.Governs(resource)
		if governs && p.Handles(operation) && q.pluginMayCheck(p.Name, resource, operation) {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return admitted{said: "no kubetenant plugin handles this request"}, nil
	}
	write := q.Written()
	if write == nil {
		if err := q.restricted(ctx, a, operation); err != nil {
			return admitted{verdict: Refused, said: Refusal(err)}, nil
		}
		result := "undecided: depends on " + unknownObject(operation) + ": " + strings.Join(names, ", ")
		return admitted{verdict: Undecided, said: result}, nil
	}
	record := q.record(write, operation)
	if err := simulator.Admit(ctx, plugins, record); err != nil {
		result := Refusal(err)
		if reason := q.ManagedRefusal(); reason != "" && strings.Contains(result, "("+managed.Name) {
			result = reason
		}
		return admitted{verdict: Refused, said: result}, nil
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == quota.Name })
	return admitted{Admitted, "admitted by " + strings.Join(names, ", "), pods.TemplateViolation(ctx, record)}, nil
}

// record returns the admission attributes of a write.
func (q *Query) record(write *Write, operation admission.Operation) admission.Attributes {
	namespace, name := q.Request.Namespace, q.Request.Name
	if object, err := meta.Accessor(write.Object); err == nil && name == "" {
		name = object.GetName()
	}
	if q.Request.Resource == "namespaces" && namespace == "" {
		namespace = name
	}
	return admission.NewAttributesRecord(write.Object, write.Old, write.Kind, namespace, name,
		q.resourceVersion(write.Kind.Version), q.Request.Subresource, operation, nil, write.DryRun, q.User)
}

// namespaceRefuses returns why the server creates no objects in the namespace of the request, or ""
// (k8s.io/apiserver pkg/admission/plugin/namespace/lifecycle, v0.37.1).
func (q *Query) namespaceRefuses(operation admission.Operation) string {
	r := &q.Request
	if operation != admission.Create || r.Namespace == "" || r.Resource == "namespaces" ||
		r.Resource == "localsubjectaccessreviews" {
		return ""
	}
	if q.isMissing(r.Namespace) {
		return notFound(r.Namespace).Error()
	}
	if ns := q.Snapshot.Namespaces[r.Namespace]; ns != nil && ns.DeletionTimestamp != nil {
		return fmt.Sprintf("unable to create new content in namespace %s because it is being terminated", r.Namespace)
	}
	return ""
}

// isMissing reports whether a namespace certainly does not exist.
func (q *Query) isMissing(namespace string) bool {
	return namespace != "" && !q.Limited && !q.Snapshot.HasNamespace(namespace)
}

func notFound(namespace string) error {
	return apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
}

// namespace returns the Namespace with the given name, or a NotFound error.
func (q *Query) namespace(name string) (*corev1.Namespace, error) {
	if ns := q.Snapshot.Namespaces[name]; ns != nil {
		return ns, nil
	}
	if q.Snapshot.HasNamespace(name) {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
	}
	return nil, notFound(name)
}

// unknownObject returns a description of the unknown object on which admission depends.
func unknownObject(operation admission.Operation) string {
	if operation == admission.Create || operation == admission.Update {
		return NoObject
	}
	return noStoredObject
}

// unchecked returns the names of the server's checks that the explanation of an allowed write
// omits.
func (q *Query) unchecked(result admitted) []string {
	operation, writes := operationOf(&q.Request)
	if !writes {
		return nil
	}
	var out []string
	if result.verdict == Undecided {
		out = append(out, unknownObject(operation))
	}
	out = append(out, "other webhooks and policies of the cluster", "other admission plugins of the server")
	if operation == admission.Create || operation == admission.Update {
		out = append(out, "ResourceQuota", "LimitRange", "TenantQuota", "schema validation",
			"objects that it refers to", "the server's PodSecurity configuration file")
	}
	if q.Request.APIGroup == rbacv1.GroupName {
		out = append(out, "privilege escalation")
	}
	return out
}

func (q *Query) resourceVersion(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: q.Request.APIGroup, Version: version, Resource: q.Request.Resource}
}

// Written returns the object of the write. For a new namespace whose object is unknown, it returns
// a Namespace with only the name. Otherwise, it returns nil if the object is unknown.
func (q *Query) Written() *Write {
	if q.Write != nil {
		return q.Write
	}
	r := &q.Request
	if r.Verb == "create" && r.APIGroup == "" && r.Resource == "namespaces" && r.Subresource == "" && r.Name != "" {
		return newNamespace(r.Name)
	}
	return nil
}

// newNamespace returns the write that creates a namespace with only a name.
func newNamespace(name string) *Write {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return &Write{Kind: corev1.SchemeGroupVersion.WithKind("Namespace"), Object: object}
}

// restricted returns an error if the caller may not use a resource, whatever the object is.
func (q *Query) restricted(ctx context.Context, a *answer, operation admission.Operation) error {
	if operation == admission.Update && a.outcome.Caller.IsSystem() {
		return nil // the system tenant may update existing objects
	}
	kind := schema.GroupVersionKind{Group: q.Request.APIGroup, Kind: q.Request.Resource}
	record := admission.NewAttributesRecord(nil, nil, kind, q.Request.Namespace, q.Request.Name,
		q.resourceVersion(""), q.Request.Subresource, operation, nil, false, q.User)
	for _, p := range a.stack.Admission {
		v, validates := p.Interface.(admission.ValidationInterface)
		if validates && p.Name == restriction.Name && p.Handles(operation) {
			return v.Validate(ctx, record, nil)
		}
	}
	return nil
}

// Refusal returns the reason in the error of an admission plugin, without the description of the
// request.
func Refusal(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		if _, reason, found := strings.Cut(status.Status().Message, " is forbidden: "); found {
			return reason
		}
	}
	return err.Error()
}

// pluginMayCheck reports whether a plugin that handles an operation may check objects of a
// resource.
func (q *Query) pluginMayCheck(plugin string, r schema.GroupResource, operation admission.Operation) bool {
	switch plugin {
	case managed.Name:
		return managed.Governs(r, operation) || q.isPublishable(r)
	case lifecycle.Name:
		return lifecycle.Governs(r)
	case gate.Name, // it only repeats the decision of the boundary
		request.Name: // it never rejects a request
		return false
	}
	return true
}
