package simulator

import (
	"context"

	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant"
)

// Admit asks a stack's plugins about a write as a server does: each that mutates, then each that validates. The error is
// that of the first that refuses. What they put into the object is in the attributes' object afterwards.
func Admit(ctx context.Context, stack *kubetenant.Stack, a admission.Attributes) error {
	for _, p := range stack.Admission {
		if m, mutates := p.Interface.(admission.MutationInterface); mutates && p.Handles(a.GetOperation()) {
			if err := m.Admit(ctx, a, nil); err != nil {
				return err
			}
		}
	}
	for _, p := range stack.Admission {
		if v, validates := p.Interface.(admission.ValidationInterface); validates && p.Handles(a.GetOperation()) {
			if err := v.Validate(ctx, a, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
