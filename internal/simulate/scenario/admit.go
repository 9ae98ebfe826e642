// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var unstructuredDecoder = unstructured.UnstructuredJSONScheme

// Write identifies the object of a write.
type Write struct {
	GVK             schema.GroupVersionKind
	GVR             schema.GroupVersionResource
	Namespace, Name string
}

// WriteOf returns the object that a write identifies. Fields that are not set in a are read from
// its object.
func WriteOf(a *Admit) (Write, error) {
	raw := a.Object
	if raw == nil {
		raw = a.OldObject
	}
	w := Write{Namespace: a.Namespace, Name: a.Name, GVR: schema.GroupVersionResource{Resource: a.Resource, Version: "v1"}}
	if raw == nil {
		return w, nil
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw.Raw, &u.Object); err != nil {
		return w, err
	}
	w.GVK = u.GroupVersionKind()
	w.GVR = w.GVK.GroupVersion().WithResource(a.Resource)
	if a.Resource == "" {
		w.GVR = resourceOf(w.GVK)
	} else if full, _ := schema.ParseResourceArg(a.Resource); full != nil {
		w.GVR = *full
	}
	if w.Namespace == "" {
		w.Namespace = u.GetNamespace()
	}
	if w.Name == "" {
		w.Name = u.GetName()
	}
	return w, nil
}

// resourceOf returns the resource of a kind, with the plural name that Kubernetes uses by default.
func resourceOf(kind schema.GroupVersionKind) schema.GroupVersionResource {
	if kind.Group == tenant.Domain && kind.Kind == v1alpha1.KindTenantMembers {
		return v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers)
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return resource
}

// Admit implements [Session]. It runs the boundary with a delegate that allows every request. It
// then runs all mutating plugins, and then all validating plugins.
func (s *session) Admit(ctx context.Context, c *Credential, a *Admit) (Admission, error) {
	s.allowing = true
	defer func() { s.allowing = false }()
	u, denied, err := s.userInfo(ctx, c)
	if err != nil || denied != "" {
		return Admission{Denied: denied}, err
	}
	w, err := WriteOf(a)
	if err != nil {
		return Admission{}, err
	}
	if reason, err := s.boundary(ctx, u, a, w); err != nil || reason != "" {
		return Admission{Denied: reason}, err
	}
	object, err := Decode(a.Object)
	if err != nil {
		return Admission{}, err
	}
	old, err := Decode(a.OldObject)
	if err != nil {
		return Admission{}, err
	}
	namespace := w.Namespace
	if w.GVR.Resource == "namespaces" {
		namespace = w.Name
	}
	record := admission.NewAttributesRecord(object, old, w.GVK, namespace, w.Name, w.GVR, a.Subresource,
		admission.Operation(a.Operation), nil, a.DryRun, u)
	if err := simulator.Admit(ctx, s.stack.Admission, record); err != nil {
		return Admission{Denied: err.Error()}, nil
	}
	return encode(object)
}

// verbs contains the verb of each operation.
var verbs = map[string]string{
	"CREATE":  "create",
	"UPDATE":  "update",
	"DELETE":  "delete",
	"CONNECT": "create",
}

// WriteAttributes returns the attributes of a write for the authorizer.
func WriteAttributes(a *Admit, w *Write) authorizer.AttributesRecord {
	verb := verbs[a.Operation]
	if strings.Contains(a.Via, "patch") || strings.Contains(a.Via, "apply") || a.Via == "strategic" {
		verb = "patch"
	}
	name := w.Name
	if a.Operation == "CREATE" && a.Subresource == "" {
		name = "" // the path of a POST contains no name
	}
	return authorizer.AttributesRecord{
		Verb:            verb,
		APIGroup:        w.GVR.Group,
		APIVersion:      w.GVR.Version,
		Resource:        w.GVR.Resource,
		Subresource:     a.Subresource,
		Namespace:       w.Namespace,
		Name:            name,
		ResourceRequest: true,
	}
}

func (s *session) boundary(ctx context.Context, u user.Info, a *Admit, w Write) (string, error) {
	record := WriteAttributes(a, &w)
	record.User = u
	decision, reason, err := s.stack.Authorizer.Authorize(ctx, record)
	if err != nil || decision == authorizer.DecisionAllow {
		return "", err
	}
	return fmt.Sprintf("forbidden: %s", reason), nil
}

func encode(object runtime.Object) (Admission, error) {
	if object == nil {
		return Admission{Object: []byte("null")}, nil
	}
	data, err := json.Marshal(object)
	return Admission{Object: data}, err
}
