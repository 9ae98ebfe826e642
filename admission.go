package kubetenant

import (
	"context"
	"io"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/plugins/grant"
	"github.com/kubetenant/kubetenant/plugins/label"
	"github.com/kubetenant/kubetenant/plugins/namespace"
	"github.com/kubetenant/kubetenant/plugins/restriction"
)

// Plugin is one admission plugin of a [Stack].
type Plugin struct {
	Name string
	admission.Interface
}

// Register makes the plugins known to a server's admission.
func Register(all []Plugin, into *admission.Plugins) {
	for _, p := range all {
		into.Register(p.Name, func(io.Reader) (admission.Interface, error) { return p.Interface, nil })
	}
}

// plugins returns the plugins, which follow the stack's generations.
func (s *Stack) plugins(grantors authorizer.Authorizer) []Plugin {
	return []Plugin{
		{namespace.Name, namespacePlugin{s}},
		{restriction.Name, restrictionPlugin{s}},
		{grant.Name, grant.New(grant.Options{Subject: s.subject, Owner: s.NamespaceOwner, Read: readGrant, Authorizer: grantors})},
		{label.Name, label.New(s.NamespaceOwner)}, // last, so that it sees what the others changed
	}
}

// namespacePlugin is the current generation's.
type namespacePlugin struct{ stack *Stack }

func (p namespacePlugin) now() namespace.Interface { return p.stack.current.Load().namespace }

func (p namespacePlugin) Handles(op admission.Operation) bool { return p.now().Handles(op) }

func (p namespacePlugin) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return p.now().Admit(ctx, a, o)
}

func (p namespacePlugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return p.now().Validate(ctx, a, o)
}

// restrictionPlugin is the current generation's.
type restrictionPlugin struct{ stack *Stack }

func (p restrictionPlugin) now() admission.ValidationInterface {
	return p.stack.current.Load().restriction
}

func (p restrictionPlugin) Handles(op admission.Operation) bool { return p.now().Handles(op) }

func (p restrictionPlugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return p.now().Validate(ctx, a, o)
}
