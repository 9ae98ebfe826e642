// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/reload"
)

// reloadMetrics show the current configuration and whether the files on disk are in effect. Safe
// for concurrent use.
type reloadMetrics struct {
	reloads           *metrics.CounterVec
	info              *metrics.GaugeVec
	successful, since *metrics.GaugeVec

	mu sync.Mutex
	// own are the files that outlive a snapshot. further are the files that the owner of the Stack
	// follows. generation are the files that the current snapshot follows. Only these files have
	// series.
	own, further, generation *fileStates
}

// fileStates are the states of the files that one owner follows. A file that has not changed since
// its owner began has no state, and its content is in effect.
type fileStates struct {
	began time.Time
	of    map[string]fileState
}

type fileState struct {
	isInForce bool
	loaded    time.Time // when a version last took effect
}

func newFileStates() *fileStates {
	return &fileStates{began: time.Now(), of: map[string]fileState{}}
}

func newReloadMetrics() *reloadMetrics {
	return &reloadMetrics{
		own:     newFileStates(),
		further: newFileStates(),
		reloads: counters("config", "reloads_total",
			"Number of reloads of the configuration and the files that it names, by path and result (success or error). "+
				"After an error, the previous version remains in effect.",
			"path", "result"),
		info: gauges("info", "Hash and mode of the effective configuration, with the value 1. "+
			"All replicas must have the same hash and mode.", "hash", "mode"),
		successful: gauges("last_reload_successful",
			"1 if the file on disk is in effect. 0 if its last version was rejected or the file is missing, so that the "+
				"previous version remains in effect. A file that has not changed since the start has no series, except "+
				"the configuration itself.", "path"),
		since: gauges("last_reload_success_timestamp_seconds",
			"Time when a version of the file last took effect, in seconds since the epoch.", "path"),
	}
}

func gauges(name, help string, labels ...string) *metrics.GaugeVec {
	return metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace:      "kubetenant",
		Subsystem:      "config",
		Name:           name,
		Help:           help,
		StabilityLevel: metrics.ALPHA,
	}, labels)
}

func (m *reloadMetrics) registerables() []metrics.Registerable {
	return []metrics.Registerable{m.reloads, m.info, m.successful, m.since}
}

// inForce records a snapshot and the states of its files after it took effect.
func (m *reloadMetrics) inForce(g *generation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.info.Reset()
	m.info.WithLabelValues(g.hash, g.mode).Set(1)
	m.generation = g.files
	m.show()
}

// follows replaces the files that the owner of the Stack follows. Their content is in effect. The
// configuration keeps the state of its last reload.
func (m *reloadMetrics) follows(config string, files []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.further = newFileStates()
	for _, path := range files {
		m.further.of[path] = fileState{true, m.further.began}
	}
	if _, known := m.own.of[config]; !known {
		m.own.of[config] = fileState{true, m.further.began}
	}
	m.show()
}

// count records a new version of a file, which took effect if err is nil.
func (m *reloadMetrics) count(files *fileStates, path string, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.reloads.WithLabelValues(path, result).Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	if files == nil {
		files = m.own
		if _, is := m.further.of[path]; is {
			files = m.further
		}
	}
	state, known := files.of[path]
	if !known {
		state.loaded = files.began
	}
	if state.isInForce = err == nil; state.isInForce {
		state.loaded = time.Now()
	}
	files.of[path] = state
	m.show()
}

// show sets the series of all files that are followed and deletes all others. The caller must hold
// m.mu.
func (m *reloadMetrics) show() {
	m.successful.Reset()
	m.since.Reset()
	for _, files := range []*fileStates{m.generation, m.further, m.own} {
		if files == nil {
			continue
		}
		for path, state := range files.of {
			value := 0.0
			if state.isInForce {
				value = 1
			}
			m.successful.WithLabelValues(path).Set(value)
			m.since.WithLabelValues(path).Set(float64(state.loaded.UnixMilli()) / 1000)
		}
	}
}

// hashOf returns a hash of the effective configuration. The format of the files has no effect.
func hashOf(config *configv1alpha1.Settings) (string, error) {
	data, err := json.Marshal(config)
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6]), err
}

// report returns a function that logs and records new versions of the files of an owner. files is
// nil for files that outlive a snapshot.
func (s *shared) report(ctx context.Context, files *fileStates) reload.Report {
	return func(path string, err error) {
		s.reloads.count(files, path, err)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Rejected a new version of a file and kept the previous version", "path", path)
			return
		}
		klog.FromContext(ctx).Info("Loaded a new version of a file", "path", path)
	}
}

// Follows sets, for metrics, the configuration and the further files that the owner of the Stack
// follows. Their content is in effect now. These replace the further files of earlier calls.
func (s *Stack) Follows(config string, files ...string) { s.shared.reloads.follows(config, files) }

// Reloaded logs and records a new version of a file that the owner of the Stack follows. err is nil
// if the version took effect.
func (s *Stack) Reloaded(ctx context.Context, path string, err error) {
	s.shared.report(ctx, nil)(path, err)
}
