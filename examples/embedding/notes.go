// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"sync"

	openapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	openapiutil "k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
)

// Note is the kind that the server serves.
type Note struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Text              string `json:"text"`
}

// NoteList is a list of Notes.
type NoteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Note `json:"items"`
}

// DeepCopyObject implements [runtime.Object].
func (n *Note) DeepCopyObject() runtime.Object {
	out := *n
	n.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// DeepCopyObject implements [runtime.Object].
func (n *NoteList) DeepCopyObject() runtime.Object {
	out := *n
	out.Items = make([]Note, len(n.Items))
	for i := range n.Items {
		out.Items[i] = *n.Items[i].DeepCopyObject().(*Note)
	}
	return &out
}

// notes stores Notes in memory. A production server uses a store of
// [k8s.io/apiserver/pkg/registry/generic/registry].
type notes struct {
	rest.TableConvertor
	mu  sync.Mutex
	all map[string]*Note // keyed by namespace/name
}

var (
	_ rest.Getter = (*notes)(nil)
	_ rest.Lister = (*notes)(nil)
)

func newNotes() *notes {
	return &notes{
		TableConvertor: rest.NewDefaultTableConvertor(group.WithResource("notes").GroupResource()),
		all:            map[string]*Note{},
	}
}

func (*notes) New() runtime.Object     { return &Note{} }
func (*notes) NewList() runtime.Object { return &NoteList{} }
func (*notes) Destroy()                {}
func (*notes) NamespaceScoped() bool   { return true }
func (*notes) GetSingularName() string { return "note" }

// Create stores an object after admission has changed and validated it.
func (s *notes) Create(
	ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions,
) (runtime.Object, error) {
	note := obj.(*Note)
	rest.FillObjectMetaSystemFields(note)
	note.Namespace = request.NamespaceValue(ctx)
	if err := validate(ctx, note); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := note.Namespace + "/" + note.Name
	if s.all[key] != nil {
		return nil, apierrors.NewAlreadyExists(group.WithResource("notes").GroupResource(), note.Name)
	}
	s.all[key] = note
	return note.DeepCopyObject(), nil
}

// Get implements [rest.Getter].
func (s *notes) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if note := s.all[request.NamespaceValue(ctx)+"/"+name]; note != nil {
		return note.DeepCopyObject(), nil
	}
	return nil, apierrors.NewNotFound(group.WithResource("notes").GroupResource(), name)
}

// List implements [rest.Lister]. It MUST honor label selectors, because the server limits a
// tenant's list over all namespaces with a label selector.
func (s *notes) List(ctx context.Context, o *internalversion.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	namespace := request.NamespaceValue(ctx)
	list := &NoteList{Items: []Note{}}
	for _, note := range s.all {
		if (namespace == "" || namespace == note.Namespace) &&
			(o == nil || o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(note.Labels))) {
			list.Items = append(list.Items, *note.DeepCopyObject().(*Note))
		}
	}
	return list, nil
}

// definitions returns the OpenAPI schemas of Kubernetes and of Notes. openapi-gen generates the
// schemas of a production server.
func definitions(ref openapicommon.ReferenceCallback) map[string]openapicommon.OpenAPIDefinition {
	all := openapi.GetOpenAPIDefinitions(ref)
	for _, model := range []any{&Note{}, &NoteList{}} {
		all[openapiutil.GetCanonicalTypeName(model)] = openapicommon.OpenAPIDefinition{
			Schema: spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}},
		}
	}
	return all
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(group, &Note{}, &NoteList{})
	metav1.AddToGroupVersion(scheme, group)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return scheme
}

// listen configures a port on the loopback address, with a certificate in memory.
func listen(config *genericapiserver.Config, port int) error {
	serving := options.NewSecureServingOptions().WithLoopback()
	serving.BindPort, serving.BindAddress = port, net.IPv4(127, 0, 0, 1)
	serving.ServerCert.CertDirectory = ""
	return errors.Join(
		serving.MaybeDefaultWithSelfSignedCerts("localhost", nil, nil),
		serving.ApplyTo(&config.SecureServing, &config.LoopbackClientConfig))
}

func installNotes(server *genericapiserver.GenericAPIServer, scheme *runtime.Scheme) error {
	info := genericapiserver.NewDefaultAPIGroupInfo(
		group.Group, scheme, runtime.NewParameterCodec(scheme), serializer.NewCodecFactory(scheme))
	info.VersionedResourcesStorageMap[group.Version] = map[string]rest.Storage{"notes": newNotes()}
	return server.InstallAPIGroup(&info)
}

// noteResources specifies that Notes are namespaced and labeled. Tenants cannot use resources of
// other API groups.
type noteResources struct{}

// Scope implements [lookup.Resources].
func (noteResources) Scope(resource schema.GroupResource) authz.Scope {
	if resource.Group != group.Group {
		return authz.ScopeUnknown
	}
	return authz.ScopeNamespaced
}

// KindScope implements [lookup.Resources].
func (noteResources) KindScope(schema.GroupKind) authz.Scope { return authz.ScopeUnknown }

// Kind implements [lookup.Resources].
func (noteResources) Kind(schema.GroupResource) string { return "" }

// Labeled implements [lookup.Resources]. The plugin TenantLabel labels each Note.
func (noteResources) Labeled(schema.GroupResource, tenant.ID) bool { return true }
