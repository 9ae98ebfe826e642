// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"net/http"
	"strconv"
	"time"

	oteltrace "go.opentelemetry.io/otel/trace"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/internal/serving"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/internal/turns"
)

// Paths of the reviews.
const (
	AuthenticatePath = "/authenticate"
	AuthorizePath    = "/authorize"
	MutatePath       = "/admit/mutate"
	ValidatePath     = "/admit/validate"
)

// Options configure a service. Stack, Limits, OwnerOf and Register are required.
type Options struct {
	Stack  *stack.Stack
	Limits Limits
	// OwnerOf returns the name of the tenant that owns a namespace, from a cache, or "". The result
	// only determines the order of requests in a queue.
	OwnerOf func(namespace string) string
	// Live and Ready are the health checks of /livez and /readyz.
	Live, Ready []healthz.HealthChecker
	// Register registers the service's metrics.
	Register func(metrics.Registerable) error
	// Tracer records spans. It may be nil.
	Tracer oteltrace.TracerProvider
	// CheckConfiguration returns the problems of the configuration in the data of a Secret. The
	// problems MUST NOT contain a credential. CheckConfiguration is not called concurrently. If
	// nil, the service does not serve [ConfigurationPath]. It MUST be nil if clients that are not
	// kube-apiserver can send reviews.
	CheckConfiguration func(ctx context.Context, data map[string][]byte) ([]string, error)
	// Audit handles [AuditPath]. If nil, the path does not exist. Only clients with a verified
	// certificate can use the path. Other clients get 404. If Anonymous is set, every client gets
	// 404.
	Audit *Audit
	// Anonymous configures a service that does not authenticate its clients. Such a service handles
	// only AdmissionReviews. If nil, the service authenticates its clients.
	Anonymous *Anonymous
}

// reviewKind contains the answerer of a path and the memory for its requests, in bytes.
type reviewKind struct {
	answer answerer
	memory int64
}

// New returns the handler. Unless Anonymous is set, a client can look up the user of any token and
// the permissions of any user. Clients MUST therefore be authenticated first, as [serving.Server]
// does.
func New(o Options) (http.Handler, error) {
	m := newServiceMetrics()
	for _, r := range m.registerables() {
		if err := o.Register(r); err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	reviews := map[string]http.Handler{}
	sixteenth := o.Limits.Memory / 16 // the shares of all paths and of objects add up to at most 16
	objectMemory := 5 * sixteenth
	if o.Audit != nil {
		objectMemory -= sixteenth
	}
	objects := newObjects(o.Stack.ReadsContent, objectMemory, o.Limits.Memory)
	kinds := map[string]reviewKind{
		AuthenticatePath: {authenticate(o.Stack.Authenticator), sixteenth},
		AuthorizePath:    {authorize(o.Stack.Authorizer), sixteenth},
		MutatePath:       {mutate(o.Stack.Admission, objects), 4 * sixteenth},
		ValidatePath:     {validate(o.Stack.Admission, objects), 4 * sixteenth},
	}
	if o.CheckConfiguration != nil {
		kinds[ConfigurationPath] = reviewKind{configure(o.CheckConfiguration), sixteenth}
	}
	protected := func(next http.Handler) http.Handler { return next }
	flow := flowOf
	var limits *clientLimits // nil if each client is authenticated
	if o.Anonymous != nil {
		flow = forgeableFlow
		limits = newClientLimits(o.Limits.Concurrent, // half of the places of MutatePath and ValidatePath together
			o.Limits.Queued, kinds[AuthenticatePath].memory+kinds[AuthorizePath].memory) // these two paths do not exist then
		delete(kinds, AuthenticatePath)
		delete(kinds, AuthorizePath)
		protected = o.Anonymous.onlyAllowed
	}
	for path, kind := range kinds {
		concurrent := o.Limits.Concurrent
		if path == ConfigurationPath {
			concurrent = 1 // a check can use a processor for several seconds
		}
		reviews[path] = protected(limited(&admitter{
			limits:       o.Limits,
			queue:        turns.New(concurrent, o.Limits.Queued, kind.memory),
			clientLimits: limits,
			flowOf:       func(head []byte) turns.Flow { return flow(head, o.OwnerOf) },
		}, kind.answer))
	}
	if o.Audit != nil && o.Anonymous == nil {
		reviews[AuditPath] = onlyVerified(audit(o.Audit, &o.Limits,
			turns.New(o.Limits.Concurrent, o.Limits.Queued, sixteenth)))
	}
	for path, review := range reviews {
		reviews[path] = m.instrumented(path, serving.WithPanicRecovery(review))
		mux.Handle(path, reviews[path]) // for unclean paths, which the mux redirects
	}
	serving.InstallHealth(mux, o.Live, o.Ready)
	handler := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if review, ok := reviews[r.URL.Path]; ok { // most requests match here, without the slower search of the mux
			r.Pattern = r.URL.Path
			review.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	if o.Tracer != nil {
		handler = tracing.WithTracing(handler, o.Tracer, "kubetenant-webhook")
	}
	return handler, nil
}

// serviceMetrics contains the metrics of the requests to the service.
type serviceMetrics struct {
	requests *metrics.CounterVec
	latency  *metrics.HistogramVec
}

func newServiceMetrics() *serviceMetrics {
	return &serviceMetrics{
		requests: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace:      "kubetenant",
			Subsystem:      "webhook",
			Name:           "requests_total",
			Help:           "Requests by path and HTTP status.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"path", "code"}),
		latency: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace:      "kubetenant",
			Subsystem:      "webhook",
			Name:           "request_duration_seconds",
			Help:           "Duration of requests, measured after their headers, by path.",
			StabilityLevel: metrics.ALPHA,
			Buckets:        []float64{0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1, 5, 10},
		}, []string{"path"}),
	}
}

func (m *serviceMetrics) registerables() []metrics.Registerable {
	return []metrics.Registerable{m.requests, m.latency}
}

// instrumented records the number and the duration of the requests of a path.
func (m *serviceMetrics) instrumented(path string, next http.Handler) http.Handler {
	latency, ok := m.latency.WithLabelValues(path), m.requests.WithLabelValues(path, strconv.Itoa(http.StatusOK))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		counted := &statusWriter{ResponseWriter: w, code: http.StatusOK}
		next.ServeHTTP(counted, r)
		latency.Observe(time.Since(began).Seconds())
		if counted.code == http.StatusOK {
			ok.Inc()
			return
		}
		m.requests.WithLabelValues(path, strconv.Itoa(counted.code)).Inc()
	})
}

// statusWriter records the status of a response.
type statusWriter struct {
	http.ResponseWriter
	code int
}

// Unwrap returns the wrapped writer to [http.ResponseController].
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// withUID returns a context whose logger adds the UID of a request.
func withUID(ctx context.Context, uid string) context.Context {
	return klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "uid", uid))
}
