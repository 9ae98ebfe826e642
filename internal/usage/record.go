// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kubetenant/kubetenant/tenant"
)

// Record contains the usage of a tenant at one server in one hour. A later record with the same
// [Key] replaces an earlier one. The numbers in the later record are never smaller.
type Record struct {
	// Cluster and Server are the names from the configuration. Cluster may be empty.
	Cluster string
	Server  string
	// Component is the kind of the server. A request through a gateway is counted in the records of
	// the gateway and of a server of the cluster. Component is not part of the key.
	Component Component
	// Started is the time at which the process of the server started. Nanoseconds may have been
	// added to it to distinguish records of the same hour.
	Started time.Time
	// UID is the UID of the Tenant object. It is empty for a tenant without a Tenant object, and
	// in records from a gateway.
	UID string
	// Tenant is the ID of the tenant, [NoTenant] or [OtherTenants].
	Tenant string
	// Hour is the beginning of the hour.
	Hour time.Time
	Totals
}

// Component is a kind of server.
type Component string

// The components.
const (
	KubeAPIServer Component = "kube-apiserver"
	Webhook       Component = "webhook"
	Gateway       Component = "gateway"
)

// Key identifies a [Record].
type Key struct {
	Cluster, Server string
	Started         time.Time
	UID             string
	Tenant          string // empty if UID is set
	Hour            time.Time
}

// Key returns the key of a record.
func (r *Record) Key() Key {
	k := Key{
		Cluster: r.Cluster,
		Server:  r.Server,
		Started: r.Started,
		UID:     r.UID,
		Hour:    r.Hour,
	}
	if k.UID == "" {
		k.Tenant = r.Tenant
	}
	return k
}

// recordJSON is the JSON form of a record.
type recordJSON struct {
	Cluster          string    `json:"cluster,omitempty"`
	Server           string    `json:"server"`
	Component        Component `json:"component,omitempty"`
	Started          time.Time `json:"started"`
	UID              string    `json:"uid,omitempty"`
	Tenant           string    `json:"tenant"`
	Hour             time.Time `json:"hour"`
	Requests         int64     `json:"requests"`
	Denied           int64     `json:"denied"`
	Limited          int64     `json:"limited"`
	Watches          int64     `json:"watches"`
	SeatMilliseconds int64     `json:"seatMilliseconds"`
}

// MarshalJSON implements [json.Marshaler].
func (r Record) MarshalJSON() ([]byte, error) {
	return json.Marshal(recordJSON{
		Cluster:          r.Cluster,
		Server:           r.Server,
		Component:        r.Component,
		Started:          r.Started.UTC(),
		UID:              r.UID,
		Tenant:           r.Tenant,
		Hour:             r.Hour.UTC(),
		Requests:         r.Requests,
		Denied:           r.Denied,
		Limited:          r.Limited,
		Watches:          r.Watches,
		SeatMilliseconds: r.SeatMilliseconds,
	})
}

// UnmarshalJSON implements [json.Unmarshaler]. It returns an error for a record that no server
// writes. It ignores unknown fields, which a later version may write.
func (r *Record) UnmarshalJSON(data []byte) error {
	var f recordJSON
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	got := Record{
		Cluster:   f.Cluster,
		Server:    f.Server,
		Component: f.Component,
		Started:   f.Started.UTC(),
		UID:       f.UID,
		Tenant:    f.Tenant,
		Hour:      f.Hour.UTC(),
		Totals: Totals{
			Requests:         f.Requests,
			Denied:           f.Denied,
			Limited:          f.Limited,
			Watches:          f.Watches,
			SeatMilliseconds: f.SeatMilliseconds,
		},
	}
	if err := got.validate(); err != nil {
		return err
	}
	*r = got
	return nil
}

// maxName is the maximum length of a name in a record, in bytes.
const maxName = 253

var errRecord = errors.New("invalid usage record")

func (r *Record) validate() error {
	_, err := tenant.Parse(r.Tenant)
	switch {
	case err != nil && r.Tenant != NoTenant && r.Tenant != OtherTenants:
		return fmt.Errorf("%w: tenant must be the ID of a tenant", errRecord)
	case r.Server == "" || max(len(r.Server), len(r.Cluster), len(r.Component), len(r.UID)) > maxName:
		return fmt.Errorf("%w: server, cluster, component and uid must be at most %d bytes long, and server is required",
			errRecord, maxName)
	case r.Started.IsZero() || r.Hour.IsZero() || !r.Hour.Equal(r.Hour.Truncate(time.Hour)):
		return fmt.Errorf("%w: started is required, and hour must be the beginning of an hour", errRecord)
	case min(r.Requests, r.Denied, r.Limited, r.Watches, r.SeatMilliseconds) < 0:
		return fmt.Errorf("%w: numbers must not be negative", errRecord)
	}
	return nil
}

// Lines returns the records as JSON lines.
func Lines(records []Record) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	for i := range records {
		if err := encoder.Encode(&records[i]); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// Parse returns the records of JSON lines. It skips lines that are not records, such as an
// incomplete line after a crash, and returns their number.
func Parse(lines []byte) (records []Record, invalid int) {
	for line := range bytes.Lines(lines) {
		text := strings.TrimSpace(string(line))
		if text == "" {
			continue
		}
		var r Record
		if json.Unmarshal([]byte(text), &r) != nil {
			invalid++
			continue
		}
		records = append(records, r)
	}
	return records, invalid
}
