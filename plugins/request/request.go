// Package request records the object that a client sent. Other plugins then tell it from what the
// plugins, policies and webhooks of the cluster changed.
package request

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/workload"
)

// Name of the plugin.
const Name = "TenantRequest"

// Options configure the plugin.
type Options struct {
	// Kinds are recorded in addition to Namespaces and the built-in kinds that describe pods.
	Kinds map[schema.GroupKind]bool
}

// New returns the plugin. It changes nothing and refuses nothing. It MUST run before every other
// plugin that changes objects.
func New(o Options) admission.MutationInterface {
	return &plugin{admission.NewHandler(admission.Create, admission.Update), o}
}

type plugin struct {
	*admission.Handler
	Options
}

// Admit implements [admission.MutationInterface]. A server calls it again after a webhook changed
// the object. The first record of the write stays then.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if again := a.GetReinvocationContext(); again != nil && again.IsReinvoke() {
		return nil
	}
	if p.governs(a) {
		plugins.RecordRequested(ctx, a)
	}
	return nil
}

// governs reports whether a plugin may ask for the object of a write.
func (p *plugin) governs(a admission.Attributes) bool {
	if a.GetResource().GroupResource() == corev1.Resource("namespaces") {
		return true // every subresource stores labels and annotations
	}
	if a.GetSubresource() == "status" {
		return false
	}
	kind := a.GetKind().GroupKind()
	_, recorded := p.Kinds[kind]
	return recorded || workload.IsBuiltIn(kind)
}
