// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package unverified_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/authn/internal/unverified"
)

func jwt(payload string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"ES256"}`)) + "." + encode([]byte(payload)) + ".c2ln"
}

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		token  string
		jwt    bool
		issuer string
		err    error
	}{
		"opaque":                 {"gAAAAABkZXZlbG9w", false, "", nil},
		"a bootstrap token":      {"abcdef.0123456789abcdef", false, "", nil},
		"two dots and no header": {"a.b.c", false, "", nil},
		"an issuer":              {jwt(`{"iss":"i","sub":"s"}`), true, "i", nil},
		"a payload after an invalid header": {
			"x." + base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"i"}`)) + ".x", true, "i", nil,
		},
		"a header after white space": {
			base64.RawURLEncoding.EncodeToString([]byte("        {\"alg\":\"x\"}")) + "." +
				base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"i"}`)) + ".x",
			true,
			"i",
			nil,
		},
		"the older form of Google's issuer": {jwt(`{"iss":"accounts.google.com"}`), true, "https://accounts.google.com", nil},
		"no issuer":                         {jwt(`{"sub":"s"}`), true, "", nil},
		"an issuer of another type":         {jwt(`{"iss":["i"]}`), true, "", nil},
		"an encrypted token":                {jwt(`{"iss":"i"}`) + ".x.y", true, "i", nil},
		"a duplicate issuer":                {jwt(`{"iss":"i","iss":"j"}`), true, "j", unverified.ErrDuplicate},
		"a duplicate before the issuer":     {jwt(`{"a":1,"a":2,"iss":"i"}`), true, "i", unverified.ErrDuplicate},
		"an issuer in another case":         {jwt(`{"iss":"i","ISS":"j"}`), true, "i", unverified.ErrDuplicate},
		"an issuer with case folding":       {jwt(`{"iss":"i","i\u017fs":"j"}`), true, "i", unverified.ErrDuplicate},
		"another claim in two cases":        {jwt(`{"iss":"i","Groups":1,"groups":2}`), true, "i", nil},
		"a duplicate in a nested object": {
			jwt(`{"iss":"i","kubernetes.io":{"pod":{"uid":"1","uid":"2"}}}`), true, "i", unverified.ErrDuplicate,
		},
		"a duplicate in an array":           {jwt(`{"iss":"i","x":[{"a":1,"a":1}]}`), true, "i", unverified.ErrDuplicate},
		"an escaped duplicate":              {jwt(`{"iss":"i","\u0069ss":"j"}`), true, "j", unverified.ErrDuplicate},
		"one name in two objects":           {jwt(`{"iss":"i","a":{"n":1},"b":{"n":1}}`), true, "i", nil},
		"an issuer in a nested object":      {jwt(`{"iss":"i","a":{"iss":"j"}}`), true, "i", nil},
		"an issuer only in a nested object": {jwt(`{"a":{"iss":"j"}}`), true, "", nil},
		"invalid JSON":                      {jwt(`{"iss":`), true, "", unverified.ErrMalformed},
		"two documents":                     {jwt(`{"iss":"i"}{}`), true, "", unverified.ErrMalformed},
		"an array":                          {jwt(`["iss"]`), true, "", unverified.ErrMalformed},
		"invalid base64":                    {"eyJhbGciOiJub25lIn0.!!!.x", true, "", unverified.ErrMalformed},
		"nested too deeply": {
			jwt(`{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`), true, "", unverified.ErrMalformed,
		},
		"a header that begins with a newline": {
			base64.RawURLEncoding.EncodeToString([]byte("\n {\"alg\":\"x\"}")) + "." +
				base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"i"}`)) + ".x",
			true,
			"i",
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := unverified.Read(c.token)
			if got.JWT != c.jwt || got.Issuer != c.issuer || !errors.Is(err, c.err) {
				t.Errorf("Read() = %+v, %v; want JWT %v, issuer %q, %v", got, err, c.jwt, c.issuer, c.err)
			}
		})
	}
}

func TestReadTimes(t *testing.T) {
	for exp, want := range map[string]time.Time{
		"1700000000":   time.Unix(1700000000, 0),
		"1700000000.9": time.Unix(1700000000, 0),
		"1.7e9":        time.Unix(1700000000, 0),
		"-1":           time.Unix(-1, 0),
	} {
		t.Run(exp, func(t *testing.T) {
			got, err := unverified.Read(jwt(`{"exp":` + exp + `,"iat":` + exp + `}`))
			if err != nil || !got.Expires.Equal(want) || !got.IssuedAt.Equal(want) {
				t.Errorf("exp %s: %v, %v; want %v", exp, got.Expires, err, want)
			}
		})
	}
	for _, bad := range []string{`"1700000000"`, "1e300", "null", "true", "[1]", "{}"} {
		for _, claim := range []string{"exp", "iat", "nbf"} {
			if claim == "nbf" && bad == "null" { // null means absent, as in upstream
				continue
			}
			if got, err := unverified.Read(jwt(`{"` + claim + `":` + bad + `,"iss":"i"}`)); !errors.Is(err,
				unverified.ErrMalformed) || got.Issuer != "i" {
				t.Errorf("%s %s: %+v, %v", claim, bad, got, err)
			}
		}
	}
}

