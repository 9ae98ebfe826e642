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

// Gateway is the handler. It is safe for concurrent use.
type Gateway struct {
	// stack is the one that authenticates for all clusters and follows what is revoked. Each cluster
	// has one of its own, which has the boundary and what callers have open there.
	stack          *stack.Stack
	metrics        *gatewayMetrics
	views          inFlight // of the clusters, by tenant
	writers        writers
	unknownCallers *unknownCallers
	omissions      omissions
	audits         *auditStreams // nil for none
	strangers      *counts       // requests whose caller is being authenticated
	refusals       *counts       // answers to callers that were not authenticated
	path           string        // of the configuration
	register       func(metrics.Registerable) error
	tracer         trace.TracerProvider // nil for none
	stopping       *stopping
	opened         time.Time
	known          atomic.Bool // all clusters have been, once
	following      sync.Mutex  // held while a generation is made
	committing     atomic.Bool // while parts of the next count already: what begins meanwhile is asked for again
	current        atomic.Pointer[generation]
	usage          *usage.Running
}

// generation is all that comes of one version of the configuration.
type generation struct {
	routes         map[string]*route
	root           *route // nil for none
	unknownCluster http.Handler
	view           http.Handler // nil for none
	auditing       *auditing
	settings       *configv1alpha1.Settings
}

var errNoSection = errors.New("the configuration has no gateway section")

// Options are what the configuration does not say.
type Options struct {
	// Register registers metrics. Required.
	Register func(metrics.Registerable) error
	// Tracer makes spans of requests; nil for none.
	Tracer trace.TracerProvider
}

// Open returns the gateway of the configuration at path, which is followed until ctx ends: a new
// version takes effect for all clusters, or, where anything in it is wrong, for none. That a
// cluster cannot be reached is nothing wrong.
func Open(ctx context.Context, path string, o Options) (*Gateway, error) {
	g := &Gateway{
		path:     path,
		register: o.Register,
		tracer:   o.Tracer,
		stopping: newStopping(),
		opened:   time.Now(),

		unknownCallers: newUnknownCallers(),
		strangers:      newCounts(strangersInAll, strangersByAddress),
		refusals:       newCounts(refusalsInAll, refusalsByAddress),
	}
	g.metrics = newGatewayMetrics(g)
	for _, m := range append(g.metrics.registerables(), g.metrics.streams.Registerables()...) {
		if err := g.register(m); err != nil {
			return nil, err
		}
	}
	file, err := reload.Open(path, func(data []byte) (*generation, error) {
		config, err := configv1alpha1.Decode(data)
		if err != nil {
			return nil, err
		}
		config.ResolvePaths(filepath.Dir(path))
		return g.follow(ctx, &config.Settings)
	}, func(path string, err error) { g.stack.Reloaded(ctx, path, err) })
	if err != nil {
		return nil, err
	}
	go file.Run(ctx)
	go g.followFiles(ctx)
	go g.writers.run(ctx)
	go wait.UntilWithContext(ctx, func(context.Context) { g.stack.ForgetTenants() }, forgetEvery)
	g.usage = g.stack.StartUsage(ctx, usage.Gateway, nil)
	return g, nil
}

// ClientCA returns the authorities that clients' certificates may be of, to be told in handshakes.
func (g *Gateway) ClientCA() dynamiccertificates.CAContentProvider { return g.stack.ClientCA }

// forgetEvery is the interval at which metrics of tenants are deleted that no cluster has any longer.
const forgetEvery = time.Minute

// hasTenant reports whether a cluster has a tenant, which may use it.
func (g *Gateway) hasTenant(id tenant.ID) bool {
	now := g.current.Load()
	if now == nil {
		return false
	}
	for _, c := range now.routes {
		if there, known := c.mapping.tenant(id); known && c.serves(id) && c.cluster.stack.HasTenant(there) {
			return true
		}
	}
	return false
}

// accepts asks the cluster that a request is for whether a credential may be
// one of a deleted tenant.
func accepts(ctx context.Context, id tenant.ID, issued time.Time) bool {
	x := proxyStateFrom(ctx)
	switch {
	case x == nil: // nobody's request
		return false
	case x.route == nil: // it gets to no cluster, and is shown those that would accept it
		x.issued = &issued
		return true
	}
	there, _ := x.route.mapping.tenant(id)
	return x.route.accepts(there, issued)
}

// accepts reports whether a credential of a tenant, by its name in the cluster, may be
// one of a deleted tenant.
func (c *route) accepts(there tenant.ID, issued time.Time) bool {
	return c.cluster.state.Server.Cluster.Tenants().Accepts(there, issued)
}

