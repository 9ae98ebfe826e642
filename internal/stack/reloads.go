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

// reloadMetrics contains the metrics of the current configuration and its files. It is safe for
// concurrent use.
type reloadMetrics struct {
	reloads           *metrics.CounterVec
	info              *metrics.GaugeVec
	successful, since *metrics.GaugeVec

	mu sync.Mutex
	// persistent contains the configuration file, which outlives a snapshot. followed contains
	// the files that the owner of the Stack, such as a gateway, follows itself. snapshot contains
	// the files that the current snapshot follows. Only these files have series.
	persistent, followed, snapshot *fileStates
}

// fileStates contains the states of a set of files. A file that has not changed since start has no
// state. Its content is in effect.
type fileStates struct {
	start  time.Time
	byPath map[string]fileState
}

type fileState struct {
	inEffect bool
	loaded   time.Time // the last time a version took effect
}

func newFileStates() *fileStates {
	return &fileStates{start: time.Now(), byPath: map[string]fileState{}}
}

func newReloadMetrics() *reloadMetrics {
	return &reloadMetrics{
		persistent: newFileStates(),
		followed:   newFileStates(),
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

// setSnapshot records the current snapshot and the states of its files.
func (m *reloadMetrics) setSnapshot(g *snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.info.Reset()
	m.info.WithLabelValues(g.hash, g.mode).Set(1)
	m.snapshot = g.files
	m.updateGauges()
}

// setFollowed replaces the files that the owner of the Stack follows, and records that their
// content is in effect. The configuration file retains the state of its last reload.
func (m *reloadMetrics) setFollowed(config string, files []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.followed = newFileStates()
	for _, path := range files {
		m.followed.byPath[path] = fileState{true, m.followed.start}
	}
	if _, known := m.persistent.byPath[config]; !known {
		m.persistent.byPath[config] = fileState{true, m.followed.start}
	}
	m.updateGauges()
}

// record records a new version of a file, which took effect if err is nil.
func (m *reloadMetrics) record(files *fileStates, path string, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.reloads.WithLabelValues(path, result).Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	if files == nil {
		files = m.persistent
		if _, ok := m.followed.byPath[path]; ok {
			files = m.followed
		}
	}
	state, known := files.byPath[path]
	if !known {
		state.loaded = files.start
	}
	if state.inEffect = err == nil; state.inEffect {
		state.loaded = time.Now()
	}
	files.byPath[path] = state
	m.updateGauges()
}

// updateGauges sets the series of all current files and deletes the series of all other files. The
// caller must hold m.mu.
func (m *reloadMetrics) updateGauges() {
	m.successful.Reset()
	m.since.Reset()
	for _, files := range []*fileStates{m.snapshot, m.followed, m.persistent} {
		if files == nil {
			continue
		}
		for path, state := range files.byPath {
			value := 0.0
			if state.inEffect {
				value = 1
			}
			m.successful.WithLabelValues(path).Set(value)
			m.since.WithLabelValues(path).Set(float64(state.loaded.UnixMilli()) / 1000)
		}
	}
}

// hashOf returns a hash of the effective configuration. The format and the comments of the
// configuration file do not change the hash.
func hashOf(config *configv1alpha1.Settings) (string, error) {
	data, err := json.Marshal(config)
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6]), err
}

// report returns a function that logs and records a new version of a file. files contains the
// states of the files of a snapshot. It is nil for files that outlive a snapshot.
func (s *shared) report(ctx context.Context, files *fileStates) reload.Report {
	return func(path string, err error) {
		s.reloads.record(files, path, err)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Rejected a new version of a file and kept the previous version", "path", path)
			return
		}
		klog.FromContext(ctx).Info("Loaded a new version of a file", "path", path)
	}
}

// SetFollowedFiles sets the files whose reloads the owner of the Stack records with
// [Stack.RecordReload]. config is the configuration file. The metrics report that the content of
// all these files is in effect. The files replace the files of earlier calls.
func (s *Stack) SetFollowedFiles(config string, files ...string) {
	s.shared.reloads.setFollowed(config, files)
}

// RecordReload logs and records a new version of a file that the owner of the Stack follows. err
// is nil if the version took effect.
func (s *Stack) RecordReload(ctx context.Context, path string, err error) {
	s.shared.report(ctx, nil)(path, err)
}
