// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"math"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Audit specifies where a server writes the audit streams. The system's stream contains all events
// of the server. The stream of a tenant contains the requests of the tenant's callers, and the
// writes of other callers to the tenant's objects. The stream of a tenant contains no data of other
// tenants.
//
// A kube-apiserver with tenants compiled in writes the events that its --audit-policy-file selects,
// or the metadata of all requests if it has no such file. The webhook service writes the events
// that an unmodified kube-apiserver sends to its path /audit (--audit-webhook-config-file). The
// gateway writes the requests to its clusters, and does not need gateway.audit.
type Audit struct {
	// directory specifies the path of the directory with the files of the streams. The server creates
	// the directory with mode 0700. Only one process can use a directory. On a mounted volume, use a
	// directory in the volume. Required.
	// +required
	Directory string `json:"directory"`
	// maxSizeMegabytes specifies the size, in megabytes, at which the server renames the file of a
	// stream and begins a new one. Must be from 1 to 1048576. Defaults to 100.
	// +optional
	MaxSizeMegabytes *int `json:"maxSizeMegabytes,omitempty"`
	// maxBackups specifies how many renamed files of each stream the server retains. The server
	// deletes the oldest files first. Must not be negative; 0 retains all files. Defaults to 10.
	// +optional
	MaxBackups *int `json:"maxBackups,omitempty"`
	// maxAgeDays specifies for how many days after its last record the server retains a file,
	// including the files of a deleted tenant. Must be from 0 to 36500; 0 sets no limit. Defaults to
	// 90.
	// +optional
	MaxAgeDays *int `json:"maxAgeDays,omitempty"`
	// maxTotalMegabytes specifies the total size of all files, in megabytes, above which the server
	// deletes renamed files. The server deletes the oldest file of the largest stream first. The files
	// that are not renamed yet can exceed this size. Must be from 0 to 1048576; 0 sets no limit.
	// Defaults to 10240.
	// +optional
	MaxTotalMegabytes *int `json:"maxTotalMegabytes,omitempty"`
}

func (a *Audit) setDefaults() {
	if a == nil {
		return
	}
	defaultValue(&a.MaxSizeMegabytes, 100)
	defaultValue(&a.MaxBackups, 10)
	defaultValue(&a.MaxAgeDays, 90)
	defaultValue(&a.MaxTotalMegabytes, 10<<10)
}

func (a *Audit) validate(path *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	errs := requireAll(path, map[string]string{"directory": a.Directory})
	return append(errs, validateRanges(path,
		numberRange{"maxSizeMegabytes", a.MaxSizeMegabytes, 1, maxAuditSize},
		numberRange{"maxBackups", a.MaxBackups, 0, math.MaxInt32},
		numberRange{"maxAgeDays", a.MaxAgeDays, 0, maxAuditDays},
		numberRange{"maxTotalMegabytes", a.MaxTotalMegabytes, 0, maxAuditSize},
	)...)
}