// withoutAccounts returns settings without the sources of service accounts, which are
// the clusters' own to know.
func withoutAccounts(s *configv1alpha1.Settings) *configv1alpha1.Settings {
	out := *s
	isAccounts := func(src configv1alpha1.Source) bool { return src.ServiceAccount != nil }
	out.Authentication.Sources = slices.DeleteFunc(slices.Clone(s.Authentication.Sources), isAccounts)
	return &out
}

// follow makes a version of the configuration count.
func (g *Gateway) follow(ctx context.Context, settings *configv1alpha1.Settings) (*generation, error) {
	g.following.Lock()
	defer g.following.Unlock()
	return g.apply(ctx, settings)
}

// apply is follow, for who has locked.
func (g *Gateway) apply(ctx context.Context, settings *configv1alpha1.Settings) (_ *generation, err error) {
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
				Accepts:            accepts,
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
	if err = g.openStreams(ctx, settings.Audit); err != nil {
		return nil, err
	}
	next := &generation{routes: map[string]*route{}, settings: settings}
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
	own := &route{gateway: g, shared: settings.Gateway} // to no cluster
	next.unknownCluster = own.unknownCluster(next.auditing)
	if settings.Gateway.Views.Clusters.Enabled {
		next.view = own.view(next)
	}
	g.commit(next, commits)
	files, _ := next.look()
	g.stack.Follows(g.path, slices.Collect(maps.Keys(files))...)
	return next, nil
}

// commit makes a generation count, part by part.
func (g *Gateway) commit(next *generation, parts []func()) {
	g.committing.Store(true) // and stays so where one of these panics
	for _, part := range parts {
		part()
	}
	g.swap(next)
	g.committing.Store(false)
}

// swap puts a generation in place of the one before, and ends what is open by
// what is not so any more.
func (g *Gateway) swap(next *generation) {
	before := g.current.Swap(next)
	if before == nil {
		return
	}
	next.auditing.replace(before.auditing)
	for name, old := range before.routes {
		now := next.routes[name]
		if !now.keepsSessions(old) {
			old.cluster.stack.EndSessions()
		}
		if now == nil || now.cluster != old.cluster {
			old.cluster.stop()
		}
		old.close()
	}
}

// endRevoked ends what revoked callers have open at all clusters. The gateway's stack follows the
// revocations alone: who is asked to open again what ended asks it first.
func (g *Gateway) endRevoked(revoked *authn.Revocations) {
	now := g.current.Load()
	if now == nil { // nobody has been let in
		return
	}
	for _, c := range now.routes {
		c.cluster.stack.EndRevoked(revoked)
	}
}

// newRoute returns the way to a cluster, to the one that is followed already, if it is the same.
func (g *Gateway) newRoute(
	ctx context.Context, config *configv1alpha1.GatewayCluster, settings *configv1alpha1.Settings, a *auditing,
) (c *route, commit, discard func(), err error) {
	c = &route{
		name:    config.Name,
		config:  config,
		shared:  settings.Gateway,
		gateway: g,
	}
	reader, err := load(config.Reader.KubeConfigFile)
	if err != nil {
		return nil, nil, nil, err
	}
	sender, err := load(config.Impersonator.KubeConfigFile)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := checkSameCluster(reader.Config, sender.Config); err != nil {
		return nil, nil, nil, err
	}
	c.files = map[string]fingerprint{
		config.Reader.KubeConfigFile:       reader.whole,
		config.Impersonator.KubeConfigFile: sender.whole,
	}
	if c.tenants, err = tenant.ParseSet(config.Tenants); err != nil {
		return nil, nil, nil, err
	}
	if c.mapping, err = newMapping(config); err != nil {
		return nil, nil, nil, err
	}
	if err := c.reach(sender.Config); err != nil {
		return nil, nil, nil, err
	}
	if c.own, err = newOwnNames(config.Name, reader.Config, sender.Config); err != nil {
		return nil, nil, nil, err
	}
	var keep, drop func()
	key := keyOf(reader.text, config, settings)
	before := g.current.Load()
	if before != nil && before.routes[config.Name] != nil && before.routes[config.Name].cluster.key == key {
		c.cluster = before.routes[config.Name].cluster
		if keep, drop, err = c.cluster.stack.Prepare(ctx, settings); err != nil {
			return nil, nil, nil, err
		}
	} else {
		if c.cluster, err = newCluster(ctx, key, reader.Config, config, settings, g.stack); err != nil {
			return nil, nil, nil, err
		}
		keep, drop = func() {}, c.cluster.stop
	}
	if err := c.build(a); err != nil {
		drop()
		return nil, nil, nil, err
	}
	commit = func() {
		c.cluster.route.Store(c)
		c.cluster.turns.Resize(*c.shared.Limits.Concurrent, *c.shared.Limits.Queued)
		keep()
	}
	return c, commit, func() { drop(); c.close() }, nil
}

