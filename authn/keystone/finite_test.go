// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
)

func TestFiniteReader(t *testing.T) {
	for in, want := range map[string]string{
		``:                               ``,
		`NaN`:                            ` 0 `,
		`[NaN,Infinity,-Infinity]`:       `[ 0 , 0      , 0       ]`,
		`{"a":NaN}`:                      `{"a": 0 }`,
		`"NaN Infinity -Infinity"`:       `"NaN Infinity -Infinity"`,
		`"\"NaN"`:                        `"\"NaN"`,
		`"\\"NaN`:                        `"\\" 0 `,
		`"\\\"NaN",NaN`:                  `"\\\"NaN", 0 `,
		`[-1,-0,null,true]`:              `[-1,-0,null,true]`,
		`[Na,Infin,-Infin`:               `[Na,Infin,-Infin`,
		`1NaN`:                           `1 0 `,
		`NaN1`:                           ` 0 1`,
		`--Infinity`:                     `- 0       `,
		`NaNaN`:                          ` 0 aN`,
		`"` + "\xc3\xa9\xff" + `NaN"NaN`: `"` + "\xc3\xa9\xff" + `NaN" 0 `,
	} {
		t.Run(strconv.Quote(in), func(t *testing.T) {
			for name, from := range map[string]io.Reader{
				"whole":          strings.NewReader(in),
				"byte by byte":   iotest.OneByteReader(strings.NewReader(in)),
				"EOF with data":  iotest.DataErrReader(strings.NewReader(in)),
				"after a buffer": strings.NewReader(in),
			} {
				t.Run(name, func(t *testing.T) {
					pad := ""
					if name == "after a buffer" { // the literal crosses the end of bufio's buffer
						pad = strings.Repeat(" ", 4094)
						from = io.MultiReader(strings.NewReader(pad), from)
					}
					got, err := io.ReadAll(newFiniteReader(from))
					if err != nil || string(got) != pad+want {
						t.Errorf("%q, %v; want %q", got[len(pad):], err, want)
					}
				})
			}
		})
	}
}

// TestFiniteReaderReturnsErrors checks that an error after the start of a literal is not lost.
func TestFiniteReaderReturnsErrors(t *testing.T) {
	cut := errors.New("cut")
	for _, in := range []string{"", "[", "[N", "[-Inf", "[NaN", `["`} {
		f := newFiniteReader(io.MultiReader(strings.NewReader(in), iotest.ErrReader(cut)))
		got, err := io.ReadAll(f)
		if !errors.Is(err, cut) || len(got) != len(in) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
		if _, err := f.Read(make([]byte, 1)); !errors.Is(err, cut) {
			t.Errorf("%q: then %v", in, err)
		}
	}
}

// replaceLiterals is a model of finiteReader for a whole document.
func replaceLiterals(data []byte) (out []byte) {
	for rest := data; len(rest) > 0; {
		n := 1
		if rest[0] == '"' {
			for n < len(rest) && rest[n] != '"' {
				if rest[n] == '\\' {
					n++
				}
				n++
			}
			n = min(n+1, len(rest))
		}
		token := rest[:n]
		for _, pair := range [][2]string{{"NaN", " 0 "}, {"Infinity", " 0      "}, {"-Infinity", " 0       "}} {
			if bytes.HasPrefix(rest, []byte(pair[0])) {
				n, token = len(pair[0]), []byte(pair[1])
			}
		}
		out, rest = append(out, token...), rest[n:]
	}
	return out
}

// FuzzFinite compares finiteReader with replaceLiterals. Valid JSON must not change.
func FuzzFinite(f *testing.F) {
	for _, seed := range []string{
		`{"a":NaN,"b":[Infinity,-Infinity]}`, `"\\"NaN`, `"\"NaN`, `-NaN`, `--Infinity`, `NaNInfinity`, `"`, `"\`,
	} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		var got bytes.Buffer
		in := newFiniteReader(iotest.HalfReader(bytes.NewReader(data)))
		if _, err := io.CopyBuffer(struct{ io.Writer }{&got}, in, make([]byte, int(size)+1)); err != nil {
			t.Fatal(err)
		}
		if json.Valid(data) && !bytes.Equal(got.Bytes(), data) {
			t.Errorf("JSON has changed: %q", got.Bytes())
		}
		if want := replaceLiterals(data); !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%q, want %q", got.Bytes(), want)
		}
	})
}
