// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantaudit

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kubetenant/kubetenant/tenant"
)

// Record is one line of a stream. Empty fields are omitted.
type Record struct {
	// Cluster is the name of the cluster that received the request. Only the gateway sets it.
	Cluster string `json:"cluster,omitempty"`
	// Time is the time at which the request reached the stage.
	Time time.Time `json:"time"`
	// ID is the audit ID of the request.
	ID string `json:"id,omitempty"`
	// Stage is the stage of the request, such as ResponseComplete.
	Stage string `json:"stage,omitempty"`
	// Verb, Group, Resource, Subresource, Namespace and Name are the attributes of the request.
	Verb        string `json:"verb,omitempty"`
	Group       string `json:"group,omitempty"`
	Resource    string `json:"resource,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	// Path is the path of a request that has no resource, without the query.
	Path string `json:"path,omitempty"`
	// Code is the HTTP status of the response.
	Code int32 `json:"code,omitempty"`
	// User is the name of the caller. It is set only in the stream of the caller's tenant and in the
	// streams of the system tenant.
	User string `json:"user,omitempty"`
	// Tenant is the tenant of the caller, "system", or "(none)".
	Tenant string `json:"tenant,omitempty"`
	// ImpersonatedBy is set if a caller of the system tenant impersonated the user. In the streams of
	// the system tenant, it is the name of this caller. In the stream of a tenant, it is "system".
	ImpersonatedBy string `json:"impersonatedBy,omitempty"`
	// Source is the name of the authentication source of the caller. It is empty in the record for the
	// owner of the object, and if a caller of the system tenant impersonated the user.
	Source string `json:"source,omitempty"`
	// CredentialID is the ID of the caller's credential. It is empty in the same records as Source.
	CredentialID string `json:"credentialId,omitempty"`
}

// noTenant is the tenant of a caller without a tenant. No tenant has this name.
const noTenant = "(none)"

// Stream is the name of a stream. It can be used as part of a file name.
type Stream string

// System is a stream of the system tenant. It contains a record of every event that has records.
const System Stream = "system"

// Unauthenticated is a stream of the system tenant. It contains the records of requests that were
// not authenticated. [System] contains these records too. The files of this stream are not rotated
// because of requests of tenants.
const Unauthenticated Stream = "refused"

// IsTenant reports whether a stream is the stream of a tenant.
func (s Stream) IsTenant() bool {
	_, base := s.parts()
	return base != System && base != Unauthenticated
}

// clusterSeparator separates the name of a cluster from the name of a stream.
const clusterSeparator = "+"

// In returns the name of the stream in the given cluster. cluster is empty for a server of one
// cluster.
func (s Stream) In(cluster string) Stream {
	switch {
	case cluster == "":
		return s
	case !isSafe(cluster):
		cluster = "cluster." + digest(cluster)
	}
	return Stream(cluster) + clusterSeparator + s
}

func (s Stream) parts() (cluster string, base Stream) {
	cluster, name, ok := strings.Cut(string(s), clusterSeparator)
	if !ok {
		return "", s
	}
	return cluster, Stream(name)
}

// isValid reports whether s can be a result of [StreamOf] and [Stream.In]. It accepts a Tenant UID
// only in the form that Kubernetes uses.
func (s Stream) isValid() bool {
	cluster, base := s.parts()
	if cluster != "" && !isSafe(cluster) && !isDigest(cluster, "cluster.") {
		return false
	}
	id, isID := strings.CutPrefix(string(base), "id-")
	return !base.IsTenant() || isID && isSafe(id) || isUUID(string(base)) || isDigest(string(base), "id.") ||
		isDigest(string(base), "uid.")
}

func isDigest(text, prefix string) bool {
	sum, ok := strings.CutPrefix(text, prefix)
	decoded, err := hex.DecodeString(sum)
	return ok && err == nil && hex.EncodeToString(decoded) == sum && len(decoded) == digestBytes
}

// StreamOf returns the stream of the tenant whose Tenant object has the given UID. uid is empty for
// a tenant without a Tenant object. A recreated tenant has another UID and therefore another
// stream.
func StreamOf(id tenant.ID, uid string) Stream {
	switch {
	case id.IsSystem():
		return System
	case uid != "" && isSafe(uid):
		return Stream(uid)
	case uid != "":
		return Stream("uid." + digest(uid))
	case isSafe(id.String()):
		return Stream("id-" + id.String())
	}
	return Stream("id." + digest(id.String()))
}

// safeBytes is the maximum length of a name that is used as part of a file name.
const safeBytes = 64

// isSafe reports whether a text can be used as the name of a tenant's stream or of a cluster. It
// consists of at most 64 lower-case letters, digits and dashes, does not begin with "id-", and is
// not the name of a stream of the system tenant.
func isSafe(text string) bool {
	if text == "" || len(text) > safeBytes || !Stream(text).IsTenant() || strings.HasPrefix(text, "id-") {
		return false
	}
	return strings.IndexFunc(text, func(c rune) bool {
		return c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9')
	}) < 0
}

// digestBytes is the size of a digest in bytes.
const digestBytes = 16

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:digestBytes])
}

// The maximum lengths of texts, in bytes.
const (
	nameBytes = 253 // the limit of Kubernetes for names
	pathBytes = 1 << 10
	idBytes   = 64
)

// ellipsis is the suffix of a truncated text.
const ellipsis = "..."

// truncate returns a copy of a text that has at most limit bytes.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return strings.Clone(text)
	}
	end := limit - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}

// isUUID reports whether a text has the form of a UUID, which a server generates as an audit ID.
func isUUID(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i := range len(text) {
		c := text[i]
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || !dash && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
