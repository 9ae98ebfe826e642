// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package lookup

import (
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/accessgrant"
)

// Parts contains the values that the methods of a [Cluster] return. It is for servers that do not
// use package cluster. Owners is required. Each other field may be nil.
type Parts struct {
	Owners      *authz.Owners
	Namespaces  Namespaces
	Resources   Resources
	Tenants     Tenants
	Grants      *accessgrant.Grants
	Quotas      Quotas
	Controllers Controllers
	Objects     Objects
}

// Cluster returns a [Cluster] whose methods return the fields of p.
func (p *Parts) Cluster() Cluster { return &cluster{p} }

type cluster struct{ parts *Parts }

// Owners implements [Cluster].
func (c *cluster) Owners() *authz.Owners { return c.parts.Owners }

// Namespaces implements [Cluster].
func (c *cluster) Namespaces() Namespaces { return c.parts.Namespaces }

// Resources implements [Cluster].
func (c *cluster) Resources() Resources { return c.parts.Resources }

// Tenants implements [Cluster].
func (c *cluster) Tenants() Tenants { return c.parts.Tenants }

// Grants implements [Cluster].
func (c *cluster) Grants() *accessgrant.Grants { return c.parts.Grants }

// Quotas implements [Cluster].
func (c *cluster) Quotas() Quotas { return c.parts.Quotas }

// Controllers implements [Cluster].
func (c *cluster) Controllers() Controllers { return c.parts.Controllers }

// Objects implements [Cluster].
func (c *cluster) Objects() Objects { return c.parts.Objects }