// TestIssuerless checks that only a token with three parts and a valid payload without the claim
// iss is issuerless.
func TestIssuerless(t *testing.T) {
	for payload, want := range map[string]bool{
		`{}`:                         true,
		`{"sub":"u","nbf":null}`:     true,
		`{"nested":{"iss":"i"}}`:     true,
		`{"iss":"i"}`:                false,
		`{"iss":""}`:                 false,
		`{"iss":null}`:               false,
		`{"iss":7}`:                  false,
		`{"iss":["i"]}`:              false,
		`{"\u0069ss":"i"}`:           false,
		`{"ISS":"i"}`:                false, // another parser may use it as the issuer
		`{"i\u017fs":"i"}`:           false,
		`{"sub":"u","sub":"v"}`:      false,
		`{"exp":"1700000000"}`:       false,
		`{"exp":null}`:               false,
		`{"sub":"u"} {"iss":"i"}`:    false,
		`["iss"]`:                    false,
		`{"sub":"u","iss":{"a":[]}}`: false,
	} {
		t.Run(payload, func(t *testing.T) {
			if got, err := unverified.Read(jwt(payload)); got.Issuerless != want {
				t.Errorf("%+v, %v; want %v", got, err, want)
			}
			if got, _ := unverified.Read(jwt(payload) + ".x.y"); got.Issuerless {
				t.Errorf("%s with five parts: %+v", payload, got)
			}
		})
	}
}

func TestIsVisible(t *testing.T) {
	for token, want := range map[string]bool{
		"abc":      true,
		"a!~":      true,
		"":         true,
		"\tabc":    false,
		"a bc":     false,
		"abc\n":    false,
		"a\u00a0b": false,
		"a\x00":    false,
		"a\x7f":    false,
		"\u2028":   false,
	} {
		t.Run(token, func(t *testing.T) {
			if unverified.IsVisible(token) != want {
				t.Errorf("IsVisible(%q) = %v", token, !want)
			}
		})
	}
}

func TestReadManyMembers(t *testing.T) {
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, `"k%d":1,`, i)
	}
	for payload, want := range map[string]error{
		"{" + b.String() + `"iss":"i"}`:         nil,
		"{" + b.String() + `"k3":1,"iss":"i"}`:  unverified.ErrDuplicate,
		"{" + b.String() + `"k99":1,"iss":"i"}`: unverified.ErrDuplicate,
	} {
		t.Run(payload, func(t *testing.T) {
			if got, err := unverified.Read(jwt(payload)); got.Issuer != "i" || !errors.Is(err, want) {
				t.Errorf("Read() = %+v, %v; want %v", got, err, want)
			}
		})
	}
}

// FuzzRead checks that Read never panics, and that it returns the same claims as encoding/json if
// it succeeds.
func FuzzRead(f *testing.F) {
	for _, payload := range []string{
		`{"iss":"i","exp":1,"jti":"x"}`, `{"a":[{"b":{}}],"iss":"i"}`, `{"iss":"i","iss":"j"}`, `[]`, ``,
	} {
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		got, err := unverified.Read(jwt(payload))
		if !got.JWT {
			t.Fatal("not recognized as a JSON Web Token")
		}
		if _, err := unverified.Read(payload); err != nil && !errors.Is(err, unverified.ErrMalformed) &&
			!errors.Is(err, unverified.ErrDuplicate) {
			t.Fatal(err)
		}
		if err != nil {
			return
		}
		var want map[string]any
		if err := json.Unmarshal([]byte(payload), &want); err != nil {
			t.Fatalf("accepted a payload that is not a JSON object: %v", err)
		}
		if got.Issuer == "https://accounts.google.com" {
			return
		}
		if issuer, _ := want["iss"].(string); issuer != got.Issuer {
			t.Fatalf("issuer %q, want %q", got.Issuer, issuer)
		}
		var loose struct {
			Issuer any `json:"iss"`
		}
		if err := json.Unmarshal([]byte(payload), &loose); err != nil {
			t.Fatal(err)
		}
		if issuer, _ := loose.Issuer.(string); issuer != got.Issuer {
			t.Fatalf("a reader that ignores case reads issuer %q, not %q", issuer, got.Issuer)
		}
	})
}