// reach makes the transports to the cluster, by the impersonator's address of it.
func (c *route) reach(sender *rest.Config) (err error) {
	if c.server, err = serverOf(sender.Host); err != nil {
		return err
	}
	if c.impersonator, err = newTransports(sender); err != nil {
		return err
	}
	c.anonymous, err = newTransports(rest.AnonymousClientConfig(sender))
	return err
}

// keyOf tells clusters apart: what is followed of the cluster hangs on it.
func keyOf(reader fingerprint, c *configv1alpha1.GatewayCluster, settings *configv1alpha1.Settings) clusterKey {
	return clusterKey{
		reader:    reader,
		namespace: c.Namespace,
		shape: fmt.Sprint(settings.Service.StaleAfter.Duration, *settings.Authorization.Grants.Enabled,
			*settings.Admission.Quota.Enabled),
	}
}

// goawayAfter is how old a connection has to be before its caller is sent to another: whatever a
// busy one has to ask meanwhile waits for the handshake, and a caller with a thousand requests a
// second would be sent on every second.
const goawayAfter = time.Minute

// ServeHTTP implements [http.Handler].
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	leave, ok := g.strangers.enter(r.RemoteAddr)
	if !ok {
		g.metrics.countTurnedAway()
		turnAway(w, r)
		return
	}
	defer leave()
	withoutUnread(r)
	growStack(r.ProtoMajor)
	serving.Recovered(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.serve(w, r, leave)
	})).ServeHTTP(w, r)
}

// serve answers a request. It calls decided when the caller is known, or known to be refused.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, decided func()) {
	began, now := time.Now(), g.current.Load()
	answer, timed, done := g.writers.writes(w)
	x := &proxyState{path: r.URL.EscapedPath(), left: r.Context().Err, control: http.NewResponseController(w)}
	x.authenticated = func() { x.known = true; decided() }
	defer func() { // of answers that are broken off, too
		g.metrics.count(x, timed.code, time.Since(began))
		done()
	}()
	if r.URL.IsAbs() {
		x.target = r.RequestURI
	}
	handler, rest, refused := now.accept(x, r)
	if refused != nil {
		respond(answer, r, refused)
		decided()
		g.finish(timed, r)
		return
	}
	if r.ContentLength != 0 {
		// A body that comes slowly keeps a connection no longer than a request may take, of
		// somebody who is not known, too.
		_ = x.control.SetReadDeadline(began.Add(now.settings.Gateway.Limits.Timeout.Duration))
	}
	ctx := authn.WithExpiry(rest.Context(), &x.expiry)
	rest = rest.WithContext(context.WithValue(ctx, proxyStateKey{}, x))
	for _, name := range forged {
		rest.Header.Del(name)
	}
	if isOfPage(r) {
		rest = ofPage(rest)
	}
	goaway := rand.N(1_000_000) < *now.settings.Gateway.Limits.GoawayPerMillion // #nosec G404 -- spreads load
	if r.ProtoMajor == 2 && goaway && serving.ConnectionAge(r.Context()) > goawayAfter {
		w.Header().Set("Connection", "close") // which is a GOAWAY
	}
	handler.ServeHTTP(answer, rest)
	if !x.known {
		decided()
		g.finish(timed, r)
	}
}

// accept returns who answers a request, and what is left of it, or why
// nobody does, whoever it is of.
func (now *generation) accept(
	x *proxyState, r *http.Request,
) (handler http.Handler, rest *http.Request, refused *apierrors.StatusError) {
	if err := checkRaw(r); err != nil {
		return nil, nil, err
	}
	if isOfPage(r) && !bearsToken(r) {
		return nil, nil, forbidden(errPage)
	}
	c, handler, rest, err := now.find(r)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	x.route = c
	return handler, rest, nil
}

// find returns who answers a request, and what is left of it: the way to a cluster too, where it
// is for one that is known.
func (now *generation) find(r *http.Request) (c *route, handler http.Handler, rest *http.Request, err error) {
	if rest, found := cutView(r); found && now.view != nil {
		return nil, now.view, rest, nil
	}
	name, rest, err := cutCluster(r)
	if err != nil {
		return nil, nil, nil, err
	}
	if c = now.root; name != "" {
		c = now.routes[name]
	}
	if c == nil {
		return nil, now.unknownCluster, rest, nil
	}
	if c.objects != nil && name != "" {
		if below, found := cutView(rest); found {
			return c, c.objects, below, nil
		}
	}
	return c, c.handler, rest, nil
}

// Collector tells of each cluster whether it is known as it is now.
func (g *Gateway) Collector() metrics.StableCollector { return g.metrics.current }

// Clusters returns the names of the clusters in force.
func (g *Gateway) Clusters() []string { return slices.Sorted(maps.Keys(g.current.Load().routes)) }
