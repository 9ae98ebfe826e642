package explain

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/cmd/internal/simulate/scenario"
	"github.com/kubetenant/kubetenant/cmd/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/plugins/gate"
	"github.com/kubetenant/kubetenant/plugins/lifecycle"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/plugins/restriction"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Admission says what becomes of a write that is allowed. The empty one is not asked.
type Admission string

// What admission says.
const (
	Admitted  Admission = "admitted"
	Refused   Admission = "refused"
	Undecided Admission = "undecided"
)

// Write is what a request writes.
type Write struct {
	Kind schema.GroupVersionKind
	// Object is changed as plugins change it. Old is what is stored, of an update.
	Object, Old runtime.Object
	DryRun      bool
}

// Writes puts what a case of a scenario writes into the question, with the request for it.
func (q *Query) Writes(a *v1alpha1.Admit) error {
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

// operations are what verbs are to admission.
var operations = map[string]admission.Operation{"create": admission.Create, "update": admission.Update, "patch": admission.Update,
	"delete": admission.Delete, "deletecollection": admission.Delete, "connect": admission.Connect}

// operationOf returns what a request is to admission, false where it asks nothing of it.
func operationOf(r *authorizer.AttributesRecord) (admission.Operation, bool) {
	switch r.Subresource {
	case "exec", "attach", "portforward", "proxy":
		return admission.Connect, r.ResourceRequest
	}
	operation, writes := operations[r.Verb]
	return operation, writes && r.ResourceRequest
}

// IsWrite reports whether admission is asked about a request.
func IsWrite(r *authorizer.AttributesRecord) bool {
	_, writes := operationOf(r)
	return writes
}

// admission returns what the plugins say of the request, with what is known of it.
func (q *Query) admission(ctx context.Context, a *answer) (string, Admission) {
	operation, writes := operationOf(&q.Request)
	if !writes {
		return "is not asked: nothing is written", ""
	}
	var asked []string
	for _, p := range a.stack.Admission {
		if p.Handles(operation) && looksAt(p.Name, q.resourceVersion("").GroupResource(), operation) {
			asked = append(asked, p.Name)
		}
	}
	if len(asked) == 0 {
		return "no plugin of kubetenant looks at it", ""
	}
	write := q.Written()
	if write == nil {
		if err := q.restricted(ctx, a, operation); err != nil {
			return Refusal(err), Refused
		}
		return "undecided: it hangs on the object, which -f gives: " + strings.Join(asked, ", "), Undecided
	}
	namespace, name := q.Request.Namespace, q.Request.Name
	if object, err := meta.Accessor(write.Object); err == nil && name == "" {
		name = object.GetName()
	}
	if q.Request.Resource == "namespaces" && namespace == "" {
		namespace = name
	}
	record := admission.NewAttributesRecord(write.Object, write.Old, write.Kind, namespace, name, q.resourceVersion(write.Kind.Version),
		q.Request.Subresource, operation, nil, write.DryRun, q.User)
	if err := simulator.Admit(ctx, a.stack, record); err != nil {
		return Refusal(err), Refused
	}
	asked = slices.DeleteFunc(asked, func(name string) bool { return name == quota.Name })
	return "admit it, as far as it does not hang on other objects (quotas, owners, the default priority): " + strings.Join(asked, ", "), Admitted
}

func (q *Query) resourceVersion(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: q.Request.APIGroup, Version: version, Resource: q.Request.Resource}
}

// Written returns what the request writes: what is given, and of a new namespace just its name; nil where it is not known.
func (q *Query) Written() *Write {
	if q.Write != nil {
		return q.Write
	}
	r := &q.Request
	if r.Verb == "create" && r.APIGroup == "" && r.Resource == "namespaces" && r.Subresource == "" && r.Name != "" {
		return &Write{Kind: corev1.SchemeGroupVersion.WithKind("Namespace"), Object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.Name}}}
	}
	return nil
}

// restricted returns the refusal of what is kept out of tenant space, whatever object it is.
func (q *Query) restricted(ctx context.Context, a *answer, operation admission.Operation) error {
	if operation == admission.Update && a.outcome.Caller.IsSystem() {
		return nil // who may look after what is there already
	}
	record := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{Group: q.Request.APIGroup, Kind: q.Request.Resource}, q.Request.Namespace, q.Request.Name,
		q.resourceVersion(""), q.Request.Subresource, operation, nil, false, q.User)
	for _, p := range a.stack.Admission {
		if v, validates := p.Interface.(admission.ValidationInterface); validates && p.Name == restriction.Name && p.Handles(operation) {
			return v.Validate(ctx, record, nil)
		}
	}
	return nil
}

// Refusal returns what a plugin says, without what the request says of itself.
func Refusal(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		if _, why, found := strings.Cut(status.Status().Message, " is forbidden: "); found {
			return "refuses: " + why
		}
	}
	return "refuses: " + err.Error()
}

// looksAt reports whether a plugin that handles an operation may look at it on a resource.
func looksAt(plugin string, r schema.GroupResource, operation admission.Operation) bool {
	switch plugin {
	case managed.Name:
		return managed.Governs(r, operation)
	case lifecycle.Name:
		return lifecycle.Governs(r)
	case gate.Name: // asks the boundary once more, which is told of already
		return false
	}
	return true
}
