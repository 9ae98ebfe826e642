package kubetenant

import (
	"context"

	"k8s.io/apiserver/pkg/admission"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
)

// Server is what a server provides to the stack, by concern. Cluster.Owners is required.
type Server = stack.Server

// Authentication is what a server authenticates with by itself.
type Authentication = stack.Authentication

// Authorization is what a server authorizes with by itself.
type Authorization = stack.Authorization

// RBAC is the RBAC of a server in both evaluators. The configuration chooses one.
type RBAC = stack.RBAC

// Cluster is the state of the cluster. Package cluster provides it for a live cluster.
type Cluster = stack.Cluster

// QuotaStore holds the quotas of a cluster.
type QuotaStore = stack.QuotaStore

// Tenants are the objects of kind Tenant of a cluster.
type Tenants = stack.Tenants

// Stack replaces the authenticator, the authorizer, the rule resolver and a part of the admission
// chain of a server. It is safe for concurrent use.
type Stack = stack.Stack

// Plugin is one admission plugin of a [Stack].
type Plugin = stack.Plugin

// Credentials are the kinds of credentials that callers present to a [Stack].
type Credentials = stack.Credentials

const (
	// AllCredentials builds every source of the configuration.
	AllCredentials = stack.AllCredentials
	// BearerTokens builds the sources of bearer tokens.
	BearerTokens = stack.BearerTokens
	// NoCredentials builds no source and reads none of their files. The stack still refuses revoked
	// callers.
	NoCredentials = stack.NoCredentials
)

// New returns the stack of a configuration. New defaults and validates the configuration. The stack
// follows the files that it names until ctx ends. The error names the source, file, line or field
// that is wrong.
func New(ctx context.Context, config *configv1alpha1.Settings, server Server) (*Stack, error) {
	return stack.New(ctx, config, server)
}

// Open is [New] with the configuration file at path. The stack follows this file too: a new version
// takes effect as a whole, or not at all if anything in it is wrong.
func Open(ctx context.Context, path string, server Server) (*Stack, error) {
	return stack.Open(ctx, path, server)
}

// Check reads the configuration at path and every file that it names, as [Open] does, and follows
// none of them. It also reads a file of kind Revocation. Check does not check what the server
// provides, and it calls no identity provider.
func Check(ctx context.Context, path string) error { return stack.Check(ctx, path) }

// Register adds the plugins to the admission plugins of a server.
func Register(all []Plugin, into *admission.Plugins) { stack.Register(all, into) }
