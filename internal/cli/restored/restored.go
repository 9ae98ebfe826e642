// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package restored finds the changes that a cluster lost when it was restored from a backup. A
// backup of etcd is consistent, so most lost changes are visible only in records outside etcd,
// such as usage records and audit logs.
package restored

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/metadata"

	"github.com/kubetenant/kubetenant/internal/cli/validate"
)

// Options specifies the records with which the cluster is compared.
type Options struct {
	// Cluster is the name of the cluster in the findings.
	Cluster string
	// UsageRecords is a directory with usage records. If empty, usage records are not compared.
	UsageRecords string
	// AuditLogs are files with one audit.k8s.io/v1 event in each line.
	AuditLogs []string
	// Namespace is the namespace of the webhook service or the gateway.
	Namespace string
	// Now is the current time.
	Now time.Time
}

// check is the state of [Check] for a cluster.
type check struct {
	Options
	client   metadata.Interface
	tenants  *tenants
	findings []validate.Finding
	unread   []error
}

// Check adds findings about the lost changes in a cluster to a report. It only reads from the
// cluster, one page at a time. It reads the specs of Tenants and RetiredTenants, and only the
// metadata of other objects. It returns an error if it cannot read from the cluster.
func Check(ctx context.Context, clients Clients, o Options, report *validate.Report) error {
	all, err := readTenants(ctx, clients.Dynamic)
	if err != nil {
		return err
	}
	c := &check{
		Options: o,
		client:  clients.Metadata,
		tenants: all,
	}
	err = c.namespaces(ctx)
	c.successors()
	if o.UsageRecords != "" {
		c.usage()
	}
	if err == nil && len(o.AuditLogs) > 0 {
		err = c.auditLogs(ctx)
	}
	report.Findings = append(report.Findings, c.findings...)
	report.Unread = append(report.Unread, c.unread...)
	if err == nil && len(c.findings) == 0 && len(c.unread) == 0 {
		report.Valid = append(report.Valid, "cluster "+o.Cluster)
	}
	return err
}

// find adds a finding with the severity Error about an object.
func (c *check) find(object, reason, fix string) {
	c.findings = append(c.findings, validate.Finding{
		Cluster:  c.Cluster,
		Field:    object,
		Severity: validate.Error,
		Reason:   reason,
		Fix:      fix,
	})
}

// warn adds a finding with the severity Warning about an object whose state may be intended.
func (c *check) warn(object, reason, fix string) {
	c.find(object, reason, fix)
	c.findings[len(c.findings)-1].Severity = validate.Warning
}

// recordUnread records that a part of the check could not be completed.
func (c *check) recordUnread(format string, args ...any) {
	c.unread = append(c.unread, fmt.Errorf(format, args...))
}

// errOtherCluster is the end of the message for records that belong to another cluster.
var errOtherCluster = errors.New("belong to another cluster: name the records of this cluster, or choose the cluster " +
	"with --context")
