package kubetenant

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/authn/frontproxy"
	"github.com/kubetenant/kubetenant/authn/oidc"
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// generation is all that comes of one version of the configuration.
type generation struct {
	authenticator authenticator.Request
	boundary      *authz.Boundary
	olderPaths    bool // /api/v1/tenants/<id>/... is read
	plugins       *configuredPlugins
	defaultQuota  corev1.ResourceList // of tenants that have none
	clientCAs     []func() []byte     // of the x509 sources
	issuers       oidc.Clients
	compiler      func() authenticationcel.Compiler // for the issuers' claims
	stop          context.CancelFunc
}

// builder builds generations for one cluster.
type builder struct {
	Cluster
	owners    *authz.Owners
	metrics   *reloadMetrics
	counters  *authn.Metrics
	decisions *decisionMetrics
	cas       *clientCAs
	compiler  func() authenticationcel.Compiler
	grants    *Grants
	sessions  *authz.Sessions
}

func newBuilder(c Cluster) (*builder, error) {
	if c.Namespaces == nil {
		return nil, errors.New("no cache of namespaces")
	}
	b := &builder{Cluster: c, metrics: newReloadMetrics(), counters: authn.NewMetrics(), decisions: newDecisionMetrics(), cas: &clientCAs{},
		compiler: sync.OnceValue(authenticationcel.NewDefaultCompiler), sessions: &authz.Sessions{}}
	var live func(context.Context, string) (*corev1.Namespace, error)
	if c.Client != nil {
		live = func(ctx context.Context, name string) (*corev1.Namespace, error) {
			return c.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		}
	}
	b.owners = authz.NewOwners(c.Namespaces.Get, live)
	if c.Grants != nil {
		b.grants = newGrants(c.Grants, b.now, b.sessions)
	}
	if c.ClientCA != nil {
		if err := frontproxy.CheckAuthorities(c.RequestHeader, c.ClientCA.CurrentCABundleContent()); err != nil {
			return nil, err
		}
	}
	if c.Register != nil {
		for _, m := range slices.Concat(b.counters.Registerables(), b.decisions.registerables(), []metrics.Registerable{b.metrics.reloads}) {
			if err := c.Register(m); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}

func (b *builder) now() time.Time {
	if b.Now != nil {
		return b.Now()
	}
	return time.Now()
}

// report logs and counts what became of a new version of a file.
func (b *builder) report(ctx context.Context) reload.Report {
	return func(path string, err error) {
		b.metrics.count(path, err)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Refused a new version of a file: the one before stays", "path", path)
			return
		}
		klog.FromContext(ctx).Info("Took over a new version of a file", "path", path)
	}
}

// build returns the generation of a valid configuration. Its files are followed until ctx ends or
// the generation is stopped.
func (b *builder) build(ctx context.Context, config *v1alpha1.Settings) (_ *generation, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			stop()
		}
	}()
	g := &generation{stop: stop, compiler: sync.OnceValue(func() authenticationcel.Compiler { return oidc.NewCompiler(b.compiler()) })}
	names := systemNames(config)
	b.decisions.limit(*config.Service.TenantMetrics)
	g.olderPaths = config.Authorization.OlderTenantPaths
	var revoked func() *authn.Revocations
	if r := config.Authentication.Revocation; r != nil && !b.Decides {
		if revoked, err = b.revocations(ctx, r.Path); err != nil {
			return nil, err
		}
	}
	if g.boundary, err = b.boundary(ctx, &config.Authorization, names, revoked); err != nil {
		return nil, err
	}
	subject := g.boundary.Subjects.Of
	chain := authn.Chain{Audiences: b.APIAudiences, BuiltIn: b.Authenticator, Revoked: revoked, Subject: subject, Metrics: b.counters, Now: b.Now}
	var problems []error
	for i := range config.Authentication.Sources {
		src := &config.Authentication.Sources[i]
		if b.Decides || b.Webhook && !isOfTokens(src) {
			continue
		}
		built, err := b.source(ctx, config, src, names, g)
		if err != nil {
			problems = append(problems, sourceError(src.Name, err))
			continue
		}
		if src.FrontProxy != nil {
			chain.FrontProxy = &built
			continue
		}
		chain.Sources = append(chain.Sources, built)
	}
	if len(problems) > 0 {
		return nil, utilerrors.NewAggregate(problems)
	}
	g.authenticator = authn.New(chain)
	if g.plugins, err = b.admission(config, subject, names); err != nil {
		return nil, err
	}
	if *config.Admission.Quota.Enabled {
		g.defaultQuota = config.Admission.Quota.Default
	}
	for _, text := range config.Warnings() {
		klog.FromContext(ctx).Info("The configuration may not do what it looks like", "warning", text)
	}
	return g, nil
}

// isOfTokens reports whether a source is one of bearer tokens that a server does not take for its own.
func isOfTokens(src *v1alpha1.Source) bool {
	return src.TokenFile != nil || src.OIDC != nil || src.Keystone != nil || src.Webhook != nil
}

// systemNames are the names that only the system tenant's callers may bear, of the whole
// configuration: what one source takes for the system's, no other may hand out.
func systemNames(config *v1alpha1.Settings) *tenant.SystemNames {
	s := config.Authorization.SystemSubjects
	names := &tenant.SystemNames{Users: s.Users, UserPrefixes: s.UserPrefixes, Groups: s.Groups}
	for _, src := range config.Authentication.Sources {
		if src.X509 != nil {
			names.Organizations = append(names.Organizations, src.X509.SystemOrganizations...)
		}
	}
	return names
}

func groupResources(list []v1alpha1.GroupResource) []schema.GroupResource {
	out := make([]schema.GroupResource, 0, len(list))
	for _, r := range list {
		out = append(out, schema.GroupResource{Group: r.Group, Resource: r.Resource})
	}
	return out
}
