// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package views

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestReadList checks that every item of a list is read, and that a malformed list is rejected.
func TestReadList(t *testing.T) {
	for text, want := range map[string]string{
		`{"kind":"L","metadata":{"resourceVersion":"5"},"items":[{"a":1},{"b":2}]}`: `{"a":1}{"b":2} 5`,
		`{"items":[{"a":1}],"metadata":{"resourceVersion":"5"},"x":{"y":[1]}}`:      `{"a":1} 5`,
		`{"metadata":{"resourceVersion":"5"},"items":[]}`:                           ` 5`,
	} {
		t.Run(text, func(t *testing.T) {
			var got strings.Builder
			version, err := readList(strings.NewReader(text), func(raw []byte) error { got.Write(raw); return nil })
			if result := got.String() + " " + version; err != nil || result != want {
				t.Errorf("%s, %v", result, err)
			}
		})
	}
	for _, text := range []string{
		``, `[]`, `{`, `null`, `{}`, `{"items":null,"metadata":{"resourceVersion":"5"}}`, `{"items":{},"metadata":{}}`,
		`{"metadata":{"resourceVersion":"5"},"items":[{"a":1}`, `{"metadata":{"resourceVersion":"5"},"items":[{"a":1}]`,
		`{"metadata":{"resourceVersion":5},"items":[]}`, `{"metadata":{"resourceVersion":"5","continue":"x"},"items":[]}`,
		`{"metadata":{"resourceVersion":"5"},"items":[{"a":}]}`, `{"metadata":{"resourceVersion":"5"},"items":[}]`,
	} {
		if version, err := readList(strings.NewReader(text), func([]byte) error { return nil }); err == nil {
			t.Errorf("%s: version %s", text, version)
		}
	}
}

// TestReadListLimits checks the maximum size of one object, and of the objects that one response
// holds.
func TestReadListLimits(t *testing.T) {
	object := `{"a":"` + strings.Repeat("x", objectBytes/2) + `"}`
	list := func(n int) io.Reader {
		items := strings.Repeat(object+",", n-1) + object
		return strings.NewReader(`{"metadata":{"resourceVersion":"5"},"items":[` + items + `]}`)
	}
	b := NewBudget(int64(9*len(object)), int64(3*len(object)+1))
	for name, c := range map[string]struct {
		objects int
		want    error
	}{
		"one object":                          {1, nil},
		"as many objects as the limit allows": {3, nil},
		"one object more":                     {4, errTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			held := b.reserve("acme")
			_, err := readList(list(c.objects), func(raw []byte) error { return held.add(len(raw)) })
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			held.release()
			held.release()
		})
	}
	if b.used != 0 || len(b.byTenant) != 0 {
		t.Errorf("%d bytes are held, %v", b.used, b.byTenant)
	}
	for _, start := range []string{`{"metadata":{"resourceVersion":"5"},"items":[{"a":"`, `{"kind":"`, `{"x":["`} {
		endless := io.MultiReader(strings.NewReader(start), &endlessReader{})
		if _, err := readList(endless, func([]byte) error { return nil }); !errors.Is(err, errTooLarge) {
			t.Errorf("%s: %v", start, err)
		}
	}
}

// endlessReader is a reader of endless text.
type endlessReader struct{}

func (*endlessReader) Read(p []byte) (int, error) { return copy(p, strings.Repeat("0", len(p))), nil }

// FuzzReadList checks that no text makes readList panic, and that every item that it reads is
// valid JSON.
func FuzzReadList(f *testing.F) {
	f.Add(`{"kind":"L","metadata":{"resourceVersion":"5"},"items":[{"a":1},{"b":2}]}`)
	f.Add(`{"items":[[[]],null,"x"],"items":[1]}`)
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = readList(strings.NewReader(text), func(raw []byte) error {
			if !json.Valid(raw) {
				t.Fatalf("%q", raw)
			}
			return nil
		})
	})
}
