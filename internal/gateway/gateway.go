// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/authn"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/internal/serving"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/internal/usage"
	"github.com/kubetenant/kubetenant/tenant"
)

// Gateway is the HTTP handler of a gateway. It is safe for concurrent use.
type Gateway struct {
	// stack authenticates the callers of all clusters with the configured sources, and watches the
	// revocations. Each cluster also has its own stack, with the cluster's boundary and sessions.
	stack                 *stack.Stack
	metrics               *gatewayMetrics
	views                 inFlight // concurrent requests for the clusters view, keyed by tenant
	writers               writers
	unauthenticatedEvents *unauthenticatedEventLimits
	omissions             omissions
	audits                *auditStreams  // nil if no audit stream is configured
	unauthenticated       *requestLimits // requests whose caller is being authenticated
	rejections            *requestLimits // responses to callers that were not authenticated
	path                  string         // path of the configuration file
	register              func(metrics.Registerable) error
	tracer                trace.TracerProvider // nil if requests are not traced
	stopping              *stopping
	started               time.Time
	synced                atomic.Bool // whether the caches of all clusters have synced once
	applyMu               sync.Mutex  // held while a snapshot is built
	committing            atomic.Bool // whether a commit has begun but not finished; requests then get 503
	current               atomic.Pointer[snapshot]
	usage                 *usage.Running
}

// snapshot is one version of the configuration and everything that was built from it.
type snapshot struct {
	routes         map[string]*route
	root           *route // the cluster for paths that name no cluster, or nil
	unknownCluster http.Handler
	view           http.Handler // serves the clusters view; nil if that view is disabled
	auditing       *auditing
	settings       *configv1alpha1.Settings
}

var errNoSection = errors.New("the configuration has no gateway section")

// Options are the settings that are not in the configuration file.
type Options struct {
	// Register registers metrics. It is required.
	Register func(metrics.Registerable) error
	// Tracer creates a span for each request. If nil, requests are not traced.
	Tracer trace.TracerProvider
}

// Open returns the gateway for the configuration file at path, and watches the file until ctx ends.
// If a new version of the file is valid, it applies to all clusters. Otherwise, it applies to no
// cluster. Open does not return an error if a cluster cannot be reached.
func Open(ctx context.Context, path string, o Options) (*Gateway, error) {
	g := &Gateway{
		path:     path,
		register: o.Register,
		tracer:   o.Tracer,
		stopping: newStopping(),
		started:  time.Now(),

		unauthenticatedEvents: newUnauthenticatedEventLimits(),
		unauthenticated:       newRequestLimits(maxUnauthenticated, maxUnauthenticatedPerAddress),
		rejections:            newRequestLimits(maxRejections, maxRejectionsPerAddress),
	}
	g.metrics = newGatewayMetrics(g)
	for _, m := range append(g.metrics.registerables(), g.metrics.streams.Registerables()...) {
		if err := g.register(m); err != nil {
			return nil, err
		}
	}
	file, err := reload.Open(path, func(data []byte) (*snapshot, error) {
		config, err := configv1alpha1.Decode(data)
		if err != nil {
			return nil, err
		}
		config.ResolvePaths(filepath.Dir(path))
		return g.applySettings(ctx, &config.Settings)
	}, func(path string, err error) { g.stack.RecordReload(ctx, path, err) })
	if err != nil {
		return nil, err
	}
	go file.Run(ctx)
	go g.watchFiles(ctx)
	go g.writers.run(ctx)
	go wait.UntilWithContext(ctx, func(context.Context) { g.stack.ForgetTenants() }, forgetInterval)
	g.usage = g.stack.StartUsage(ctx, usage.Gateway, nil)
	return g, nil
}

// ClientCA returns the certificate authorities of client certificates, which the server advertises
// in the TLS handshake.
func (g *Gateway) ClientCA() dynamiccertificates.CAContentProvider { return g.stack.ClientCA }

// forgetInterval is the interval at which the gateway deletes the metrics of tenants that exist in
// no cluster.
const forgetInterval = time.Minute

// hasTenant reports whether a tenant exists, or may exist, in at least one cluster that its callers
// may use.
func (g *Gateway) hasTenant(id tenant.ID) bool {
	current := g.current.Load()
	if current == nil {
		return false
	}
	for _, c := range current.routes {
		if mapped, ok := c.mapping.tenant(id); ok && c.allowsTenant(id) && c.cluster.stack.HasTenant(mapped) {
			return true
		}
	}
	return false
}

