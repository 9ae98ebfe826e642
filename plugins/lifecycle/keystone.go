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

// keepKeystone restores the annotation of the Keystone domain, and removes it from a new Tenant. An
// update may set it to "", which removes the permissions that come from Keystone.
func keepKeystone(ctx context.Context, a admission.Attributes, was, is metav1.Object) {
	if was == nil {
		sent := is.GetAnnotations()
		plugins.SetAnnotation(is, tenant.KeystoneAnnotation, nil)
		plugins.WarnRewritten(ctx, sent, is, tenant.KeystoneAnnotation)
		return
	}
	if value, has := is.GetAnnotations()[tenant.KeystoneAnnotation]; !has || value != "" {
		plugins.Keep(ctx, a, was, is, tenant.KeystoneAnnotation)
	}
}

// checkKeystone returns an error for a value that [keepKeystone] would replace. A webhook that runs
// after keepKeystone may have written such a value.
func checkKeystone(was, is metav1.Object) error {
	value, has := is.GetAnnotations()[tenant.KeystoneAnnotation]
	if value == "" && (has || was == nil) {
		return nil
	}
	if was == nil || plugins.Kept(was, is, tenant.KeystoneAnnotation) != nil {
		return errKeystone
	}
	return nil
}
