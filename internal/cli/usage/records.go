// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/kubetenant/kubetenant/internal/cli/jsonlines"
	recorded "github.com/kubetenant/kubetenant/internal/usage"
	"github.com/kubetenant/kubetenant/tenant"
)

// MaxKeys is the maximum number of different keys in a report from records. It limits the memory
// that large files can require. One million keys with usual names need about 600 MB.
const MaxKeys = 1_000_000

// errManyKeys reports that the records have more different keys than a report may have.
var errManyKeys = errors.New("the records have too many servers, tenants and hours for one report: name a TENANT, " +
	"set a shorter --since, or load the records into a database")

// process is one process of a server, from its start to its end.
type process struct {
	cluster, server string
	started         int64 // in nanoseconds since 1970
}

// key identifies the records of which only the latest applies.
type key struct {
	process, tenant int32
	hour            int64
}

// sums contains the latest numbers for each key. Each process and each tenant is stored once.
type sums struct {
	readFile  func(path string, f func(number int, text []byte, err error) error) error
	limit     int
	numbers   map[key]Numbers
	processes map[process]int32
	tenants   map[identity]int32
}

func (s *sums) add(r *recorded.Record) error {
	k := key{
		process: index(s.processes, process{r.Cluster, r.Server, r.Started.UnixNano()}),
		tenant:  index(s.tenants, identity{r.Tenant, r.UID}),
		hour:    r.Hour.Unix(),
	}
	n, found := s.numbers[k]
	if !found && len(s.numbers) >= s.limit {
		return errManyKeys
	}
	n.keepLatest(Numbers(r.Totals))
	s.numbers[k] = n
	return nil
}

// byServer combines the numbers of the processes of each server. The processes of a server run one
// after another, so their watches are not concurrent and are not added.
func (s *sums) byServer() map[key]Numbers {
	servers := map[[2]string]int32{}
	serverOf := make([]int32, len(s.processes))
	for p, i := range s.processes {
		serverOf[i] = index(servers, [2]string{p.cluster, p.server})
	}
	out := make(map[key]Numbers, len(s.numbers))
	for k, n := range s.numbers {
		k.process = serverOf[k.process]
		total := out[k]
		total.addHour(n)
		out[k] = total
	}
	return out
}

func index[K comparable](known map[K]int32, k K) int32 {
	i, found := known[k]
	if !found {
		i = int32(len(known)) // #nosec G115 -- at most one more than MaxKeys
		known[k] = i
	}
	return i
}

// FromRecords returns the usage from a directory of records. The report begins with the hour that
// contains now minus since. The zero ID selects all tenants. The report's problems describe
// invalid lines and files that could not be read to their end. FromRecords returns an error if the
// directory has no records, or if the records have more than [MaxKeys] different keys.
func FromRecords(dir string, id tenant.ID, now time.Time, since time.Duration) (*Report, error) {
	return newSums(MaxKeys).report(dir, id, newReport(now, since))
}

func newSums(limit int) *sums {
	return &sums{
		readFile:  jsonlines.Read,
		limit:     limit,
		numbers:   map[key]Numbers{},
		processes: map[process]int32{},
		tenants:   map[identity]int32{},
	}
}

// report adds the records in a directory to a report, and finishes the report.
func (s *sums) report(dir string, id tenant.ID, r *Report) (*Report, error) {
	read := map[string]bool{}
	for before := -1; len(read) > before; { // a server may rename a file before it is opened
		before = len(read)
		files, err := jsonlines.Files(dir, func(string) bool { return true })
		if err != nil {
			return nil, err
		}
		for _, path := range files {
			if read[path] {
				continue
			}
			read[path] = true
			err := s.addFile(path, id, r)
			if errors.Is(err, errManyKeys) {
				return nil, err
			}
			// A missing file was renamed, or was deleted because of its age.
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				r.problem(err.Error())
			}
		}
	}
	hours := make([]map[int64]Numbers, len(s.tenants))
	for i := range hours {
		hours[i] = map[int64]Numbers{}
	}
	for k, n := range s.byServer() {
		total := hours[k.tenant][k.hour]
		total.add(n)
		hours[k.tenant][k.hour] = total
	}
	for key, i := range s.tenants {
		r.add(key, hours[i], nil)
	}
	return r.finish(), nil
}

// addFile adds the records in a file that are within the period of the report. Unless the ID is
// zero, it adds only the records of that tenant.
func (s *sums) addFile(path string, id tenant.ID, r *Report) error {
	return s.readFile(path, func(line int, text []byte, err error) error {
		var found recorded.Record
		if err == nil {
			err = decode(text, &found)
		}
		if err != nil {
			r.problem(fmt.Sprintf("%s:%d: %v", path, line, err))
			return nil
		}
		if !r.covers(found.Hour) || !id.IsZero() && found.Tenant != id.String() {
			return nil
		}
		return s.add(&found)
	})
}

// decode parses a record. Its errors do not contain the text of the line.
func decode(text []byte, r *recorded.Record) error {
	err := json.Unmarshal(text, r)
	typeErr := (*json.UnmarshalTypeError)(nil)
	switch {
	case recorded.IsInvalid(err):
		return err
	case errors.As(err, &typeErr) && typeErr.Field != "":
		return fmt.Errorf("the line is not a usage record: %s has the wrong type", typeErr.Field)
	case err != nil:
		return errors.New("the line is not a usage record in JSON: it may be incomplete")
	case r.UID != "" && !validUID.MatchString(r.UID):
		return errors.New("the line is not a usage record: uid must be the UID of a Tenant")
	}
	return nil
}
