// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"sync"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
)

// detection is the result of detecting the installation on one server.
type detection struct {
	once  sync.Once
	found *installation.Installation
	err   error
}

// Installation returns how kubetenant is installed on the cluster. It runs the detection once for
// each server. It returns the errors of [installation.Detect], each in one line.
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

// Require sets a check of each cluster that the command uses. If check returns an error, the
// command fails. Without a check, the command runs on every server.
func (f *Flags) Require(check func(*Cluster) error) { f.required = check }

// Check returns an error if the command cannot run on the cluster.
func (c *Cluster) Check() error {
	if c.required == nil {
		return nil
	}
	return c.required(c)
}
