package kubetenant

import (
	"os"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Published returns the effective configuration, to be published (see [cluster.PublishConfiguration]). The error is about
// a file beside it that cannot be read now.
//
// [cluster.PublishConfiguration]: https://pkg.go.dev/github.com/kubetenant/kubetenant/cluster#PublishConfiguration
func (s *Stack) Published() (*v1alpha1.Published, error) {
	g := s.current.Load()
	settings, err := g.config.Complete() // a copy
	if err != nil {
		return nil, err
	}
	if s.shared.Authorization.RBAC == nil { // as where the server keeps RBAC to itself
		settings.Authorization.RBAC.Evaluator = v1alpha1.EvaluatorUpstream
	}
	p := &v1alpha1.Published{Hash: g.hash, Settings: *settings}
	read := func(into *string, path string) {
		data, failed := os.ReadFile(path) // #nosec G304 -- the configuration names it
		if failed != nil {
			err = failed
		}
		*into = string(data)
	}
	if r := settings.Authentication.Revocation; r != nil {
		read(&p.Revocation, r.Path)
	}
	if a := settings.Authorization.ABAC; a != nil {
		read(&p.Policy, a.Path)
	}
	return p, err
}