// acceptsIssueTime reports whether the cluster of the request in ctx accepts a credential of the
// given tenant that was issued at the given time. A credential that is older than the tenant may
// belong to a deleted tenant with the same name. See [tenant.Lineage.Accepts].
func acceptsIssueTime(ctx context.Context, id tenant.ID, issued time.Time) bool {
	x := proxyStateFrom(ctx)
	switch {
	case x == nil: // not a request to the gateway
		return false
	case x.route == nil: // a request for the clusters view or an unknown cluster; the view checks the time
		x.issued = &issued
		return true
	}
	mapped, _ := x.route.mapping.tenant(id)
	return x.route.acceptsIssueTime(mapped, issued)
}

// acceptsIssueTime reports whether the cluster accepts a tenant's credential that was issued at the
// given time. mapped is the name of the tenant in the cluster. See [tenant.Lineage.Accepts].
func (c *route) acceptsIssueTime(mapped tenant.ID, issued time.Time) bool {
	return c.cluster.state.Server.Cluster.Tenants().Accepts(mapped, issued)
}

// withoutAccounts returns a copy of the settings without the sources of kind serviceAccount. Each
// cluster authenticates its own service accounts, see [accounts].
func withoutAccounts(s *configv1alpha1.Settings) *configv1alpha1.Settings {
	out := *s
	isAccounts := func(src configv1alpha1.Source) bool { return src.ServiceAccount != nil }
	out.Authentication.Sources = slices.DeleteFunc(slices.Clone(s.Authentication.Sources), isAccounts)
	return &out
}

// applySettings builds the snapshot of a version of the configuration and makes it the current one.
func (g *Gateway) applySettings(ctx context.Context, settings *configv1alpha1.Settings) (*snapshot, error) {
	g.applyMu.Lock()
	defer g.applyMu.Unlock()
	return g.applySettingsLocked(ctx, settings)
}

// applySettingsLocked is applySettings without locking. The caller MUST hold g.applyMu.
func (g *Gateway) applySettingsLocked(ctx context.Context, settings *configv1alpha1.Settings) (_ *snapshot, err error) {
	if settings.Gateway == nil {
		return nil, errNoSection
	}
	settings = withoutAccounts(settings)
	var commits, discards []func()
	defer func() {
		if err != nil {
			for _, discard := range discards {
				discard()
			}
		}
	}()
	if g.stack == nil {
		if g.stack, err = stack.New(ctx, settings, stack.Server{
			Register: g.register,
			Cluster:  stack.NoCluster(),
			Exists:   g.hasTenant,
			Authentication: stack.Authentication{
				APIAudiences:       settings.Service.APIAudiences,
				Accepts:            acceptsIssueTime,
				RevocationsChanged: g.endRevoked,
			},
		}); err != nil {
			return nil, err
		}
	} else {
		commit, discard, err := g.stack.Prepare(ctx, settings)
		if err != nil {
			return nil, err
		}
		commits, discards = append(commits, commit), append(discards, discard)
	}
	if err = g.openAuditStreams(ctx, settings.Audit); err != nil {
		return nil, err
	}
	next := &snapshot{routes: map[string]*route{}, settings: settings}
	if next.auditing, err = g.openAuditing(settings.Gateway.Audit); err != nil {
		return nil, err
	}
	discards = append(discards, func() { next.auditing.discard(g.current.Load()) })
	for i := range settings.Gateway.Clusters {
		c, commit, discard, err := g.newRoute(ctx, &settings.Gateway.Clusters[i], settings, next.auditing)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", settings.Gateway.Clusters[i].Name, err)
		}
		commits, discards = append(commits, commit), append(discards, discard)
		if next.routes[c.name] = c; c.config.Root {
			next.root = c
		}
	}
	own := &route{gateway: g, shared: settings.Gateway} // has no cluster
	next.unknownCluster = own.unknownCluster(next.auditing)
	if settings.Gateway.Views.Clusters.Enabled {
		next.view = own.view(next)
	}
	g.commit(next, commits)
	files, _ := next.changedFiles()
	g.stack.SetFollowedFiles(g.path, slices.Collect(maps.Keys(files))...)
	return next, nil
}

// commit calls the commit functions of the parts of a snapshot one by one. It then makes the
// snapshot the current one.
func (g *Gateway) commit(next *snapshot, parts []func()) {
	g.committing.Store(true) // remains true if a part panics, so that requests get 503
	for _, part := range parts {
		part()
	}
	g.swap(next)
	g.committing.Store(false)
}

