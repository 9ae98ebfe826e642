// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package quickjson

import (
	"bytes"
	"encoding/json"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// FuzzWriter checks that the output is the same as that of encoding/json.
func FuzzWriter(f *testing.F) {
	f.Add("alice", "u1", "dev", "kubetenant.dev/tenant", int64(200), true)
	f.Add("", "", "", "", int64(0), false)
	f.Add("<\"\\>&\u2028", "\x00\n\x7f", "\xff", "a\xc3", int64(-1), true)
	f.Fuzz(func(t *testing.T, a, b, c, d string, n int64, more bool) {
		type document struct {
			Flag  bool                      `json:"flag"`
			Text  string                    `json:"text,omitempty"`
			Texts []string                  `json:"texts,omitempty"`
			Count int64                     `json:"count,omitempty"`
			Map   map[string]string         `json:"map,omitempty"`
			User  authenticationv1.UserInfo `json:"user"`
			Any   any                       `json:"any"`
		}
		of := document{
			Flag:  more,
			Text:  a,
			Texts: []string{b, c},
			Count: n,
			Map:   map[string]string{d: a},
			Any:   map[string]any{a: n},
			User: authenticationv1.UserInfo{
				Username: a,
				UID:      b,
				Groups:   []string{c},
				Extra:    map[string]authenticationv1.ExtraValue{a: {b, c}},
			},
		}
		if more {
			of.Map[a], of.Map[b] = b, c
			of.User.Extra[b], of.User.Extra[c] = nil, authenticationv1.ExtraValue{}
		} else {
			of.Texts, of.User.Groups, of.User.Extra = []string{}, nil, nil
		}
		want, err := json.Marshal(of)
		if err != nil {
			t.Fatal(err)
		}
		w := &Writer{}
		w.Begin()
		w.Bool("flag", of.Flag)
		w.String("text", of.Text)
		w.Strings("texts", of.Texts)
		w.Int("count", of.Count)
		Map(w, "map", of.Map, (*Writer).Quote)
		User(w, "user", of.User.Username, of.User.UID, of.User.Groups, of.User.Extra)
		if err := w.Any("any", of.Any); err != nil {
			t.Fatal(err)
		}
		w.End()
		if !bytes.Equal(w.Text, want) {
			t.Errorf("%s, want %s", w.Text, want)
		}
	})
}

// TestInvalidValueWritesNothing checks that a value that encoding/json cannot encode causes an
// error and no output.
func TestInvalidValueWritesNothing(t *testing.T) {
	w := &Writer{}
	w.Begin()
	if err := w.Any("any", make(chan int)); err == nil || string(w.Text) != "{" {
		t.Errorf("Any() = %v; %s", err, w.Text)
	}
}

// TestQuote checks that each byte, alone and between other bytes, is quoted as encoding/json quotes
// it.
func TestQuote(t *testing.T) {
	for c := range 256 {
		for _, text := range []string{string([]byte{byte(c)}), string([]byte{'a', byte(c), 'b'})} {
			want, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			w := &Writer{}
			if w.Quote(text); !bytes.Equal(w.Text, want) {
				t.Errorf("%s, want %s", w.Text, want)
			}
		}
	}
}
