package typed

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/internal/listinformer"
)

// Strict returns an object of a kind. It returns an [Invalid] if the object does not decode or has
// a field that the type does not have.
//
// It is for kinds that allow requests. A later release may add a field that limits what an object
// allows. A release that dropped this field would allow more.
func Strict[T any, P Pointer[T]](u *unstructured.Unstructured) metav1.Object {
	out := P(new(T))
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, out, true)
	if err != nil {
		if !runtime.IsStrictDecodingError(err) {
			err = withoutValues(err)
		}
		return newInvalid(u, fmt.Errorf("%s %s does not decode: %w", u.GetKind(), u.GetName(), err))
	}
	out.SetManagedFields(nil)
	return out
}

// NewStrictInformer is [NewInformer] with the objects of [Strict].
func NewStrictInformer[T any, P Pointer[T]](
	client dynamic.Interface, resource schema.GroupVersionResource,
) (cache.SharedIndexInformer, error) {
	informer := listinformer.New(client, resource)
	err := informer.SetTransform(func(obj any) (any, error) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			return Strict[T, P](u), nil
		}
		return obj, nil // of the type already, or a tombstone
	})
	return informer, err
}

// withoutValues returns an error of the decoder without values of the object. The errors of package
// time quote the text that they do not parse. Nothing else is quoted before such a text.
func withoutValues(err error) error {
	text, _, found := strings.Cut(err.Error(), `"`)
	if !found {
		return err
	}
	return errors.New(strings.TrimSpace(text) + ": the value is invalid")
}
