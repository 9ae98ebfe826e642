// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"sync"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
)

// detection is the installation on one server, which is detected once.
type detection struct {
	once  sync.Once
	found *installation.Installation
	err   error
}

// Installation returns how kubetenant runs on the cluster. A process detects it once for each
// server. It returns the errors of [installation.Detect], each in one line.
func (c *Cluster) Installation(ctx context.Context) (*installation.Installation, error) {
	d := c.detected
	if d == nil {
		d = &detection{}
		c.detected = d
	}
	d.once.Do(func() {
		d.found, d.err = installation.Detect(ctx, c.Config)
		var undetermined *installation.UndeterminedError
		if errors.As(d.err, &undetermined) {
			undetermined.Cause = c.Explain(undetermined.Cause)
		}
	})
	return d.found, d.err
}

// Require sets a check of each cluster that the command uses. The command refuses a cluster for
// which check returns an error. Without a check, the command runs on every server.
func (f *Flags) Require(check func(*Cluster) error) { f.required = check }

// Check returns an error if the command cannot run on the cluster.
func (c *Cluster) Check() error {
	if c.required == nil {
		return nil
	}
	return c.required(c)
}
