// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package status reports the status of kubetenant on a server, and detects problems.
package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"

	"github.com/kubetenant/kubetenant/authz"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/fairuse"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/internal/version"
)

// maxTenants is the maximum number of Tenants that a report lists as not ready.
const maxTenants = 20

// Report is the status of one server. If the caller may not read a part of the status, the fields
// for this part are empty, and Unknown contains the part.
type Report struct {
	Server string `json:"server"`
	// Installed is nil if it could not be determined. Undetermined then contains the error.
	Installed    *bool             `json:"installed"`
	Undetermined string            `json:"undetermined,omitempty"`
	Mode         installation.Mode `json:"deploymentMode,omitempty"`
	// Direct reports whether the server is a cluster behind a gateway, and the client connects to
	// the cluster directly.
	Direct        bool          `json:"behindGateway,omitempty"`
	Versions      Versions      `json:"versions"`
	Configuration Configuration `json:"configuration"`
	Replicas      []Replica     `json:"replicas,omitempty"`
	// MissingDefinitions contains the CustomResourceDefinitions of kubetenant that the server lacks
	// or cannot use.
	MissingDefinitions []string `json:"missingDefinitions,omitempty"`
	// NotReady contains the first Tenants that are not ready. NotReadyTotal is the number of all
	// Tenants that are not ready.
	NotReady      []Tenant `json:"tenantsNotReady,omitempty"`
	NotReadyTotal int      `json:"tenantsNotReadyTotal"`
	// FairUse contains the current usage and the limits of tenants on the server that responded. A
	// tenant's caller sees only its own tenant. FairUse is nil if the server does not report the
	// usage.
	FairUse []*fairuse.Report `json:"fairUse,omitempty"`
	// Problems contains the detected problems, one sentence each.
	Problems []string `json:"problems,omitempty"`
	// Unknown contains the parts of the report that the caller may not read, or that the server
	// does not report.
	Unknown []string `json:"unknown,omitempty"`
}

// Versions are the versions of this program and of the server.
type Versions struct {
	Client     string `json:"client"`
	Kubernetes string `json:"kubernetes,omitempty"`
	Kubetenant string `json:"kubetenant,omitempty"`
}

// Configuration describes the server's published configuration.
type Configuration struct {
	Hash string              `json:"hash,omitempty"`
	Mode configv1alpha1.Mode `json:"mode,omitempty"`
}

// Replica is one of the servers that run kubetenant.
type Replica struct {
	Name    string `json:"name"`
	Hash    string `json:"hash,omitempty"`
	Version string `json:"version,omitempty"`
	// Since is when the replica loaded its configuration. It is nil if the replica has not
	// published a configuration.
	Since *time.Time `json:"since,omitempty"`
}

