// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/internal/usage"
)

func record() usage.Record {
	return usage.Record{
		Cluster:   "eu1",
		Server:    "cp-0",
		Component: usage.KubeAPIServer,
		Started:   time.Date(2026, 11, 28, 1, 0, 0, 123456789, time.UTC),
		UID:       "3d6f",
		Tenant:    "acme",
		Hour:      begin,
		Totals: usage.Totals{
			Requests:         10,
			Denied:           1,
			Limited:          2,
			Watches:          3,
			SeatMilliseconds: 1200,
		},
	}
}

// TestRecordEncoding checks that records have the documented JSON encoding.
func TestRecordEncoding(t *testing.T) {
	const want = `{"cluster":"eu1","server":"cp-0","component":"kube-apiserver",` +
		`"started":"2026-11-28T01:00:00.123456789Z","uid":"3d6f","tenant":"acme","hour":"2026-11-28T01:00:00Z",` +
		`"requests":10,"denied":1,"limited":2,"watches":3,"seatMilliseconds":1200}` + "\n"
	got, err := usage.Lines([]usage.Record{record()})
	if err != nil || string(got) != want {
		t.Fatalf("%s, %v; want %s", got, err, want)
	}
	all, invalid := usage.Parse([]byte(want + "\n" + want[:40] + "\n" + want))
	if len(all) != 2 || invalid != 1 || all[0] != record() || all[1] != record() {
		t.Errorf("%+v, %d invalid lines", all, invalid)
	}
	labelOnly := record()
	labelOnly.UID = ""
	key := record()
	if k := key.Key(); k.UID != "3d6f" || k.Tenant != "" {
		t.Errorf("key with UID %+v", k)
	}
	if k := labelOnly.Key(); k.Tenant != "acme" {
		t.Errorf("key without UID %+v", k)
	}
}

// TestInvalidRecords checks that decoding rejects records that no server writes.
func TestInvalidRecords(t *testing.T) {
	line, err := json.Marshal(record())
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"a negative number":      {`"requests":10`, `"requests":-1`},
		"a huge number":          {`"requests":10`, `"requests":1e300`},
		"a fraction":             {`"requests":10`, `"requests":1.5`},
		"a name that is no ID":   {`"acme"`, `"../acme"`},
		"no tenant":              {`"acme"`, `""`},
		"no server":              {`"cp-0"`, `""`},
		"a long server":          {`"cp-0"`, `"` + strings.Repeat("x", 254) + `"`},
		"an hour with minutes":   {`"hour":"2026-11-28T01:00:00Z"`, `"hour":"2026-11-28T01:10:00Z"`},
		"no hour":                {`"hour":"2026-11-28T01:00:00Z",`, ``},
		"no start":               {`"started":"2026-11-28T01:00:00.123456789Z",`, ``},
		"a number as the tenant": {`"acme"`, `7`},
		"not JSON":               {`{`, `[`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(string(line), change[0], change[1], 1)
			if text == string(line) {
				t.Fatal("nothing was replaced")
			}
			if all, invalid := usage.Parse([]byte(text)); len(all) != 0 || invalid != 1 {
				t.Errorf("%+v, %d invalid lines", all, invalid)
			}
		})
	}
	for _, name := range []string{usage.NoTenant, usage.OtherTenants, "system"} {
		text := strings.Replace(string(line), `"acme"`, `"`+name+`"`, 1)
		if all, invalid := usage.Parse([]byte(text)); len(all) != 1 || invalid != 0 {
			t.Errorf("%s: %+v, %d invalid lines", name, all, invalid)
		}
	}
}

// FuzzParse checks that no input causes a panic, and that parsed records do not change if they are
// encoded and parsed again.
func FuzzParse(f *testing.F) {
	line, _ := json.Marshal(record())
	f.Add(line)
	f.Add([]byte("{}\n[1]\n\n" + string(line) + "\n" + string(line[:50])))
	f.Add([]byte(`{"server":"s","started":"0001-01-01T00:00:00Z","tenant":"(none)","hour":"2026-11-28T01:00:00+01:00"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, _ := usage.Parse(data)
		for i := range all {
			if min(all[i].Requests, all[i].Denied, all[i].Limited, all[i].Watches, all[i].SeatMilliseconds) < 0 {
				t.Fatalf("negative numbers: %+v", all[i])
			}
		}
		lines, err := usage.Lines(all)
		if err != nil {
			t.Fatalf("%+v: %v", all, err)
		}
		again, invalid := usage.Parse(lines)
		if invalid != 0 || len(again) != len(all) {
			t.Fatalf("%d records became %d, %d invalid", len(all), len(again), invalid)
		}
		for i := range all {
			if again[i] != all[i] {
				t.Fatalf("%+v became %+v", all[i], again[i])
			}
		}
	})
}