// swap makes next the current snapshot. It ends the sessions in each cluster whose new route does
// not keep the sessions of the previous route, see [route.keepsSessions].
func (g *Gateway) swap(next *snapshot) {
	before := g.current.Swap(next)
	if before == nil {
		return
	}
	next.auditing.replace(before.auditing)
	for name, old := range before.routes {
		replacement := next.routes[name]
		if !replacement.keepsSessions(old) {
			old.cluster.stack.EndSessions()
		}
		if replacement == nil || replacement.cluster != old.cluster {
			old.cluster.stop()
		}
		old.close()
	}
}

// endRevoked ends the sessions of revoked callers in all clusters. The gateway's stack calls it
// when the revocations change. New requests are checked against the same revocations, so a revoked
// caller cannot reopen its session.
func (g *Gateway) endRevoked(revoked *authn.Revocations) {
	current := g.current.Load()
	if current == nil { // no request has been accepted yet
		return
	}
	for _, c := range current.routes {
		c.cluster.stack.EndRevoked(revoked)
	}
}

// newRoute returns the route to a cluster. If the current snapshot has a cluster with the same
// name and an equal [clusterKey], the route reuses that cluster and its caches. commit makes the
// route take effect, and discard releases it.
func (g *Gateway) newRoute(
	ctx context.Context, config *configv1alpha1.GatewayCluster, settings *configv1alpha1.Settings, a *auditing,
) (c *route, commit, discard func(), err error) {
	c = &route{
		name:    config.Name,
		config:  config,
		shared:  settings.Gateway,
		gateway: g,
	}
	reader, err := loadKubeconfig(config.Reader.KubeConfigFile)
	if err != nil {
		return nil, nil, nil, err
	}
	sender, err := loadKubeconfig(config.Impersonator.KubeConfigFile)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := checkSameCluster(reader.Config, sender.Config); err != nil {
		return nil, nil, nil, err
	}
	c.files = map[string]fingerprint{
		config.Reader.KubeConfigFile:       reader.fullDigest,
		config.Impersonator.KubeConfigFile: sender.fullDigest,
	}
	if c.tenants, err = tenant.ParseSet(config.Tenants); err != nil {
		return nil, nil, nil, err
	}
	if c.mapping, err = newMapping(config); err != nil {
		return nil, nil, nil, err
	}
	if err := c.createTransports(sender.Config); err != nil {
		return nil, nil, nil, err
	}
	if c.gatewayNames, err = newGatewayNames(config.Name, reader.Config, sender.Config); err != nil {
		return nil, nil, nil, err
	}
	var commitStack, discardStack func()
	key := keyOf(reader.fileDigest, config, settings)
	before := g.current.Load()
	if before != nil && before.routes[config.Name] != nil && before.routes[config.Name].cluster.key == key {
		c.cluster = before.routes[config.Name].cluster
		if commitStack, discardStack, err = c.cluster.stack.Prepare(ctx, settings); err != nil {
			return nil, nil, nil, err
		}
	} else {
		if c.cluster, err = newCluster(ctx, key, reader.Config, config, settings, g.stack); err != nil {
			return nil, nil, nil, err
		}
		commitStack = func() {}
		discardStack = c.cluster.stop
	}
	if err := c.build(a); err != nil {
		discardStack()
		return nil, nil, nil, err
	}
	commit = func() {
		c.cluster.route.Store(c)
		c.cluster.queue.Resize(*c.shared.Limits.Concurrent, *c.shared.Limits.Queued)
		commitStack()
	}
	return c, commit, func() { discardStack(); c.close() }, nil
}

// createTransports creates the transports to the cluster. The impersonator's kubeconfig contains
// the address of the cluster.
func (c *route) createTransports(sender *rest.Config) (err error) {
	if c.server, err = serverOf(sender.Host); err != nil {
		return err
	}
	if c.impersonator, err = newTransports(sender); err != nil {
		return err
	}
	c.anonymous, err = newTransports(rest.AnonymousClientConfig(sender))
	return err
}

// keyOf returns the key of a cluster. If the key changes, the gateway replaces the [cluster] with
// a new one, whose caches are empty.
func keyOf(reader fingerprint, c *configv1alpha1.GatewayCluster, settings *configv1alpha1.Settings) clusterKey {
	return clusterKey{
		reader:    reader,
		namespace: c.Namespace,
		settings: fmt.Sprint(settings.Service.StaleAfter.Duration, *settings.Authorization.Grants.Enabled,
			*settings.Admission.Quota.Enabled),
	}
}

