// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

var errKeystone = errors.New("only the server may set the annotation " + tenant.KeystoneAnnotation +
	`: set it to "" so that the server records the Keystone domain again`)

// restoreKeystone restores the annotation of the Keystone domain, and removes it from a new Tenant.
// An update may set the annotation to "", which removes the permissions that come from Keystone.
func restoreKeystone(ctx context.Context, a admission.Attributes, old, obj metav1.Object) {
	if old == nil {
		sent := obj.GetAnnotations()
		plugins.SetAnnotation(obj, tenant.KeystoneAnnotation, nil)
		plugins.WarnRewritten(ctx, sent, obj, tenant.KeystoneAnnotation)
		return
	}
	if value, ok := obj.GetAnnotations()[tenant.KeystoneAnnotation]; !ok || value != "" {
		plugins.RestoreAnnotations(ctx, a, old, obj, tenant.KeystoneAnnotation)
	}
}

// checkKeystone returns an error for a value that [restoreKeystone] would replace. A webhook that
// runs after restoreKeystone may have written such a value.
func checkKeystone(old, obj metav1.Object) error {
	value, ok := obj.GetAnnotations()[tenant.KeystoneAnnotation]
	if value == "" && (ok || old == nil) {
		return nil
	}
	if old == nil || plugins.CheckUnchanged(old, obj, tenant.KeystoneAnnotation) != nil {
		return errKeystone
	}
	return nil
}
