// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package output prints what the commands found: kubectl's tables for people,
// kubectl's formats for programs.
package output

import (
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// plainWidth is how wide lines may be where there is no terminal: they are for grep.
const plainWidth = math.MaxInt32

// minWidth is the narrowest width that anything is laid out for: a terminal that says it is
// narrower, or says nothing, gets lines that it wraps itself.
const minWidth = 20

// Screen is where text goes.
type Screen struct {
	io.Writer
	// Terminal says that somebody looks at it, Colour that he may be shown some.
	Terminal, Colour bool
	// Width in columns.
	Width int
}

// NewScreen returns the screen that w is: a terminal only where it is one. NO_COLOR
// and TERM=dumb are honoured.
func NewScreen(w io.Writer) *Screen {
	s := &Screen{Writer: w, Width: plainWidth}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return s
	}
	s.Terminal = true
	_, none := os.LookupEnv("NO_COLOR")
	s.Colour = !none && os.Getenv("TERM") != "dumb"
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
		s.Width = max(width, minWidth)
	}
	return s
}

// Colours.
const (
	Bold  = "1"
	Red   = "31"
	Green = "32"
	Faint = "2"
)

// Paint returns text in a colour where there are any.
func (s *Screen) Paint(colour, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// Safe returns text with its control characters written out: names are others' to choose, and must
// neither steer a terminal nor look like another line or cell.
//
// What is no UTF-8 is replaced: some terminals take single bytes for control characters.
func Safe(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if !strings.ContainsFunc(text, unsafe) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unsafe(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// unsafe reports control and format characters, those that change the direction of text among them.
func unsafe(r rune) bool {
	if ' ' <= r && r <= '~' { // most of all text
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}
