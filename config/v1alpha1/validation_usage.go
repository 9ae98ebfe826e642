// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// maxUsageServer is the maximum length of the name of a server in bytes. The name is part of a
	// field manager, which has at most 128 bytes.
	maxUsageServer  = 100
	maxUsageCluster = 253

	minUsageTimeout = time.Second
	maxUsageTimeout = 5 * time.Minute
)

func defaultUsage(u *Usage) {
	if u.File != nil {
		defaultValue(&u.File.MaxSizeMegabytes, 100)
		defaultValue(&u.File.MaxBackups, 10)
	}
	if u.Endpoint != nil && u.Endpoint.Timeout.Duration == 0 {
		u.Endpoint.Timeout.Duration = 30 * time.Second
	}
}

func validateUsage(u *Usage, path *field.Path) field.ErrorList {
	errs := validateUsageName(u.Server, maxUsageServer, path.Child("server"))
	errs = append(errs, validateUsageName(u.Cluster, maxUsageCluster, path.Child("cluster"))...)
	switch {
	case u.File != nil && u.Endpoint != nil:
		errs = append(errs, field.Forbidden(path.Child("endpoint"), "must be unset if file is set"))
	case u.File == nil && u.Endpoint == nil && u.Directory != "":
		errs = append(errs, field.Required(path.Child("file"), "file or endpoint must be set if directory is set"))
	}
	if (u.File != nil || u.Endpoint != nil) && u.Directory == "" {
		errs = append(errs, field.Required(path.Child("directory"), "must be set if file or endpoint is set, because it "+
			"keeps records that are not acknowledged"))
	}
	if u.File != nil {
		errs = append(errs, u.File.validate(path.Child("file"))...)
	}
	if u.Endpoint != nil {
		errs = append(errs, u.Endpoint.validate(path.Child("endpoint"))...)
	}
	return errs
}

func validateUsageName(name string, most int, path *field.Path) field.ErrorList {
	isUnprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	switch {
	case len(name) > most:
		return field.ErrorList{field.TooLong(path, "", most)}
	case strings.ContainsFunc(name, isUnprintable):
		return field.ErrorList{field.Invalid(path, name, "must contain printable characters only")}
	}
	return nil
}

func (f *UsageFile) validate(path *field.Path) field.ErrorList {
	errs := requireAll(path, map[string]string{"path": f.Path})
	for _, limit := range []struct {
		name        string
		n           *int
		least, most int
	}{
		{"maxSizeMegabytes", f.MaxSizeMegabytes, 1, maxAuditSize},
		{"maxBackups", f.MaxBackups, 0, math.MaxInt32},
	} {
		if limit.n != nil && (*limit.n < limit.least || *limit.n > limit.most) {
			errs = append(errs, field.Invalid(path.Child(limit.name), *limit.n,
				fmt.Sprintf("must be between %d and %d", limit.least, limit.most)))
		}
	}
	return errs
}

func (e *UsageEndpoint) validate(path *field.Path) field.ErrorList {
	errs := e.validateURL(path)
	if t := e.Timeout.Duration; t < minUsageTimeout || t > maxUsageTimeout {
		errs = append(errs, field.Invalid(path.Child("timeout"), t.String(),
			fmt.Sprintf("must be between %v and %v", minUsageTimeout, maxUsageTimeout)))
	}
	return errs
}

func (e *UsageEndpoint) validateURL(path *field.Path) field.ErrorList {
	at := path.Child("url")
	if e.URL == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	u, err := url.Parse(e.URL)
	switch {
	case err != nil: // the error contains the URL, which may contain a password
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "must be a URL")}
	case u.User != nil:
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "must contain no user information: use tokenFile")}
	case u.RawQuery != "" || u.ForceQuery: // the query may contain a secret
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "must contain no query: use tokenFile")}
	case u.Host == "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http":
		return field.ErrorList{field.Invalid(at, e.URL, "must be an https URL with a host and without a fragment")}
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return field.ErrorList{field.Invalid(at, e.URL, "must begin with https, unless its host is a loopback address")}
	case u.Scheme == "http" && e.CAFile != "":
		return field.ErrorList{field.Forbidden(path.Child("caFile"), "must be unset if url begins with http")}
	}
	return nil
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}
