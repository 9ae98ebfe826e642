// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"sync"
	"time"

	"github.com/kubetenant/kubetenant/internal/cli/jsonlines"
	"github.com/kubetenant/kubetenant/tenant"
)

// FromRecordsWithLimit is [FromRecords] for all tenants during the last hour, with a limit of keys.
func FromRecordsWithLimit(dir string, now time.Time, limit int) (*Report, error) {
	return newSums(limit).report(dir, tenant.ID{}, newReport(now, time.Hour))
}

// FromRecordsAfter is [FromRecords] for all tenants during the last hour. It calls listed once,
// before it opens the first file.
func FromRecordsAfter(dir string, now time.Time, listed func()) (*Report, error) {
	s := newSums(MaxKeys)
	once := sync.OnceFunc(listed)
	s.readFile = func(path string, f func(number int, text []byte, err error) error) error {
		once()
		return jsonlines.Read(path, f)
	}
	return s.report(dir, tenant.ID{}, newReport(now, time.Hour))
}
