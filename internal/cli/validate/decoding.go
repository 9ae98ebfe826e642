// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"errors"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// undecoded returns the findings for an object that does not decode. The schema may allow a value
// that the Go type of the kind rejects. The controllers ignore such an object.
func undecoded(d *document, value map[string]any) []Finding {
	decode := map[string]func(*unstructured.Unstructured) (reflect.Type, error){
		v1alpha1.KindTenant:            decoded[v1alpha1.Tenant],
		v1alpha1.KindTenantMembers:     decoded[v1alpha1.TenantMembers],
		v1alpha1.KindNamespaceTemplate: decoded[v1alpha1.NamespaceTemplate],
		v1alpha1.KindPublication:       decoded[v1alpha1.Publication],
		v1alpha1.KindRetiredTenant:     decoded[v1alpha1.RetiredTenant],
		v1alpha1.KindTenantQuota:       decoded[v1alpha1.TenantQuota],
		v1alpha1.KindAccessGrant:       decoded[v1alpha1.AccessGrant],
		v1alpha1.KindTenantUsage:       decoded[v1alpha1.TenantUsage],
	}[d.kind]
	t, err := decode(&unstructured.Unstructured{Object: value})
	if err == nil {
		return nil
	}
	var found []Finding
	for _, m := range mismatches(t, value, "") {
		if m.known == nil {
			found = append(found, m.finding(d))
		}
	}
	var invalid *typed.Invalid
	if len(found) == 0 && errors.As(err, &invalid) {
		found = append(found, d.at("", "does not decode: "+invalid.Err.Error(),
			"compare the fields with kubectl explain "+d.kind))
	}
	return found
}

// decoded decodes an object and returns its Go type.
func decoded[T any, P typed.Pointer[T]](object *unstructured.Unstructured) (reflect.Type, error) {
	_, err := typed.Decode[T, P](object)
	return reflect.TypeFor[T](), err
}
