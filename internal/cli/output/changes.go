// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The verbs for [Changes.Print].
const (
	Created    = "created"
	Configured = "configured"
	Unchanged  = "unchanged"
	Adopted    = "adopted"
	Released   = "released"
	Suspended  = "suspended"
	Resumed    = "resumed"
)

// Changes prints how a command changed each object, in the form that kubectl uses:
// tenant.kubetenant.dev/acme created. If nil, it prints nothing.
type Changes struct {
	w            io.Writer
	prefix, note string
}

// NewChanges returns Changes that print to w. dryRun is the value of --dry-run. cluster is the name
// of the cluster if the command changes several clusters, otherwise "".
func NewChanges(w io.Writer, dryRun, cluster string) *Changes {
	c := &Changes{w: w}
	switch dryRun {
	case "client":
		c.note = " (dry run)"
	case "server":
		c.note = " (server dry run)"
	}
	if cluster != "" {
		c.prefix = Safe(cluster) + ": "
	}
	return c
}

// Print prints that a command changed an object. verb is one of the verbs of this package.
func (c *Changes) Print(kind schema.GroupKind, name, verb string) {
	if c == nil {
		return
	}
	_, _ = fmt.Fprintf(c.w, "%s%s/%s %s%s\n", c.prefix, typeOf(kind), Safe(name), verb, c.note)
}

// PrintDeleted prints that an object was deleted. namespace is "" if the object is not in a
// namespace.
func (c *Changes) PrintDeleted(kind schema.GroupKind, namespace, name string) {
	if c == nil {
		return
	}
	if namespace != "" {
		namespace = " from " + Safe(namespace) + " namespace"
	}
	_, _ = fmt.Fprintf(c.w, "%s%s \"%s\" deleted%s%s\n", c.prefix, typeOf(kind), Safe(name), namespace, c.note)
}

func typeOf(kind schema.GroupKind) string {
	if kind.Group == "" {
		return strings.ToLower(kind.Kind)
	}
	return strings.ToLower(kind.Kind) + "." + kind.Group
}
