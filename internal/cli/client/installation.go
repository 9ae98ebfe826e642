// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"sync"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
)

// detection is the result of detecting kubetenant on one server.
type detection struct {
	once  sync.Once
	found *installation.Installation
	err   error
}

// Installation returns how kubetenant is installed on the cluster. It detects this only once for
// each server. The error is that of [installation.Detect], with its cause on one line.
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

// Require sets a check that runs for each cluster before the command uses the cluster. If the check
// returns an error, the command fails. Without a check, the command runs on every server.
func (f *Flags) Require(check func(*Cluster) error) { f.required = check }

// Check runs the check set by [Flags.Require], if any, on the cluster.
func (c *Cluster) Check() error {
	if c.required == nil {
		return nil
	}
	return c.required(c)
}