// Tenant is a Tenant that is not ready.
type Tenant struct {
	Name    string `json:"name"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// Values of Report.Unknown.
const (
	PartVersion       = "the version of the server"
	PartConfiguration = "the configuration"
	PartReplicas      = "the replicas"
	PartDefinitions   = "the CustomResourceDefinitions"
	PartTenants       = "the Tenants"
	PartFairUse       = "fair use"
)

// Collect returns the status of a cluster. If a part cannot be read, Collect records the part as
// unknown and continues. If kubetenant is not installed, or this could not be determined, Collect
// returns both a report and an error.
func Collect(ctx context.Context, c *client.Cluster) (*Report, error) {
	r := &Report{Server: c.Config.Host, Versions: Versions{Client: version.Version()}}
	found, missing := c.Installation(ctx)
	installed := missing == nil
	if missing != nil && !errors.Is(missing, installation.ErrNotInstalled) {
		r.Undetermined = missing.Error()
		return r, missing
	}
	r.Installed = &installed
	k, err := c.Kube()
	if err != nil {
		return r, err
	}
	if version, err := k.Discovery().ServerVersion(); err == nil {
		r.Versions.Kubernetes = version.GitVersion
	} else {
		r.unknown(PartVersion)
	}
	if !installed {
		return r, missing
	}
	r.Mode, r.Direct = found.Mode, found.Direct
	d, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		return r, err
	}
	r.addConfiguration(ctx, k, found)
	r.addDefinitions(ctx, d)
	r.addTenants(ctx, c, d)
	r.addFairUse(ctx, k)
	return r, nil
}

// addFairUse adds the usage of tenants. An unmodified kube-apiserver does not serve the path, and
// a gateway serves it only to callers of tenants.
func (r *Report) addFairUse(ctx context.Context, k kube.Interface) {
	text, err := k.Discovery().RESTClient().Get().AbsPath(authz.FairUsePath).DoRaw(ctx)
	reports := fairuse.Reports{Items: []*fairuse.Report{}}
	switch {
	case apierrors.IsNotFound(err):
		return
	case err == nil:
		err = json.Unmarshal(text, &reports)
	}
	if err != nil {
		r.unknown(PartFairUse)
		return
	}
	r.FairUse = reports.Items
}

func (r *Report) unknown(part string) { r.Unknown = append(r.Unknown, part) }

// IsUnknown reports whether a part of the report could not be read.
func (r *Report) IsUnknown(part string) bool { return slices.Contains(r.Unknown, part) }

func (r *Report) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// addConfiguration adds the server's published configuration and its replicas.
func (r *Report) addConfiguration(ctx context.Context, k kube.Interface, found *installation.Installation) {
	p, err := found.Published(ctx)
	if err != nil || found.Mode == installation.Gateway && !found.Direct { // a gateway publishes no configuration
		r.unknown(PartConfiguration)
		r.unknown(PartReplicas)
		if errors.Is(err, configv1alpha1.ErrNotPublished) {
			r.problem("The server publishes a configuration that this version cannot read. Use the kubectl-tenant of its " +
				"release.")
		}
		if errors.Is(err, installation.ErrUntrusted) {
			r.problem("%v. Release the namespace, see docs/upgrade.md.", err)
		}
		return
	}
	r.Configuration = Configuration{Hash: p.Hash, Mode: p.Settings.Authorization.Mode}
	live, err := liveReplicas(ctx, k, found.Mode)
	if err != nil {
		r.unknown(PartReplicas)
	}
	r.addReplicas(p, live)
	versions := map[string]bool{}
	for _, replica := range r.Replicas {
		if replica.Version != "" {
			versions[replica.Version] = true
			r.Versions.Kubetenant = replica.Version
		}
	}
	if len(versions) > 1 {
		r.problem("The replicas run different versions of kubetenant.")
	}
}

// addReplicas adds the replicas that are listed in live. If live is empty, it adds all replicas
// that have published a configuration.
func (r *Report) addReplicas(p *configv1alpha1.Published, live []string) {
	hashes := map[string][]string{}
	published := map[string]bool{}
	for _, entry := range p.Replicas {
		published[entry.Name] = true
		if len(live) > 0 && !slices.Contains(live, entry.Name) {
			continue // the replica has stopped
		}
		r.Replicas = append(r.Replicas, Replica{
			Name:    entry.Name,
			Hash:    entry.Hash,
			Version: entry.Version,
			Since:   &entry.Since.Time,
		})
		hashes[entry.Hash] = append(hashes[entry.Hash], entry.Name)
	}
	for _, name := range live {
		if !published[name] {
			r.Replicas = append(r.Replicas, Replica{Name: name})
			r.problem("The server %s has not published its configuration. It may run without kubetenant, or run an older "+
				"release.",
				name)
		}
	}
	if len(hashes) > 1 && len(live) > 0 {
		var parts []string
		for hash, names := range hashes {
			parts = append(parts, strings.Join(names, ", ")+" "+hash)
		}
		slices.Sort(parts)
		r.problem("The replicas run different configurations: %s.", strings.Join(parts, "; "))
	}
}