// goawayMinAge is the minimum age of a connection before the gateway sends a GOAWAY frame, which
// requests that the client open another connection. The requests of a busy client wait during the
// handshake. With the default of limits.goawayPerMillion (1000) and without a minimum age, a client
// that sends a thousand requests a second would reconnect every second.
const goawayMinAge = time.Minute

// ServeHTTP implements [http.Handler].
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	leave, ok := g.unauthenticated.enter(r.RemoteAddr)
	if !ok {
		g.metrics.countOverLimit()
		rejectOverLimit(w, r)
		return
	}
	defer leave()
	removeUnreadHeaders(r)
	serving.WithPanicRecovery(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.serve(w, r, leave)
	})).ServeHTTP(w, r)
}

// serve handles a request. It calls decided as soon as the caller is authenticated or the request
// is rejected.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, decided func()) {
	began := time.Now()
	current := g.current.Load()
	answer, timed, done := g.writers.track(w)
	x := &proxyState{path: r.URL.EscapedPath(), callerErr: r.Context().Err, control: http.NewResponseController(w)}
	x.authenticated = func() { x.isAuthenticated = true; decided() }
	defer func() { // also if a panic aborts the response
		g.metrics.count(x, timed.code, time.Since(began))
		done()
	}()
	if r.URL.IsAbs() {
		x.target = r.RequestURI
	}
	handler, rest, refused := current.accept(x, r)
	if refused != nil {
		respond(answer, r, refused)
		decided()
		g.flushRejection(timed, r)
		return
	}
	if r.ContentLength != 0 {
		// A client that sends its body slowly must not hold a connection for longer than
		// limits.timeout. This also applies before the client is authenticated.
		_ = x.control.SetReadDeadline(began.Add(current.settings.Gateway.Limits.Timeout.Duration))
	}
	ctx := authn.WithExpiry(rest.Context(), &x.expiry)
	rest = rest.WithContext(context.WithValue(ctx, proxyStateKey{}, x))
	for _, name := range ignoredHeaders {
		rest.Header.Del(name)
	}
	if isFromPage(r) {
		rest = withoutBrowserCredentials(rest)
	}
	goaway := rand.N(1_000_000) < *current.settings.Gateway.Limits.GoawayPerMillion // #nosec G404 -- spreads load
	if r.ProtoMajor == 2 && goaway && serving.ConnectionAge(r.Context()) > goawayMinAge {
		w.Header().Set("Connection", "close") // becomes a GOAWAY frame
	}
	handler.ServeHTTP(answer, rest)
	if !x.isAuthenticated {
		decided()
		g.flushRejection(timed, r)
	}
}

// accept returns the handler of a request, and the request without the cluster part of its path. If
// refused is not nil, the gateway rejects the request without authenticating its caller.
func (s *snapshot) accept(
	x *proxyState, r *http.Request,
) (handler http.Handler, rest *http.Request, refused *apierrors.StatusError) {
	if err := checkRaw(r); err != nil {
		return nil, nil, err
	}
	if isFromPage(r) && !hasToken(r) {
		return nil, nil, forbidden(errPage)
	}
	c, handler, rest, err := s.find(r)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	x.route = c
	return handler, rest, nil
}

// find returns the handler of a request, and the request without the cluster part of its path. If
// the request is for a configured cluster, it also returns the cluster's route.
func (s *snapshot) find(r *http.Request) (c *route, handler http.Handler, rest *http.Request, err error) {
	if rest, found := cutView(r); found && s.view != nil {
		return nil, s.view, rest, nil
	}
	name, rest, err := cutCluster(r)
	if err != nil {
		return nil, nil, nil, err
	}
	if c = s.root; name != "" {
		c = s.routes[name]
	}
	if c == nil {
		return nil, s.unknownCluster, rest, nil
	}
	if c.objects != nil && name != "" {
		if below, found := cutView(rest); found {
			return c, c.objects, below, nil
		}
	}
	return c, c.handler, rest, nil
}

// Collector returns the collector of a metric that reports whether the gateway's data about each
// cluster is current.
func (g *Gateway) Collector() metrics.StableCollector { return g.metrics.current }

// Clusters returns the names of the clusters in the current configuration.
func (g *Gateway) Clusters() []string { return slices.Sorted(maps.Keys(g.current.Load().routes)) }
