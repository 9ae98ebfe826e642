// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
)

// InstallHealth adds the paths /healthz, /livez and /readyz, and a path below them for each check.
// All paths accept ?verbose and ?exclude.
func InstallHealth(mux *http.ServeMux, live, ready []healthz.HealthChecker) {
	for path, checks := range map[string][]healthz.HealthChecker{"/healthz": live, "/livez": live, "/readyz": ready} {
		mux.Handle(path, health(path, checks))
		for _, one := range checks {
			mux.Handle(path+"/"+one.Name(), health(path+"/"+one.Name(), []healthz.HealthChecker{one}))
		}
	}
}

// Degraded is the error of a check for a degraded process. The health endpoints show it, but the
// check does not fail.
type Degraded string

// Error implements error.
func (d Degraded) Error() string { return string(d) }

// health responds as the handler of k8s.io/apiserver does (pkg/server/healthz, v0.37.1), but also
// writes the error of each failed check. Unauthenticated callers can read these errors. The errors
// MUST therefore not contain confidential data.
func health(path string, checks []healthz.HealthChecker) http.Handler {
	name := strings.TrimPrefix(path, "/")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		excluded := r.URL.Query()["exclude"]
		var details strings.Builder
		failed := false
		for _, c := range checks {
			if slices.Contains(excluded, c.Name()) {
				fmt.Fprintf(&details, "[+]%s excluded: ok\n", c.Name())
				continue
			}
			err := c.Check(r)
			reason := ""
			if err != nil {
				reason = strings.ReplaceAll(err.Error(), "\n", "; ")
			}
			switch degraded := Degraded(""); {
			case err == nil:
				fmt.Fprintf(&details, "[+]%s ok\n", c.Name())
			case errors.As(err, &degraded):
				fmt.Fprintf(&details, "[!]%s degraded: %s\n", c.Name(), reason)
			default:
				failed = true
				fmt.Fprintf(&details, "[-]%s failed: %s\n", c.Name(), reason)
			}
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache, private")
		switch _, verbose := r.URL.Query()["verbose"]; {
		case failed:
			klog.FromContext(r.Context()).V(2).Info("A health check failed", "path", path, "checks", details.String())
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, details.String()+name+" check failed\n")
		case verbose:
			_, _ = io.WriteString(w, details.String()+name+" check passed\n")
		default:
			_, _ = io.WriteString(w, "ok")
		}
	})
}

// WithPanicRecovery responds with 500 if a handler panics. It panics again with
// [http.ErrAbortHandler], which makes the server abort the response.
func WithPanicRecovery(next http.Handler) http.Handler {
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

// ServeMetrics serves metrics and health checks without TLS and authentication on a separate
// listener, for the kubelet and Prometheus.
func ServeMetrics(
	ctx context.Context, address string, registry metrics.KubeRegistry, live, ready []healthz.HealthChecker,
) (*http.Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics.HandlerFor(registry, metrics.HandlerOpts{}))
	InstallHealth(mux, live, ready)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // until the caller closes the server
	return server, nil
}
