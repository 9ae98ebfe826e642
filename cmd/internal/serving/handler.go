package serving

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
)

// InstallHealth adds /healthz, /livez and /readyz: each check by its name too, all with ?verbose.
func InstallHealth(mux *http.ServeMux, live, ready []healthz.HealthChecker) {
	healthz.InstallPathHandler(mux, "/healthz", live...)
	healthz.InstallPathHandler(mux, "/livez", live...)
	healthz.InstallPathHandler(mux, "/readyz", ready...)
}

// Recovered answers 500 where a handler panics, and goes on; an answer that is broken off stays so.
func Recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p == http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
				panic(p)
			} else if p != nil {
				klog.FromContext(r.Context()).Error(nil, "Panic", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
				http.Error(w, "internal error", http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// ServeSide serves metrics and health on a listener of their own, which the kubelet and Prometheus reach without a
// certificate.
func ServeSide(ctx context.Context, address string, registry metrics.KubeRegistry, live, ready []healthz.HealthChecker) (*http.Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics.HandlerFor(registry, metrics.HandlerOpts{}))
	InstallHealth(mux, live, ready)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // until it is closed
	return server, nil
}
