package kubetenant

import "k8s.io/component-base/metrics"

// reloadMetrics counts the new versions of files.
type reloadMetrics struct {
	reloads *metrics.CounterVec
}

func newReloadMetrics() *reloadMetrics {
	return &reloadMetrics{reloads: metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "kubetenant", Subsystem: "config", Name: "reloads_total",
		Help:           "New versions of the configuration and the files it names, by path and by result: success, or error where the version before stays.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"path", "result"})}
}

func (m *reloadMetrics) count(path string, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.reloads.WithLabelValues(path, result).Inc()
}
