// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"time"
)

// WriteCSV writes a header row, then one row for each tenant and hour. A spreadsheet does not
// interpret a cell as a formula, because each tenant and UID begins with a letter, a digit or a
// parenthesis.
func (r *Report) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	row := []string{"tenant", "uid", "hour", "requests", "denied", "limited", "watches", "seatMilliseconds"}
	err := out.Write(row)
	for _, t := range r.Tenants {
		for i := range t.Hours {
			h := &t.Hours[i]
			row = append(row[:0], t.Tenant, t.UID, h.Hour.Format(time.RFC3339))
			for _, n := range []int64{h.Requests, h.Denied, h.Limited, h.Watches, h.SeatMilliseconds} {
				row = append(row, strconv.FormatInt(n, 10))
			}
			err = errors.Join(err, out.Write(row))
		}
	}
	out.Flush()
	return errors.Join(err, out.Error())
}

// WriteJSON writes the report as one JSON object with an API version and kind. It writes one tenant
// at a time, so that the encoded report is never completely in memory.
func (r *Report) WriteJSON(w io.Writer, apiVersion, kind string) error {
	const indent = "    "
	head, err := json.MarshalIndent(struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		*Report
		Tenants []*Tenant `json:"tenants,omitempty"` // replaces the tenants of the report
	}{
		APIVersion: apiVersion,
		Kind:       kind,
		Report:     r,
	}, "", indent)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	_, _ = out.Write(bytes.TrimSuffix(head, []byte("\n}"))) // Flush returns the first write error
	_, _ = out.WriteString(",\n" + indent + `"tenants": [`)
	separator := "\n"
	for _, t := range r.Tenants {
		text, err := json.MarshalIndent(t, indent+indent, indent)
		if err != nil {
			return err
		}
		_, _ = out.WriteString(separator + indent + indent)
		_, _ = out.Write(text)
		separator = ",\n"
	}
	_, _ = out.WriteString("\n" + indent + "]\n}\n")
	return out.Flush()
}
