// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"bufio"
	"bytes"
	"io"
)

// finiteReader replaces NaN, Infinity and -Infinity outside of strings with the number 0.
// Python's json package writes these literals for numbers in extra attributes of projects, and
// Go's decoder rejects them. All other bytes remain the same and at the same position.
type finiteReader struct {
	in       *bufio.Reader
	err      error  // the error from in, which is returned after the buffered bytes
	rest     []byte // the bytes of a replacement that are not read yet
	inString bool
	escaped  bool // in a string, after a backslash
}

func newFiniteReader(in io.Reader) *finiteReader { return &finiteReader{in: bufio.NewReader(in)} }

// Read implements [io.Reader].
func (f *finiteReader) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if p[n], err = f.next(); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func (f *finiteReader) next() (byte, error) {
	if len(f.rest) > 0 {
		b := f.rest[0]
		f.rest = f.rest[1:]
		return b, nil
	}
	if f.err != nil && f.in.Buffered() == 0 {
		return 0, f.err
	}
	b, err := f.in.ReadByte()
	if err != nil {
		f.err = err
		return 0, err
	}
	switch {
	case f.escaped:
		f.escaped = false
	case f.inString:
		f.escaped = b == '\\'
		f.inString = b != '"'
	case b == '"':
		f.inString = true
	case b == 'N':
		return f.replace(b, "NaN", " 0 "), nil
	case b == 'I':
		return f.replace(b, "Infinity", " 0      "), nil
	case b == '-':
		return f.replace(b, "-Infinity", " 0       "), nil
	}
	return b, nil
}

// replace returns b unless b begins the literal. If b begins the literal, replace skips the literal
// and returns the first byte of by, which replaces the literal. Spaces in by separate the number
// from the adjacent bytes, so that invalid JSON remains invalid.
func (f *finiteReader) replace(b byte, literal, by string) byte {
	ahead, err := f.in.Peek(len(literal) - 1)
	if err != nil {
		f.err = err // Peek returns the error only once
	}
	if !bytes.Equal(ahead, []byte(literal[1:])) {
		return b
	}
	_, _ = f.in.Discard(len(ahead)) // the bytes are in the buffer
	f.rest = []byte(by[1:])
	return by[0]
}
