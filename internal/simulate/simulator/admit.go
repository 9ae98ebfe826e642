// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"context"

	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/internal/stack"
)

// Admit runs admission plugins for a write in the order of a server: first all mutating plugins,
// then all validating plugins. It returns the error of the first plugin that rejects the write.
// Mutating plugins change the object in the attributes.
func Admit(ctx context.Context, plugins []stack.Plugin, a admission.Attributes) error {
	for _, p := range plugins {
		if m, mutates := p.Interface.(admission.MutationInterface); mutates && p.Handles(a.GetOperation()) {
			if err := m.Admit(ctx, a, nil); err != nil {
				return err
			}
		}
	}
	for _, p := range plugins {
		if v, validates := p.Interface.(admission.ValidationInterface); validates && p.Handles(a.GetOperation()) {
			if err := v.Validate(ctx, a, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
